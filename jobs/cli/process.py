"""The process of a command: standard streams that are closed, arguments that are not UTF-8, Ctrl-C.

The program that starts the command decides on these, so none of them may end in a traceback. Nobody reads a
closed stream: output to it is dropped. Ctrl-C inside an import may come out as any error, so Ctrl-C is noted.
"""

from __future__ import annotations

import argparse
import codecs
import io
import os
import signal
import sys
import threading
from collections.abc import Iterable
from itertools import pairwise
from typing import NoReturn

from tidemark.jobs.cli.exit_codes import REFUSED, RULE, control_c
from tidemark.jobs.cli.options.parts import Part, add
from tidemark.jobs.cli.options.shared import VARIABLE


def job_arguments(
    script: str, text: str | None, options: Iterable[Part], argv: list[str] | None
) -> argparse.Namespace:
    """The arguments of a job's script; see `arguments`.

    text: the docstring of its module. options: the options that it takes.
    """
    args = argparse.ArgumentParser(
        prog=script, description=text, epilog=RULE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add(args, options)
    return args.parse_args(arguments(argv))


def arguments(argv: list[str] | None) -> list[str]:
    """The arguments of a command; None: those of this process, which is prepared to run it.

    Ends the process with `REFUSED` for an argument that is not UTF-8. Where the locale's encoding is not
    UTF-8, the process starts anew with it: paths and names are UTF-8 wherever they are stored.
    """
    if argv is not None:
        return argv
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _interrupt)
    _open_streams()
    if codecs.lookup(sys.getfilesystemencoding()).name != "utf-8" and not sys.flags.utf8_mode:
        start = [sys.executable, "-X", "utf8", *sys.orig_argv[1:]]
        os.execve(sys.executable, start, {**os.environ, "PYTHONUTF8": "1"})  # noqa: S606  this command again
    given = [*sys.argv[1:], os.environ.get(VARIABLE, "")]
    for before, word in pairwise(["", *given]):
        if not _is_text(word):
            shown = _shown(before, word)
            print(f"error: not text in UTF-8: {shown}. Names and paths must be UTF-8.", file=sys.stderr)
            sys.exit(REFUSED)
    return sys.argv[1:]


def _interrupt(*_: object) -> NoReturn:
    control_c.set()
    raise KeyboardInterrupt


def _shown(before: str, word: str) -> str:
    """A word that is not UTF-8, without the value of a storage option, which may be a secret."""
    from tidemark.warehouse.errors import without_secrets

    shown = os.fsencode(word).decode("utf-8", "backslashreplace")
    option = "--storage-option"
    if option in (before, shown.partition("=")[0]):
        return f"{option} {shown.removeprefix(f'{option}=').partition('=')[0]}=..."
    return without_secrets(shown)


def _is_text(given: str) -> bool:
    try:
        given.encode()
    except UnicodeEncodeError:
        return False
    return True


def _open_streams() -> None:
    """Opens closed streams on the null device; a file that gets the number of one would be written to."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
        stream = getattr(sys, name)
        if stream is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
        elif name != "stdin" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # where PYTHONIOENCODING has no such character
