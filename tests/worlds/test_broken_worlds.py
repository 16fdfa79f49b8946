"""Each mend that random worlds asked for, taken out again: a world finds it.

A variant is a function of the package with a piece of its text replaced, as the mistake would have it.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from tests.worlds.test_random_worlds import live_through
from tidemark.query.asking import ask as asking
from tidemark.query.keys import slots
from tidemark.query.sql import shown_types
from tidemark.warehouse.columns import scalars
from tidemark.warehouse.ingest import same_rows
from tidemark.warehouse.ledger import batch_summaries

# The function, the text, the mistake, and the first world that finds it.
VARIANTS: dict[str, tuple[Callable[..., Any], str, str, int]] = {
    "rows without a key have codes": (
        batch_summaries._concatenate,
        "place[_codes(part)[~part.null]]",
        "place[_codes(part)][~part.null]",
        2,
    ),
    "SQL shows points in the type of the measure": (
        shown_types.point_type,
        "return both.sql if both is not None and _holds(both, asked, is_common=is_common) else asked.sql",
        "return own",
        3,
    ),
    "a refused question is not understood anew": (
        asking.ask,
        "session.newest_options(since=began)",
        "session.options",
        12,
    ),
    "a batch that comes again is taken for the same": (
        same_rows.difference,
        "if whole == stored or",
        "if whole.rows >= stored.rows or",
        0,
    ),
    "a tick that the window cuts is a slot beyond its open side": (
        slots.slots_of,
        "number = (first - origin) // width",
        (
            "cut = [first, end, *(tick for one in window.partial_ticks for tick in (one.tick, one.tick + 1))]"
            "; first, end = min(cut), max(cut); number = (first - origin) // width"
        ),
        7,
    ),
    "scalars of numpy stay as they are": (scalars.plain, "return value.item()", "return value", 0),
}


def broken(function: Callable[..., Any], text: str, mistake: str) -> CodeType:
    """The code of the function with `text` replaced."""
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(text) == 1, "the function no longer has the text that the variant replaces"
    flags = compile("from __future__ import annotations", "", "exec").co_flags
    scope: dict[str, Any] = {}
    exec(compile(source.replace(text, mistake), function.__code__.co_filename, "exec", flags), scope)  # noqa: S102
    code = scope[function.__name__].__code__
    assert isinstance(code, CodeType)
    return code


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_world_finds_the_mistake(variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    function, text, mistake, seed = VARIANTS[variant]
    monkeypatch.setattr(function, "__code__", broken(function, text, mistake))
    with pytest.raises((Exception, pytest.fail.Exception)):
        live_through(tmp_path, seed)
