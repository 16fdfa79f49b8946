"""What the options of a command line mean: the warehouse, its store, types and options of creation."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path
from typing import Any

from tidemark.jobs.cli.options.shared import VARIABLE
from tidemark.option_table import OPTIONS


def warehouse_of(given: argparse.Namespace) -> str | dict[str, str]:
    """The warehouse of -w, else of the environment variable; a usage error if both are missing.

    Several -w give a mapping of addresses by name: by NAME of NAME=URI, else by the address.
    """
    named: Any = getattr(given, "warehouse", None) or os.environ.get(VARIABLE)
    if not named:
        given.parser.error(f"no warehouse was named. Give -w PATH, or set the variable {VARIABLE}.")
    if isinstance(named, str):
        return named
    if len(named) == 1:
        return str(named[0])
    found: dict[str, str] = {}
    for text in named:
        match = re.fullmatch(r"([\w-]+)=(.+)", text)
        name, uri = match.groups() if match else (text, text)
        if name in found:
            given.parser.error(f"-w names {name!r} twice, whose rows would count twice. Name it once.")
        found[name] = uri
    return found


def storage_options_of(given: argparse.Namespace, prefix: str = "") -> dict[str, str] | None:
    """The given storage options; options of the line override those of the file. None if there are none.

    prefix   "to-" for the options of the store that gets a copy

    A usage error for text that is no KEY=VALUE; it does not show the text, which may be a secret.
    """
    flag, attribute = f"--{prefix}storage-option", f"{prefix.replace('-', '_')}storage_option"
    file, texts = getattr(given, f"{attribute}s"), getattr(given, attribute)
    lines: list[tuple[str, str]] = []
    if file:
        try:
            content = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            given.parser.error(f"{flag}s {file} cannot be read: {error}")
        for number, line in enumerate(content.splitlines(), 1):
            if line.strip() and not line.lstrip().startswith("#"):
                lines.append((f"line {number} of {file}", line.strip()))
    lines += [(flag, text) for text in texts or ()]
    options = {}
    for place, text in lines:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            given.parser.error(f"{place} must be KEY=VALUE, such as AWS_REGION=eu-central-1.")
        options[name.strip()] = value.strip()
    return options or None


def types_of(given: argparse.Namespace, option: str = "type") -> dict[str, str]:
    """The types of --type, or of another option, by column. Fails as `_pairs`."""
    return _pairs(given, option, "COLUMN=TYPE", "zip=int")


def names_of(given: argparse.Namespace) -> dict[str, str]:
    """The new names of --rename, by the old ones. Fails as `_pairs`."""
    return _pairs(given, "rename", "OLD=NEW", "qty=quantity")


def _pairs(given: argparse.Namespace, option: str, form: str, example: str) -> dict[str, str]:
    """The values of a repeated option, by column.

    A usage error for a text of another form, and for a column that is given twice.
    """
    pairs: dict[str, str] = {}
    for text in getattr(given, option) or ():
        column, equals, value = (part.strip() for part in text.rpartition("="))
        if not equals or not column or not value or column in pairs:
            given.parser.error(
                f"--{option} {text}: expected {form}, such as {example}, once for each column."
            )
        pairs[column] = value
    return pairs


def creation_options(given: argparse.Namespace) -> dict[str, Any]:
    """The values of the options of the command, as keywords of `warehouse.create`; None if not given."""
    options = {}
    for option in OPTIONS.values():
        attribute = (option.flag or "").removeprefix("--").replace("-", "_")
        if hasattr(given, attribute):
            value = getattr(given, attribute)
            options[option.name] = _columns(value) if option.kind == "keys" else value
    return options


def key_columns(given: argparse.Namespace) -> list[str]:
    """The columns of the keys and groups that were given."""
    options = creation_options(given)
    return [name for role in ("keys", "groups") for columns in options[role] or () for name in columns]


def _columns(keys: list[str] | None) -> list[list[str]] | None:
    """The columns of each key, from texts such as "origin" and "origin,dest"."""
    return None if keys is None else [key.split(",") for key in keys]


def ahead(given: argparse.Namespace) -> dict[str, Any]:
    """The keyword `ahead` of loads and streams; no keyword without `--ahead`, so that the default holds."""
    return {} if given.ahead is None else {"ahead": None if given.ahead == "any" else given.ahead}
