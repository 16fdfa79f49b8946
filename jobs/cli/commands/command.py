"""A command of `tidemark`, as the parser, the help pages and the documentation have it."""

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.jobs.cli.options.parts import Part


@dataclass(frozen=True, slots=True)
class Command:
    """A command. `options` are its arguments; `run` is "module:function".

    A command without `options` and `run` only groups subcommands.
    """

    name: str
    summary: str
    text: str
    examples: tuple[str, ...]
    options: Sequence[Part] | None = None
    run: str = ""
    needs_warehouse: bool = True
