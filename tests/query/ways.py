"""Questions that have several ways to their answers, and these answers by each way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest

from tests.query.groupworld import HOUR, PHIS
from tidemark import query
from tidemark.query import EmptyWindow, InputError
from tidemark.query.asking import declared_groups
from tidemark.query.keys import distinct_keys
from tidemark.query.quantiles import many_windows
from tidemark.query.reading.costs import Costs

Ask = Callable[..., Any]
Patch = pytest.MonkeyPatch
WAYS = ("index", "runs", "scan")
OF_MEASURES: list[Ask] = [
    lambda wh, **asked: wh.quantile(PHIS, mode="exact", **asked),
    lambda wh, **asked: wh.rank([-2, 0, 1], every=3 * HOUR, mode="exact", **asked),
    lambda wh, **asked: wh.quantile(PHIS, by="origin", **asked),
    lambda wh, **asked: wh.quantile([0.5], by=["number", "origin"], every=6 * HOUR, top=2, **asked),
    lambda wh, **asked: wh.cdf([0], by="origin", order="-value", least_rows=2, **asked),
    lambda wh, **asked: wh.quantile([0.5], by="number", where={"origin": ["a", "b"]}, **asked),
    lambda wh, **asked: wh.summary(every=3 * HOUR, **asked),
    lambda wh, **asked: wh.summary(by="origin", **asked),
    lambda wh, **asked: wh.summary(by=["number", "origin"], every=6 * HOUR, top=3, **asked),
    lambda wh, **asked: wh.summary(by="number", where={"origin": ["a", "b"]}, least_rows=2, **asked),
]
OF_KEYS: list[Ask] = [
    lambda wh, **asked: wh.top(3, key="origin", mode="exact", **asked),
    lambda wh, **asked: wh.heavy_hitters(0.2, key=["number", "origin"], mode="exact", **asked),
    lambda wh, **asked: wh.distinct(key="origin", mode="exact", **asked),
    lambda wh, **asked: wh.persistent(0.2, key="origin", slot=3 * HOUR, mode="exact", **asked),
]
QUESTIONS = [*OF_MEASURES, *OF_KEYS]


@contextmanager
def forced(way: str) -> Iterator[None]:
    """All questions that have this way take it."""

    def corrected(_: Any, __: str, one: str, ___: float) -> float:
        return -1.0 if one == way else 1e15

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Costs, "corrected", corrected)
        if way == "runs":
            patch.setattr(many_windows, "FEWEST_CELLS", 0)
            patch.setattr(declared_groups, "FEWEST_CELLS", 0)
        if way == "scan":  # samples may tell an exact number
            patch.setattr(distinct_keys, "estimate_distinct", _in_doubt)
        yield


def _in_doubt(*_: Any) -> Any:
    return query.KeyNumber(0, 0, 1, 0, 1)


def told(wh: query.Warehouse, question: Ask, way: str | None, **asked: Any) -> Any:
    """What the answers say, without how they were found; or the refusal. None: by any way."""
    with forced(way) if way else nullcontext():
        try:
            answers = question(wh, **asked)
        except (EmptyWindow, InputError) as refusal:
            return type(refusal), str(refusal)
    found = list(answers) if hasattr(answers, "__len__") else [answers]
    apart = {"mode", "rows_scanned", "blocks_read", "eps", "as_of", "certain", "rank_lo", "rank_hi"}
    return [{name: fact for name, fact in one.document.items() if name not in apart} for one in found]


def check_ways(wh: query.Warehouse, question: Ask, **asked: Any) -> None:
    index, runs, scan = (told(wh, question, way, **asked) for way in WAYS)
    assert str(runs) == str(index)
    assert str(scan) == str(index)
