"""The page of the command line, made from the table and the parsers that the command itself uses.

Where the page `command_line` says `<!-- commands -->`, each command gets a section.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tidemark.jobs.cli.commands import COMMANDS
from tidemark.jobs.cli.commands.command import Command
from tidemark.jobs.cli.options import shared
from tidemark.jobs.cli.options.parts import add

from .made_pages import as_cell, make_part

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    return make_part(app, "command_line", "<!-- commands -->", commands)


def commands() -> str:
    """Every command as a section of Markdown, in the order of its table."""
    return "\n".join(_section(one) for one in COMMANDS)


def _section(command: Command) -> str:
    examples = "\n".join(command.examples)
    parts = [f"## {command.name}", command.text, f"```shell\n{examples}\n```"]
    if command.options is not None:
        parser = argparse.ArgumentParser(add_help=False)
        add(parser, command.options)
        parts += [_table(parser)]
    return "\n\n".join(parts) + "\n"


def _table(parser: argparse.ArgumentParser) -> str:
    rows = [f"| {_named(one)} | {_told(one)} |" for one in parser._actions]  # noqa: SLF001  argparse lists them nowhere else
    return "\n".join(["| argument | meaning |", "|---|---|", *rows])


def _named(action: argparse.Action) -> str:
    """The option with what follows it, or the argument's name."""
    taken = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    if action.choices and not action.metavar:
        taken = "{" + ",".join(map(str, action.choices)) + "}"
    words = " ".join(taken) if isinstance(taken, tuple) else str(taken)
    if action.nargs in ("+", "*"):
        words += " ..."
    shown = words if not action.option_strings else ", ".join(action.option_strings)
    if action.option_strings and action.nargs != 0:
        shown += f" {words}"
    return f"`{shown}`".replace("|", "\\|")


def _told(action: argparse.Action) -> str:
    needed = " *(needed)*" if action.option_strings and action.required else ""
    told = as_cell(action.help or "")
    return told.replace(shared.VARIABLE, f"`{shared.VARIABLE}`") + needed
