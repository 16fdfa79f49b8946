"""Options that were edited in the table's properties are checked as those that a caller gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from tests.compatibility.kept import unpacked
from tests.warehouse.disk import edit_properties, files_of
from tidemark import query, warehouse
from tidemark.warehouse import InputError, NotAWarehouse
from tidemark.warehouse.settings import option_kinds, properties
from tidemark.warehouse.settings.given_options import parse_options
from tidemark.warehouse.settings.options import Options

SCHEMA = t.StructType([
    t.StructField("t", t.TimestampType()),
    t.StructField("day", t.DateType()),
    t.StructField("k", t.StringType()),
    t.StructField("x", t.DoubleType()),
    t.StructField("a", t.ArrayType(t.IntegerType())),
])  # fmt: skip


@pytest.fixture
def made(tmp_path: Path) -> Path:
    uri = tmp_path / "w"
    warehouse.create(None, uri, ["x"], key="k", time="t", tick="1 day", eps=0.1, schema=SCHEMA)
    return uri


EDITED: dict[str, list[str | None]] = {
    "eps": ["5", "0", "-0.1", "0.5", "NaN", "Infinity", "1e400", "-1e400", "true", '"0.1"', "[0.1]", "null"],
    "key_eps": ["0", "0.5", "1e400", "false", '"x"', "{}"],
    "key_delta": ["0", "-1", "NaN", "null"],
    "kappa": ["0", "1", "-3", "2.5", "10.0", "true", '"10"', "1e400", "NaN", "null", "", "10 10", "[10]"],
    "grace_us": ["-1", "1.5", "true", '"7 days"', "1" + "0" * 30, "null", "NaN", None, "9" * 5000],
    "retention_us": ["-1", "1.5", "true", '"7 days"', "null", "NaN"],
    "tick_us": ["0", "-5", "1.5", '"1 day"', "true", "null", "1" + "0" * 30, "Infinity", None],
    "measures": [
        *("[]", '"x"', '["x", "x"]', '["x", "X"]', "[1]", '[""]', '{"x": 1}', "null", '["x"', "[null]"),
        *('["../../x"]', '["gone"]', '["a"]', '["k"]', '["_tick"]', '["x\\u0000"]', '["\\ud800"]'),
        *('["x y"]', "[" * 100_000, None),
    ],
    "keys": [
        *('[["gone"]]', '[["a"]]', "5", '""', '["k"]', '[["_source"]]', "true", None, '{"k": 1, "k": 2}'),
        *("[[]]", '[["k"], ["k"]]', '[["k", "k"]]', "[[1]]", "null"),
    ],
    "time": ['"gone"', '"k"', '"x"', "1", '""', "null", None],
}


@pytest.mark.parametrize("name", EDITED)
def test_an_edited_option_is_told_with_its_property_its_value_and_the_remedy(made: Path, name: str) -> None:
    written = warehouse.open_snapshot(made).options.properties()
    for value in EDITED[name]:
        edit_properties(made, {**written, f"tidemark.{name}": value})
        before = files_of(made)
        for use in (query.open, warehouse.verify, lambda uri: warehouse.maintain(None, uri)):
            with pytest.raises(NotAWarehouse) as found:
                use(made)
            said = str(found.value)
            # A time without a tick is told as a tick without a time.
            assert f"tidemark.{name}" in said or (name, value) == ("time", "null"), said
            assert "created with" in said
            assert value is None or repr(value)[1:40] in said or name == "time"
            assert len(said) < 1000
            assert "\n" not in said
        assert files_of(made) == before


def test_a_property_that_is_as_it_was_opens(made: Path) -> None:
    options = warehouse.open_snapshot(made).options
    edit_properties(made, dict(options.properties()))
    assert warehouse.open_snapshot(made).options == options


def test_the_kept_warehouses_open_with_the_options_that_they_have(tmp_path: Path) -> None:
    options = warehouse.open_snapshot(unpacked(tmp_path, "timed")).options
    assert (options.measure_names, options.eps, options.kappa) == (("x", "n", "d"), 0.02, 2)
    assert options.key_names == (("k",),)


names = st.text(st.characters(codec="utf-8", exclude_characters=" ,;{}()\n\t=\x00"), min_size=1, max_size=20)
shares = st.floats(1e-320, 0.5, exclude_max=True)


@given(
    measures=st.lists(names, min_size=1, max_size=4, unique_by=str.lower),
    key=st.none() | names,
    eps=shares,
    kappa=st.integers(2, 2**63 - 1),
    grace=st.integers(0, 2**53),
    tick=st.integers(1, 2**53),
)
def test_whatever_a_caller_may_give_comes_back_from_the_properties(
    measures: list[str], key: str | None, eps: float, kappa: int, grace: int, tick: int
) -> None:
    """One check for both: what creation takes, opening takes."""
    parsed = {"measures": measures, "key": key, "time": "at", "eps": eps, "kappa": kappa}
    try:
        parse_options(**parsed, tick=f"{tick} us", grace=f"{grace} us")
    except InputError as error:
        assert "tidemark's own" in str(error)  # noqa: PT017  a name such as _Tick
        return
    keys = ((key,),) if key else ()
    options = Options(tuple(measures), "at", tick, eps, kappa, grace, own_keys=keys)
    assert Options.from_properties("w", options.properties(), {}) == options


NAMES: list[tuple[Any, ...]] = [
    ("", "got"),
    ("x" * 256, "256 bytes", "shorter"),
    ("é" * 43, "258 bytes", "shorter"),
    ("_delta_log", "Delta's own"),
    ("_tick", "tidemark's own"),
    ("a\nb", "line break", "Rename"),
    ("a\0b", "NUL", "Rename"),
    ("a\ud800", "Rename"),
    ("a b", "a space", "Rename"),
]


@pytest.mark.parametrize(
    ("name", "words"), [(name, words) for name, *words in NAMES], ids=lambda v: ascii(v)[:20]
)
@pytest.mark.parametrize("with_schema", [True, False])
def test_a_measure_that_can_have_no_folder_is_refused_before_anything_is_made(
    tmp_path: Path, name: str, words: list[str], with_schema: bool
) -> None:
    schema = None
    if with_schema and name.isprintable():
        schema = t.StructType([t.StructField(name, t.DoubleType())])
    with pytest.raises(InputError) as found:
        warehouse.create(None, tmp_path / "w", [name], schema=schema)
    assert all(word in str(found.value) for word in words), str(found.value)
    assert not (tmp_path / "w").exists()


def test_names_that_differ_by_case_alone_are_one_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"twice.*differ only in case are equal"):
        warehouse.create(None, tmp_path / "w", ["x", "X"])
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize(
    "name", [".", "..", "../../x", "a/b", "~", "con", "x" * 255, "é" * 42, "-", "_x", "%2e%2e"]
)
def test_other_names_are_folders_of_their_own_below_the_warehouse(tmp_path: Path, name: str) -> None:
    uri = tmp_path / "w"
    schema = t.StructType([t.StructField(name, t.DoubleType())])
    warehouse.create(None, uri, [name], key=name, schema=schema)
    assert warehouse.verify(uri).ok
    assert [path.name for path in tmp_path.iterdir()] == ["w"]
    (made,) = (uri / "runs").iterdir()
    assert made.resolve().parent == (uri / "runs").resolve()


def test_a_key_that_can_have_no_folder_is_refused(tmp_path: Path) -> None:
    schema = t.StructType([t.StructField(name, t.DoubleType()) for name in ("x", "_delta_log", "k" * 300)])
    for key, words in (
        ("_delta_log", "Delta's own"),
        ("k" * 300, "300 bytes"),
        (["x", "k" * 300], "302 bytes"),
    ):
        with pytest.raises(InputError, match=f"the key .*{words}"):
            warehouse.create(None, tmp_path / "w", ["x"], key=key, schema=schema)
        assert not (tmp_path / "w").exists()
    warehouse.create(None, tmp_path / "w", ["x"], schema=schema)
    with pytest.raises(InputError, match="Delta's own"):
        warehouse.alter(None, tmp_path / "w", add_key="_delta_log")


BROKEN = {
    name: type("Unchecked", (type(kind),), {"check": lambda *_: None})()
    for name, kind in option_kinds.KINDS.items()
}


def test_options_that_are_taken_unchecked_are_caught(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(properties, "KINDS", BROKEN)
    with pytest.raises(pytest.fail.Exception):
        test_an_edited_option_is_told_with_its_property_its_value_and_the_remedy(made, "eps")
