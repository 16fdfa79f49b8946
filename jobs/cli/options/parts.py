"""The parts of a command's options, and how they are added to its parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

FILE, FOLDER = "FILE", "PATH"  # metavars that shells complete with file names


class Part(Protocol):
    """A part of the options of a command."""

    def add(self, args: Any) -> None:
        """Adds it to a parser, or to a group of one."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One option or argument, as argparse takes it."""

    names: tuple[str, ...]
    how: Mapping[str, Any]

    def add(self, args: Any) -> None:
        """See `Part.add`. Paths may begin with ~, also where shells do not see it, as in --to=~/x."""
        is_path = self.how.get("metavar") in {FILE, FOLDER}
        args.add_argument(*self.names, **({"type": _in_home} if is_path else {}), **self.how)


def _in_home(path: str) -> str:
    from tidemark.warehouse.os_errors import in_home  # when a path is given: commands start without it

    return in_home(path)


def option(*names: str, **how: Any) -> Argument:
    """An option with these names, or an argument with this name."""
    return Argument(names, how)


def files(name: str, text: str) -> Argument:
    """An option with this name that takes paths, and may be repeated."""
    return option(name, metavar=FOLDER, nargs="+", action="extend", help=text)


class OneColumnList(argparse.Action):
    """Takes one list of columns, with commas; refuses another one, which would replace it."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        """An error of the command if other columns came before."""
        before = getattr(namespace, self.dest)
        if before not in {self.default, values}:
            parser.error(
                f"{option_string} was given twice, with {before} and with {values}. "
                f"Give several columns at once: {option_string} {before},{values}."
            )
        setattr(namespace, self.dest, values)


@dataclass(frozen=True, slots=True)
class OneOf:
    """Options of which one at most is given; one at least if `required`."""

    parts: Iterable[Argument]
    required: bool = False

    def add(self, args: Any) -> None:
        """See `Part.add`."""
        group = args.add_mutually_exclusive_group(required=self.required)
        for part in self.parts:
            part.add(group)


@dataclass(frozen=True, slots=True)
class Titled:
    """Options with a title of their own in the help."""

    title: str
    parts: Iterable[Argument]

    def add(self, args: Any) -> None:
        """See `Part.add`."""
        group = args.add_argument_group(self.title)
        for part in self.parts:
            part.add(group)


@dataclass(frozen=True, slots=True)
class AfterInterrupt:
    """The text that the command prints after Ctrl-C."""

    text: str

    def add(self, args: Any) -> None:
        """See `Part.add`."""
        args.set_defaults(after_interrupt=self.text)


def add(args: argparse.ArgumentParser, parts: Iterable[Part]) -> None:
    """Adds the options of a command to its parser."""
    args.set_defaults(parser=args)
    for part in parts:
        part.add(args)
