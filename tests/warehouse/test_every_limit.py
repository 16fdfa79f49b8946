"""Each limit of a number or a name is checked at the door: InputError, or a value that works to the end."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.stream.played import append_module
from tests.warehouse.disk import tables_of
from tidemark import query, stream, warehouse
from tidemark.warehouse import InputError, Tuning, sizes
from tidemark.warehouse.errors import name_text, whole_number
from tidemark.warehouse.memory_cache import parse_bytes

ROWS = pa.table({"x": [1.0, 2.0], "k": ["a", "b"]})
NUMBERS: list[Any] = [
    *(sign * n for sign in (1, -1) for n in (0, 1, 2**31, 2**53, 2**63 - 2, 2**63 - 1, 2**63, 10**30)),
    *(10**400, True, 1.0, 1.5, math.nan, math.inf, "1", "", None, b"1", Decimal(2), [1], {}, 1j),
    *(np.int64(3), np.uint64(2**63), np.float64(1), np.bool_(True)),
]  # fmt: skip
NAMES: list[Any] = ["", " ", "\ud800", "a\udcff", None, 1, b"s", True, ["s"]]
OPTIONS = ("eps", "kappa", "grace", "key_eps", "key_delta", "tick", "key", "keys", "groups", "time")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without a time column: ticks, slots and windows are counted in steps."""
    uri: Path = tmp_path_factory.mktemp("limits") / "w"
    warehouse.create(None, uri, ["x"], key="k", groups=["k"], schema=ROWS.schema)
    warehouse.load(None, uri, ROWS, "b")
    stream.append(None, uri, ROWS, source="s", batch=0)
    return uri


def refused(ask: Callable[[Any], Any], given: list[Any]) -> list[Any]:
    """Those of the values that raise InputError; any other error is one of the test."""
    found = []
    for value in given:
        try:
            ask(value)
        except InputError:
            found.append(value)
    return found


def questions(uri: Path) -> dict[str, Callable[[Any], Any]]:
    """Every parameter that takes a number, by its name."""
    wh = query.open(uri)
    return {
        "phi": wh.quantile,
        "alpha": wh.persistent,
        "share": wh.heavy_hitters,
        "bins": wh.histogram,
        "k": wh.top,
        "most": lambda value: wh.persistent(0.5, most=value),
        "slot": lambda value: wh.persistent(0.5, slot=value),
        "every": lambda value: wh.quantile(0.5, every=value),
        "every of keys": lambda value: wh.distinct(every=value),
        "last": lambda value: wh.quantile(0.5, last=value),
        "from": lambda value: wh.quantile(0.5, between=(value, None)),
        "to": lambda value: wh.quantile(0.5, between=(None, value)),
        "to of keys": lambda value: wh.top(1, between=(None, value)),
        "top": lambda value: wh.quantile(0.5, by="k", top=value),
        "limit": lambda value: wh.quantile(0.5, by="k", limit=value),
        "point": wh.rank,
        "other": wh.inner_product,
        "memory": lambda value: query.open(uri, memory=value),
        "cache_size": lambda value: query.open(uri, cache_size=value),
        "cache": lambda value: query.open(uri, cache=None if isinstance(value, (str, Path)) else value),
        "max_staleness": lambda value: query.open(uri, max_staleness=value),
        "top of a figure": lambda value: wh.plot.persistence(top=value),
    }


@pytest.mark.slow
def test_every_number_of_a_question_is_answered_or_refused(filled: Path) -> None:
    before = tables_of(filled)
    for name, ask in questions(filled).items():
        assert refused(ask, NUMBERS), name
    assert tables_of(filled) == before


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_is_stored_and_works_or_is_refused(option: str, tmp_path: Path) -> None:
    def make(value: Any) -> None:
        uri = tmp_path / str(len(list(tmp_path.iterdir())))
        given = {"key": "k", option: value}
        warehouse.create(None, uri, ["x"], schema=ROWS.schema, **given)
        stream.append(None, uri, ROWS, source="s", batch=0)
        assert query.open(uri).quantile(1).value == 2.0

    assert len(refused(make, NUMBERS)) > len(NUMBERS) / 2


@pytest.mark.parametrize(("eps", "taken"), [(5e-324, False), (1e-320, True), (1e-300, True), (0.499, True)])
def test_an_error_of_which_no_part_is_a_number_is_refused_at_creation(
    eps: float, taken: bool, tmp_path: Path
) -> None:
    """Summaries have a part of it. Before, the warehouse was made and no row could enter."""
    if not taken:
        with pytest.raises(InputError, match="eps must lie in"):
            warehouse.create(None, tmp_path, ["x"], eps=eps)
        return
    warehouse.create(None, tmp_path, ["x"], eps=eps, schema=ROWS.schema)
    assert stream.append(None, tmp_path, ROWS, source="s", batch=0)
    assert warehouse.load(None, tmp_path).rows == 2
    assert query.open(tmp_path).quantile(1).value == 2.0


def test_every_size_is_refused_or_taken() -> None:
    for field in fields(Tuning):
        if field.name != "file_rows":
            bad = refused(lambda value, name=field.name: Tuning(**{name: value}), NUMBERS)  # type: ignore[misc]
            assert 2**53 in bad
            assert 0 in bad or field.name == "kept_rows"


def check_sizes_of_numpy() -> None:
    given: Any = {"batch_rows": np.int64(5), "fan": np.uint8(3), "file_rows": (np.int32(4), np.array(8))}
    tuning = Tuning(**given)
    assert tuning == Tuning(batch_rows=5, fan=3, file_rows=(4, 8))
    assert {type(value) for value in (tuning.batch_rows, tuning.fan, *tuning.file_rows)} == {int}
    bad: Any
    for bad in (np.float64(5), np.True_, np.int64(0), np.array([5])):
        with pytest.raises(InputError, match="batch_rows"):
            Tuning(batch_rows=bad)


def test_sizes_take_whole_numbers_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    check_sizes_of_numpy()
    monkeypatch.setattr(sizes, "_whole", lambda name, value: whole_number(name, value, 1))
    with pytest.raises((AssertionError, InputError)):
        check_sizes_of_numpy()


def test_the_greatest_number_of_a_batch_is_one_that_holds(tmp_path: Path) -> None:
    """Through the ledger, a load, maintenance and verify; the next ones are refused and change nothing."""
    warehouse.create(None, tmp_path, ["x"], schema=ROWS.schema)
    for number in (0, np.int64(2**62), 2**63 - 2):
        assert stream.append(None, tmp_path, ROWS, source="s", batch=number)  # type: ignore[arg-type]
        assert not stream.append(None, tmp_path, ROWS, source="s", batch=int(number))
        assert warehouse.verify(tmp_path).ok
    before = tables_of(tmp_path)
    too_far = [2**63 - 1, 2**63, 10**30, 10**400, -1, np.uint64(2**63), True, 1.0, "1", None]

    def append(number: Any) -> Any:
        return stream.append(None, tmp_path, ROWS, source="other", batch=number)

    expected = r"batch must be a whole number from 0 to 2\*\*63 - 2, got 9223372036854775807"
    with pytest.raises(InputError, match=expected):
        append(2**63 - 1)
    assert refused(append, too_far) == too_far
    assert tables_of(tmp_path) == before
    warehouse.load(None, tmp_path)
    warehouse.maintain(None, tmp_path, grace="0 s")
    assert query.open(tmp_path).quantile(1).N == 6
    assert warehouse.verify(tmp_path).ok


def test_every_name_can_be_stored_or_is_refused(tmp_path: Path) -> None:
    warehouse.create(None, tmp_path / "w", ["x"], schema=ROWS.schema)
    before = tables_of(tmp_path / "w")
    doors: list[Callable[[Any], Any]] = [
        lambda name: stream.append(None, tmp_path / "w", ROWS, source=name, batch=0),
        lambda name: warehouse.load(None, tmp_path / "w", ROWS, name),
    ]
    for door in doors:
        assert refused(door, NAMES) == NAMES
    for path in ("\ud800", "a\0b", "~\ud800", "~a\0b"):
        with pytest.raises(InputError):
            warehouse.load(None, tmp_path / "w", path, "a")
    for place in ("\ud800", "a\0b", "~\ud800", "~a\0b", None, 1, True):
        with pytest.raises(InputError):
            query.open(place)  # type: ignore[arg-type]
        with pytest.raises(InputError):
            warehouse.create(None, place, ["x"])  # type: ignore[arg-type]
    for place in ("\ud800", "a\0b", 1):
        with pytest.raises(InputError, match="the cache folder"):
            query.open(tmp_path / "w", cache=place)  # type: ignore[arg-type]
    assert tables_of(tmp_path / "w") == before


@pytest.mark.parametrize("size", ["9" * 5000, "1." + "9" * 5000 + " GB"])
def test_a_size_of_too_many_digits_is_refused(size: str) -> None:
    with pytest.raises(InputError, match="not a size"):
        parse_bytes(size)
    assert parse_bytes(f"{'9' * 40}.5 kB") == 10**43 - 500


@pytest.mark.parametrize(("least", "most", "expected"), [
    (0, 2**63 - 2, "from 0 to 2**63 - 2"), (1, 2**40, "from 1 to 2**40"), (1, 1000, "from 1 to 1,000"),
    (2, 2**63 - 1, "of at least 2"),
])  # fmt: skip
def test_the_limits_are_in_the_error(least: int, most: int, expected: str) -> None:
    for value in (least, most):
        assert whole_number("n", value, least, most) == value
    for wrong in (least - 1, most + 1, True, 10**5000, "1"):
        with pytest.raises(InputError) as told:
            whole_number("n", wrong, least, most, hint="Count again.")
        assert str(told.value).startswith(f"n must be a whole number {expected}")
        assert str(told.value).endswith(". Count again.")
    assert name_text("n", " é ") == " é "


def test_a_door_without_its_check_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: the number goes on to the tables."""
    monkeypatch.setattr(append_module, "whole_number", lambda _, value, *__, **___: value)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_the_greatest_number_of_a_batch_is_one_that_holds(tmp_path / "w")
