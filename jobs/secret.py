"""The command `tidemark secret`: makes secrets of private columns, tokens of values, and values of tokens."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tidemark import query, warehouse
from tidemark.jobs.cli.exit_codes import DONE
from tidemark.warehouse import InputError
from tidemark.warehouse.columns.json_values import json_text


def run(given: argparse.Namespace) -> int:
    """Prints a secret, a token or a value. Values are read from stdin: others see command lines."""
    if given.action == "new":
        what, text = "secret", f"{_older(given.after)}{warehouse.new_secret()}"
    elif given.action == "token":
        what, text = "token", str(query.token(_line(), reveal=given.sealed))
    else:
        what, text = "value", query.reveal(_line())
    if given.to is not None:
        _write(given.to, text)
        what, text = "file", given.to
    print(json_text({what: text}) if given.json else text)
    return DONE


def _line() -> str:
    return sys.stdin.readline().rstrip("\r\n")


def _older(path: str | None) -> str:
    """The lines of a file of secrets, which a new one is to wrap; InputError for another file."""
    if path is None:
        return ""
    warehouse.use_secret(file=path)
    return f"{Path(path).read_text().strip()}\n"


def _write(path: str, text: str) -> None:
    """A new file that its owner alone may read; InputError if there is one already."""
    try:
        place = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise InputError(
            f"{path} is there already, and may be a secret that is needed. Name a new file."
        ) from None
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}. Name another file.") from error
    with os.fdopen(place, "w") as file:
        file.write(f"{text}\n")
