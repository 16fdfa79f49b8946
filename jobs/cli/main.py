"""The command `tidemark`: the calls of the Python API as shell commands.

    tidemark quantile 0.99 -w flights        (or: python -m tidemark.jobs.cli.main ...)

The commands are listed in jobs/cli/commands. The module of a command is imported when the command runs,
so commands that only read start no Java and load no Spark.
"""

from __future__ import annotations

if __name__ == "__main__":
    import tidemark.jobs.cli.starting  # noqa: F401  sets what Ctrl-C does

import argparse
import os
import re
import sys
from importlib import import_module
from typing import NoReturn

from tidemark.jobs.cli.commands import COMMANDS
from tidemark.jobs.cli.commands.command import Command
from tidemark.jobs.cli.exit_codes import (
    DONE,
    FAILED,
    INTERRUPTED,
    RULE,
    control_c,
    job_end,
)
from tidemark.jobs.cli.options import parts, shared
from tidemark.jobs.cli.process import arguments

ABOUT = """\
Quantiles over all loaded data and over everything that has arrived since the last load. Each answer has
certified bounds. History is stored in Delta Lake; the live side is summarised in sketches.
"""

ENDING = f"""\
Name the warehouse with -w or with the environment variable {shared.VARIABLE}. With --json a command
prints one line of JSON: times in ISO 8601 with their zone, decimals as text, NaN and infinities as "NaN",
"Infinity" and "-Infinity".

{RULE}"""


# Words that argparse takes for values although they begin with a dash: it knows -5 and -0.5 by itself.
_NUMBER = re.compile(r"-(\.?[0-9]|inf(inity)?$)", re.IGNORECASE)


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    top = _Parser(
        prog="tidemark",
        description=ABOUT,
        epilog=ENDING,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    shared.WAREHOUSE.add(top)
    top.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    levels = {"": top.add_subparsers(title="commands", metavar="COMMAND", required=True)}
    for command in COMMANDS:
        *parents, word = command.name.split()
        page = levels[" ".join(parents)].add_parser(
            word,
            help=command.summary,
            description=command.text,
            epilog=_page_ending(command),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if command.options is None:
            levels[command.name] = page.add_subparsers(title="commands", metavar="COMMAND", required=True)
        else:
            page._negative_number_matcher = _NUMBER  # noqa: SLF001  argparse has no other way
            parts.add(page, command.options)
            page.set_defaults(run=command.run, needs_warehouse=command.needs_warehouse)
    return top


class _Parser(argparse.ArgumentParser):
    """Argparse's, and so are the parsers of the commands; its errors do not repeat a long argument."""

    def error(self, message: str) -> NoReturn:
        if len(message) > 400:  # few have: the warehouse's modules take most of a second
            from tidemark.warehouse.errors import without_long

            message = without_long(message)
        super().error(message)


class _Version(argparse.Action):
    """Prints the version. It is looked up only here, because the lookup is slower than parsing."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"{parser.prog} {version('tidemark')}")
        except PackageNotFoundError:  # run from the zip for clusters, or from a source tree
            print(f"{parser.prog}, not installed as a package: its version is not known")
        parser.exit()


def _page_ending(command: Command) -> str:
    examples = "".join(f"  {example}\n" for example in command.examples)
    return f"examples:\n{examples}\n{ENDING}"


def _parsed(argv: list[str] | None) -> argparse.Namespace:
    try:
        return parser().parse_args(arguments(argv))
    except SystemExit:  # after a help or a version, which may not have been written yet
        sys.stdout.flush()
        raise


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit code, see jobs/cli/exit_codes.py."""
    try:
        given = _parsed(argv)
        module, name = given.run.split(":")
        run = getattr(import_module(module), name)
        with job_end(given, needs_warehouse=given.needs_warehouse) as end:
            end.code = run(given)
        sys.stdout.flush()  # a closed pipe raises here, inside the try
        return end.code
    except KeyboardInterrupt:  # during the import of the command's module; later `job_end` handles it
        return INTERRUPTED
    except ImportError:
        if control_c.is_set():  # some modules turn any error that stops their import into an ImportError
            return INTERRUPTED
        raise
    except OSError as error:  # of the output
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())  # nothing is left to be written at the end
        if isinstance(error, BrokenPipeError):  # the reader of the pipe has closed it
            return DONE
        try:
            print(f"error: what was printed could not be written: {error}", file=sys.stderr)
        except OSError:
            os.dup2(null, sys.stderr.fileno())
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
