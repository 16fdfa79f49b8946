"""An error does not repeat a long argument, and keeps what it says of it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidemark import query, warehouse
from tidemark.warehouse import TidemarkError, errors

LONG = "x" * 100_000
ROWS = pa.table({"m": [1.0, 2.0], "k": ["a", "b"], "n": [1, 2]})

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "a measure": lambda _, wh: wh.quantile(0.5, measure=LONG),
    "a share": lambda _, wh: wh.quantile(LONG),
    "a number of many digits": lambda _, wh: wh.quantile(int("9" * 4_000)),
    "a mode": lambda _, wh: wh.quantile(0.5, mode=LONG),
    "a window": lambda _, wh: wh.quantile(0.5, last=LONG),
    "a column of groups": lambda _, wh: wh.quantile(0.5, by=LONG),
    "a condition": lambda _, wh: wh.quantile(0.5, where=LONG),
    "a value": lambda _, wh: wh.rank(LONG),
    "an order": lambda _, wh: wh.quantile(0.5, by="n", order=LONG),
    "a key": lambda _, wh: wh.frequency("a", key=LONG),
    "an input": lambda uri, _: warehouse.load(None, uri, LONG, "b"),
    "inputs": lambda uri, _: warehouse.load(None, uri, [LONG], "b"),
    "rows to remove": lambda uri, _: warehouse.delete(None, uri, where=LONG),
    "a batch": lambda uri, _: warehouse.unload(None, uri, LONG),
    "columns to compare": lambda uri, _: warehouse.correct(None, uri, ROWS, batch="c", on=LONG),
    "a measure to drop": lambda uri, _: warehouse.alter(None, uri, drop_measure=LONG),
    "a key to drop": lambda uri, _: warehouse.alter(None, uri, drop_key=LONG),
    "a column to widen": lambda uri, _: warehouse.alter(None, uri, widen={LONG: "double"}),
    "a type to widen to": lambda uri, _: warehouse.alter(None, uri, widen={"n": LONG}),
    "a version": lambda uri, _: query.open(uri, at=LONG),
    "a path": lambda *_: query.open(LONG),
    "a statement": lambda _, wh: wh.sql(LONG),
    "a time column": lambda uri, _: warehouse.create(None, uri / "new", ["m"], time=LONG, schema=ROWS.schema),
}


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("long") / "w"
    warehouse.create(None, path, ["m"], key="k", eps=0.1, schema=ROWS.schema)
    warehouse.load(None, path, ROWS, "a")
    return path


def told(uri: Path, call: str) -> str:
    with pytest.raises(TidemarkError) as found:
        CALLS[call](uri, query.open(uri))
    return str(found.value)


@pytest.mark.parametrize("call", CALLS)
def test_an_error_does_not_repeat_a_long_argument(uri: Path, call: str) -> None:
    assert len(told(uri, call)) <= 2_000


def test_errors_that_repeat_it_are_caught(uri: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "without_long", str)
    assert sum(len(told(uri, call)) > 90_000 for call in CALLS) >= 8


def test_what_is_wrong_with_it_stays(uri: Path) -> None:
    text = told(uri, "a share")
    assert text.startswith("not a quantile: got phi = 'xxx")
    assert text.endswith("xxx'; expected a number in [0, 1], such as 0.99.")


def words(*sizes: int) -> str:
    return " ".join("".join(chr(ord("a") + place % 26) for place in range(size)) for size in sizes)


@pytest.mark.parametrize("text", [words(0), words(1), words(400), words(*[400] * 4, 395), "x y " * 500])
def test_what_is_short_stays(text: str) -> None:
    assert len(text) <= 2_000
    assert str(TidemarkError(text)) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (words(401), 303),
        (words(9, 100_000, 9), 323),
        (words(*[401] * 6), 6 * 304 - 1),
        (words(*[400] * 5), 1_999),
        ("x y " * 30_000, 1_999),
    ],
)
def test_of_what_is_long_the_start_and_the_end_stay(text: str, size: int) -> None:
    shown = str(TidemarkError(text))
    assert len(shown) == size
    assert text.startswith(shown[: shown.index("...")])
    assert text.endswith(shown[shown.rindex("...") + 3 :])
    assert str(pickle.loads(pickle.dumps(TidemarkError(shown)))) == shown  # from a task to its driver


def test_what_is_no_text_stays() -> None:
    assert TidemarkError(7, "a").args == (7, "a")
