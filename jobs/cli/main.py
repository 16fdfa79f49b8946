"""The command `tidemark`: the warehouse's words on a command line.

    tidemark quantile 0.99 -w flights        (or: python -m tidemark.jobs.cli.main ...)

The commands are listed in jobs/cli/commands.py. What a command needs is imported when it runs: one that
answers starts no Java and loads no Spark.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from tidemark.jobs.cli import arguments
from tidemark.jobs.cli.commands import ABOUT, COMMANDS, ENDING, Command

if TYPE_CHECKING:
    from collections.abc import Callable


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    top = argparse.ArgumentParser(
        prog="tidemark",
        description=ABOUT,
        epilog=ENDING,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    arguments.warehouse(top)
    top.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    levels = {"": top.add_subparsers(title="commands", metavar="COMMAND", required=True)}
    for command in COMMANDS:
        *above, word = command.name.split()
        page = levels[" ".join(above)].add_parser(
            word,
            help=command.summary,
            description=command.text,
            epilog=_ending(command),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if command.options is None:
            levels[command.name] = page.add_subparsers(title="commands", metavar="COMMAND", required=True)
        else:
            command.options(page)
            page.set_defaults(run=command.run, needs_warehouse=command.needs_warehouse)
    return top


class _Version(argparse.Action):
    """Looks the version up when it is asked for: to find it takes longer than to parse a line."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"{parser.prog} {version('tidemark')}")
        except PackageNotFoundError:  # from the zip for clusters, or a tree that was not installed
            print(f"{parser.prog}, not installed as a package: its version is not known")
        parser.exit()


def _ending(command: Command) -> str:
    examples = "".join(f"  {one}\n" for one in command.examples)
    return f"examples:\n{examples}\n{ENDING}"


def main(argv: list[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    try:
        given = parser().parse_args(argv)
        module, name = given.run.split(":")
        run = getattr(import_module(module), name)
        code = _with_warehouse(run, given) if given.needs_warehouse else int(run(given))
        sys.stdout.flush()  # here, where a reader that has gone is told
        return code
    except KeyboardInterrupt:  # while modules were loaded; later jobs/cli/exit_codes.py hears of it
        return 130
    except BrokenPipeError:  # whoever read the answers has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _with_warehouse(run: Callable[[argparse.Namespace], int], given: argparse.Namespace) -> int:
    from tidemark.jobs.cli.exit_codes import ended

    return ended(run, given)


if __name__ == "__main__":
    sys.exit(main())
