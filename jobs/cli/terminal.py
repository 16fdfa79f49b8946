"""Output to the terminal by rich, where names, paths and values are data.

rich takes `[red]` and `:smile:` in a text for its own markup. All its consoles are made here, without that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def console(*, stderr: bool = False) -> Console:
    """A console that prints each text as it is. rich is imported here: most answers are printed without."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)
