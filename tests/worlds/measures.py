"""Random questions about measures, each answer held against the plain list of rows."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

from tests.query.worlds import Oracle
from tests.worlds.rows import DRAWN, Row, comparable, disguised, plain, point
from tests.worlds.windows import Asked, between
from tests.worlds.world import EPS, World
from tidemark.warehouse.errors import EmptyWindow


def ask(world: World, chance: random.Random, wh: Any, history: list[Row], live: list[Row]) -> None:
    """A random question to a reader that sees these rows."""
    rows = history + live
    measure, window = chance.choice(world.measures), Asked.drawn(chance, world.columns, rows).widened
    options = {**window.options, "mode": chance.choice(("quick", "accurate", "exact"))}
    kept = [row for row in rows if window.holds(row)]
    if chance.random() < 0.3:
        options["where"], kept = _where(world, chance, kept)
    live_ids = set(map(id, live))
    groups: dict[Any, list[Row]] = {(): kept}
    by: tuple[str, ...] = ()
    if chance.random() < 0.3:
        by = chance.choice([*world.groups, ("a",), ("b", "c")])
        options["by"], groups = list(by), _by(kept, by)
    if not by and world.columns.time and chance.random() < 0.2:
        options["every"] = chance.choice(("1d", "3d"))
    truths = {
        group: (_oracle(found, measure), [row for row in found if id(row) in live_ids])
        for group, found in groups.items()
    }
    if not by and not truths[()][0].n:
        with pytest.raises(EmptyWindow):
            wh.quantile(0.5, measure, **options)
        return
    kind: Any = chance.choice((_quantile, _rank, _histogram))
    if kind is _histogram and not {"every", "by"} & set(options):
        _histogram(world, chance, wh, measure, options, kept)
    else:
        kind = _rank if kind is _rank else _quantile
        kind(world, chance, wh, measure, options, truths, kept)
    if len(kept) % 3 == 0:
        _summary(wh, measure, options, truths, kept)


def _where(world: World, chance: random.Random, rows: list[Row]) -> tuple[Any, list[Row]]:
    """A condition on one column, and the rows that meet it."""
    name = chance.choice("abc")
    values = [DRAWN[world.columns.types[name]](chance) for _ in range(chance.choice((1, 2)))]
    values += [row[name] for row in rows[:1] if row[name] is not None]
    wanted = {plain(value) for value in values}
    return {name: values}, [row for row in rows if row[name] is not None and plain(row[name]) in wanted]


def _by(rows: list[Row], by: Sequence[str]) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        values = tuple(row[name] for name in by)
        if None not in values:
            found[plain(values)].append(row)
    return found


def _oracle(rows: list[Row], measure: str) -> Oracle:
    return Oracle.of([comparable(row[measure]) for row in rows])


def _answers(answers: Any, options: dict[str, Any]) -> list[Any]:
    return list(answers) if "by" in options or "every" in options else [answers]


def _truth_of(answer: Any, measure: str, truths: Any, options: dict[str, Any], kept: list[Row]) -> Oracle:
    """The truth about the rows of one answer; and the numbers of rows that the answer says."""
    if "every" in options:
        return _oracle([row for row in kept if between(row, *answer.window)], measure)
    group = plain(tuple(answer.group[name] for name in options["by"])) if "by" in options else ()
    truth, live = truths[group]
    m = _oracle(live, measure).n
    assert (answer.N, answer.m, answer.nans) == (truth.n, m, truth.nans)
    assert isinstance(truth, Oracle)
    return truth


def _promise(answer: Any) -> Fraction:
    rows: int = {"quick": answer.N, "accurate": answer.m, "exact": 0}[answer.mode]
    return Fraction(str(EPS)) * rows


def _check_groups(answers: list[Any], truths: Any, options: dict[str, Any]) -> None:
    if "by" in options:
        found = [plain(tuple(answer.group[name] for name in options["by"])) for answer in answers]
        assert len(found) == len(set(found))
        assert set(truths) == set(found)


def _quantile(
    _: World, chance: random.Random, wh: Any, measure: str, options: Any, truths: Any, kept: list[Row]
) -> None:
    phi = chance.choice((0, 1, 0.5, chance.random()))
    answers = _answers(wh.quantile(disguised(chance, phi), measure, **options), options)
    _check_groups(answers, truths, options)
    for answer in answers:
        truth = _truth_of(answer, measure, truths, options, kept)
        if not truth.n:
            assert answer.value is None
            continue
        exact = truth.quantile(phi)
        if isinstance(exact, float) and math.isnan(exact):
            assert math.isnan(answer.value)
            continue
        value, r = comparable(answer.value), truth.rank(phi)
        error = max(0, r - truth.le(value), truth.lt(value) + 1 - r)
        assert error <= answer.error_bound <= _promise(answer)
        assert comparable(answer.low) <= exact <= comparable(answer.high)
        assert answer.rank_lo <= truth.le(value) <= answer.rank_hi
    if "every" in options:
        asked = [row for row in kept if row["t"] is not None and row[measure] is not None]
        assert sum(answer.N for answer in answers) == len(asked)


def _summary(wh: Any, measure: str, options: Any, truths: Any, kept: list[Row]) -> None:
    answers = _answers(wh.summary(measure, **options), options)
    _check_groups(answers, truths, options)
    for answer in answers:
        numbers = _truth_of(answer, measure, truths, options, kept).numbers
        finite = [one for one in numbers if not (isinstance(one, float) and math.isinf(one))]
        assert answer.count == len(finite)
        assert answer.negative_infinities + answer.positive_infinities == len(numbers) - len(finite)
        ends = (numbers[0], numbers[-1]) if numbers else (None, None)
        assert tuple(map(comparable, (answer.min, answer.max))) == ends
        if finite and not isinstance(finite[0], datetime):
            total = sum(map(Fraction, finite))
            assert answer.sum == (float(total) if isinstance(finite[0], float) else total)
            assert answer.mean == float(total / len(finite))


def _rank(
    world: World, chance: random.Random, wh: Any, measure: str, options: Any, truths: Any, kept: list[Row]
) -> None:
    x = point(chance, world.columns.types[measure])
    answers = _answers(wh.rank(disguised(chance, x), measure, **options), options)
    _check_groups(answers, truths, options)
    for answer in answers:
        truth = _truth_of(answer, measure, truths, options, kept)
        assert answer.rank_lo <= truth.le(comparable(x)) <= answer.rank_hi
        assert answer.error_bound <= _promise(answer)
    for answer in _answers(wh.cdf(disguised(chance, x), measure, **options), options):
        truth = _truth_of(answer, measure, truths, options, kept)
        assert not truth.n or answer.cdf_lo <= truth.le(comparable(x)) / truth.n <= answer.cdf_hi


def _histogram(
    world: World, chance: random.Random, wh: Any, measure: str, options: Any, kept: list[Row]
) -> None:
    edges = sorted({point(chance, world.columns.types[measure]) for _ in range(4)}, key=comparable)
    truth = _oracle(kept, measure)
    if len(edges) < 2 or not truth.numbers:
        return
    found = wh.histogram(edges, measure, **options)
    assert [edge for one in found for edge in (one.left, one.right)] == [
        edge for pair in pairwise(edges) for edge in pair
    ]
    for one in found:
        last = one is found[len(found) - 1]
        left, right = comparable(one.left), comparable(one.right)
        true = sum(left <= value < right or (last and value == right) for value in truth.numbers)
        assert one.lo <= true <= one.hi
        assert one.lo <= one.count <= one.hi
        assert options["mode"] != "exact" or one.lo == one.hi
