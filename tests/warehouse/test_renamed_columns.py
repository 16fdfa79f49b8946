"""A warehouse whose columns were renamed answers as one that always had the names."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.query.tally import Tally
from tests.warehouse.disk import files_of
from tests.warehouse.renamed_world import (
    NEW,
    OLD,
    append,
    before,
    check_as,
    create,
    pair_in,
    rename,
    rows_of,
)
from tidemark import query, warehouse
from tidemark.jobs.cli.main import main
from tidemark.query.reading import block_reader
from tidemark.query.scans import index_places
from tidemark.query.scans.index_places import IndexRates
from tidemark.warehouse import DamagedWarehouse, InputError
from tidemark.warehouse.columns.column_names import ColumnNames
from tidemark.warehouse.companions import kinds
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.settings.options import read_options
from tidemark.warehouse.settings.renames import renamed


@pytest.fixture(scope="module", autouse=True)
def registered() -> Any:
    warehouse.register_companion(Tally())
    yield
    kinds._REGISTERED.pop("tally", None)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a warehouse before its columns are renamed, the same one after it, and its twin."""
    folder = tmp_path_factory.mktemp("made")
    pair_in(folder)
    before(folder / "old", OLD)
    return folder


def copies(made: Path, folder: Path, *names: str) -> tuple[Path, Path]:
    for name in names:
        shutil.copytree(made / name, folder / name)
    one, other = (folder / name for name in names)
    return one, other


@pytest.fixture
def pair(made: Path, tmp_path: Path) -> tuple[Path, Path]:
    """One whose columns were renamed, and its twin."""
    return copies(made, tmp_path, "renamed", "twin")


@pytest.fixture
def old_pair(made: Path, tmp_path: Path) -> tuple[Path, Path]:
    """One whose columns are not renamed yet, and its twin."""
    return copies(made, tmp_path, "old", "twin")


def test_no_file_but_a_log_is_written(old_pair: tuple[Path, Path]) -> None:
    uri, _ = old_pair
    files = {path for path in files_of(uri) if "_delta_log" not in str(path)}
    rename(uri)
    assert {path for path in files_of(uri) if "_delta_log" not in str(path)} == files


def test_readers_that_are_open_answer_by_the_new_names_at_once(old_pair: tuple[Path, Path]) -> None:
    uri, twin = old_pair
    wh = query.open(uri)
    assert sum(answer.N for answer in wh.quantile(0.5, by="k")) == wh.quantile(0.5, measure="v").N
    rename(uri)
    check_as(uri, twin, wh)
    with pytest.raises(InputError, match=r"no measure 'v'"):
        wh.quantile(0.5, measure="v")


def test_rows_that_left_and_that_runs_still_have_are_subtracted(old_pair: tuple[Path, Path]) -> None:
    uri, twin = old_pair
    for one, names in ((uri, OLD), (twin, NEW)):
        removed = warehouse.delete(None, one, where=f'"{names[-1]}" BETWEEN 1003 AND 1008')
        assert (removed.rows, removed.runs_rewritten) == (6, {})
    wh = query.open(uri)
    assert len(wh.quantile(0.5, by="g")) == 3
    rename(uri)
    for one in (uri, twin):
        assert warehouse.delete(None, one, where="value > 460").rows
        append(one, 1, rows_of(3))
    check_as(uri, twin, wh)
    for one in (uri, twin):
        warehouse.maintain(None, one)
    check_as(uri, twin)


def test_an_index_finds_rows_by_the_new_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_places, "RATES", IndexRates(row=1e9))  # so that it is always used
    uri, twin = tmp_path / "w", tmp_path / "twin"
    for one, names in ((uri, OLD), (twin, NEW)):
        create(one, names, index=names[-1])
        warehouse.load(None, one, rows_of(1, names), "one")
        append(one, 0, rows_of(2, names))
    wh, shared = query.open(uri), duckdb.connect()
    query.register_duckdb(shared, uri, "w")
    found = 'SELECT count(*), sum("order") FROM events WHERE "order" BETWEEN 1010 AND 1019 AND k > 0.1'
    old = found.replace("order", "o").replace("k", "x")
    assert wh.explain(old).parts[0].columns
    rename(uri)
    for one in (uri, twin):
        warehouse.alter(None, one, add_index="k")
        warehouse.alter(None, one, add_index="x")
        warehouse.alter(None, one, drop_index="x")
        append(one, 1, rows_of(3))
    with pytest.raises(InputError, match=r"no index 'o'"):
        warehouse.alter(None, uri, drop_index="o")
    expected = query.open(twin)
    for reader in (wh, query.open(uri)):
        for where in ('"order" BETWEEN 1010 AND 1030', 'k < 0.2 OR "order" = 1007', {"order": 1011}):
            assert reader.quantile(0.5, where=where) == expected.quantile(0.5, where=where)
        assert reader.sql(found).fetchall() == expected.sql(found).fetchall()
        assert str(reader.explain(found)) == str(expected.explain(found))
    assert shared.sql(old.replace("events", "w_events")).fetchall() == expected.sql(found).fetchall()
    check_as(uri, twin, wh)


def test_views_that_are_open_keep_the_names_until_they_are_made_again(old_pair: tuple[Path, Path]) -> None:
    (uri, _), shared = old_pair, duckdb.connect()
    query.register_duckdb(shared, uri, "w")
    asked = "SELECT v, k, g, t, x, o FROM w_events ORDER BY ALL"
    told = shared.sql(asked).fetchall()
    rename(uri)
    assert shared.sql(asked).fetchall() == told
    query.register_duckdb(shared, uri, "w")
    assert shared.sql('SELECT value, x, v, "when", k, "order" FROM w_events ORDER BY ALL').fetchall() == told


def test_feeds_expiry_purges_and_repairs_have_the_new_names(pair: tuple[Path, Path]) -> None:
    feed = rows_of(1).slice(20, 4)
    kinds = ["update_preimage", "update_postimage", "delete", "insert"]
    after = [feed.slice(0, 1), feed.slice(2, 1), feed.slice(3, 1), rows_of(7).slice(0, 1)]
    changed = pa.concat_tables(after).append_column("_change_type", pa.array(kinds))
    for uri in pair:
        assert warehouse.correct(None, uri, batch="feed", changes=changed).rows == 2
        day = ("2001-01-02", "2001-01-03")
        assert warehouse.delete(None, uri, where="value < 100", between=day).rows
        assert warehouse.expire(None, uri, before="2001-01-01 12:00").rows
        assert warehouse.delete(None, uri, where="x = 'b' AND \"order\" > 2000", purge=True, grace="0s").rows
        for path in uri.glob("runs/*/run=*/*.parquet"):
            path.unlink()
        assert warehouse.repair(None, uri).outcome == "repaired"
    wholes = []
    for uri in pair:
        wh = query.open(uri)
        wholes.append(wh.sql('SELECT value, x, v, "when", k, "order" FROM events ORDER BY ALL').fetchall())
        assert warehouse.verify(uri).ok
    assert wholes[0] == wholes[1]
    check_as(*pair)


def test_all_that_writes_goes_on_by_the_new_names(pair: tuple[Path, Path]) -> None:
    for uri in pair:
        append(uri, 1, rows_of(3))
        warehouse.load(None, uri)
        assert warehouse.load(None, uri, rows_of(1), "one").outcome == "known"
        assert warehouse.delete(None, uri, where="k > 0.9 OR v = 'y' AND \"order\" < 1005").rows
        again = rows_of(1).slice(20, 3)
        assert warehouse.correct(None, uri, again, batch="c", on=["order"], missing="insert").rows_in == 3
        assert warehouse.delete(None, uri, keys=rows_of(3).slice(5, 2).select(["order", "x"])).rows == 2
        append(uri, 2, rows_of(4))
        warehouse.maintain(None, uri)
    check_as(*pair)
    for uri in pair:
        warehouse.load(None, uri)
        assert warehouse.unload(None, uri, batch="one").rows
    check_as(*pair)


def test_removed_rows_come_back_by_the_new_names(old_pair: tuple[Path, Path]) -> None:
    uri, twin = old_pair
    for one, key in ((uri, "k"), (twin, "x")):
        warehouse.delete(None, one, where=f"{key} = 'a'")
    rename(uri)
    for one in (uri, twin):
        assert warehouse.restore(one, removal=0).rows
    check_as(uri, twin)


def test_a_name_that_came_free_is_taken_by_a_new_column(pair: tuple[Path, Path]) -> None:
    for uri in pair:
        rows = rows_of(5).append_column("g", pa.array(range(60))).append_column("t", pa.array(["b"] * 60))
        assert warehouse.load(None, uri, rows, "five", evolve=True).added_columns == ["g", "t"]
        warehouse.alter(None, uri, add_measure="g")
        warehouse.alter(None, uri, add_key="t")
        append(uri, 1, rows_of(6))
        wh = query.open(uri)
        assert wh.quantile(1, measure="g").value == 59
        assert wh.frequency("b", key="t").lo == 60
    check_as(*pair)
    uri, _ = pair
    warehouse.alter(None, uri, drop_measure="g")
    with pytest.raises(InputError, match=r"no measure 'g'"):
        query.open(uri).quantile(1, measure="g")


def test_names_go_round(old_pair: tuple[Path, Path]) -> None:
    """A column that gets its first name back is what it was; an earlier moment has its own names."""
    uri, _ = old_pair
    value = query.open(uri).quantile(0.5)
    at = datetime.now(UTC)
    for names in ({"v": "a"}, {"a": "b"}, {"b": "v"}):
        warehouse.alter(None, uri, rename=names)
        (new,) = names.values()
        assert query.open(uri).quantile(0.5, measure=new).N == value.N
        assert warehouse.alter(None, uri, rename=names).outcome == "known"
    assert read_options(Store.from_uri(uri)).names == ColumnNames()
    warehouse.alter(None, uri, rename={"v": "a"})
    assert query.open(uri, at=at).quantile(0.5, measure="v").value == value.value


def test_a_copy_and_sites_have_the_names(
    pair: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, twin = pair
    warehouse.copy(uri, tmp_path / "copy")
    check_as(tmp_path / "copy", twin)
    other = tmp_path / "other"
    create(other, NEW)
    warehouse.load(None, other, rows_of(8), "eight")
    wh, expected = (query.open({"a": one, "b": other}) for one in (uri, twin))
    assert wh.quantile(0.5).value == expected.quantile(0.5).value
    for where in ("k > 0.5", {"v": "x"}):
        assert wh.quantile(0.5, where=where).value == expected.quantile(0.5, where=where).value
    groups = [
        [(answer.group, answer.value) for answer in one.quantile(0.5, by="v")] for one in (wh, expected)
    ]
    assert groups[0] == groups[1]
    assert wh.frequency("a").hi == expected.frequency("a").hi
    by_time: Any = {"by": "v", "every": "4h", "mode": "exact"}
    assert [one.value for one in wh.quantile(0.5, **by_time)] == [
        one.value for one in expected.quantile(0.5, **by_time)
    ]
    monkeypatch.setattr(block_reader, "path_of", lambda root, file: f"{root}/{file.path}")
    with pytest.raises(DamagedWarehouse, match="is missing"):  # runs of one are looked for as the other's
        query.open({"b": other, "a": uri}).quantile(0.5, **by_time)


def test_two_renames_at_once(old_pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The second to commit looks again: it renames beside the other one, or is refused."""
    (uri, _), change, between = old_pair, Race.change, list[dict[str, str]]()

    def another_one_first(race: Race, wanted: Any) -> bool:
        if between:
            warehouse.alter(None, uri, rename=between.pop())
        return change(race, wanted)

    monkeypatch.setattr(Race, "change", another_one_first)
    between.append({"k": "user"})
    assert warehouse.alter(None, uri, rename={"v": "value"}).outcome == "altered"
    between.append({"g": "when"})
    with pytest.raises(InputError, match=r"two columns would have the name 'when'"):
        warehouse.alter(None, uri, rename={"t": "when"})
    options = read_options(Store.from_uri(uri))
    assert options.names.renamed == (("user", "k"), ("value", "v"), ("when", "g"))
    with pytest.raises(InputError, match=r"with private columns keeps the names"):
        renamed(replace(options, private=("user",)), {"x": "y"})


@pytest.mark.parametrize(
    ("rename", "text"),
    [
        ({"nothing": "n"}, "no column 'nothing'"),
        ({"v": "k"}, "two columns would have the name 'k'"),
        ({"v": "K"}, "two columns would have the name 'K'"),
        ({"v": "a", "k": "A"}, "two columns would have the name"),
        ({"v": "_tick"}, "tidemark's own columns"),
        ({"v": "a b"}, "cannot be stored"),
        ({"v": "v"}, "must map names"),
        ({"v": "k", "k": "v"}, "in the same call"),
        ({"v": "w", "g": "V"}, "in the same call"),
        ({}, "must map names"),
        ({"v": 1}, "must map names"),
        ("v", "must map names"),
    ],
)
def test_a_rename_that_cannot_be_changes_nothing(made: Path, rename: Any, text: str) -> None:
    files = files_of(made / "old")
    with pytest.raises(InputError, match=text):
        warehouse.alter(None, made / "old", rename=rename)
    with pytest.raises(InputError, match="goes alone"):
        warehouse.alter(None, made / "old", rename={"v": "w"}, kappa=3)
    assert files_of(made / "old") == files


def test_a_batch_with_the_old_names_is_refused(tmp_path: Path) -> None:
    """Also one that may bring columns: else the old name would become one beside the new."""
    uri = tmp_path / "w"
    create(uri, OLD)
    warehouse.load(None, uri, rows_of(1, OLD), "one")
    later = rows_of(2, OLD).append_column("tip", pa.array(range(60)))
    warehouse.load(None, uri, later, "two", evolve=True)
    warehouse.alter(None, uri, rename={"tip": "extra", "v": "value"})
    named = ["value", *OLD[1:], "tip"]
    for evolve in (False, True):
        with pytest.raises(InputError, match=r"'v' was renamed: it is 'value' now. 'tip' was renamed"):
            warehouse.load(None, uri, later, "three", evolve=evolve)
        with pytest.raises(InputError, match=r"names\. 'tip' was renamed: it is 'extra' now"):
            warehouse.load(None, uri, later.rename_columns(named), "three", evolve=evolve)
    wh = query.open(uri)
    with pytest.raises(InputError, match=r"'v' was renamed: it is 'value' now"):
        wh.quantile(0.5, measure="v")


def test_the_command_renames(old_pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    uri, _ = old_pair
    assert main(["alter", "-w", str(uri), "--rename", "v=value", "--rename", "k=user"]) == 0
    assert "done, without sorting any rows" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["alter", "-w", str(uri), "--rename", "v"])
    assert [one.name for one in query.open(uri).measures] == ["value"]


MISTAKES: list[Callable[[pytest.MonkeyPatch], None]] = [
    lambda patch: patch.setattr(ColumnNames, "of_table", lambda _, rows: rows),
    lambda patch: patch.setattr(ColumnNames, "stored", lambda _, name: name),
]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_translation_that_is_left_out_is_noticed(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, mistake: Any
) -> None:
    mistake(monkeypatch)
    with pytest.raises(Exception):  # noqa: B017, PT011  an answer differs, or none is found
        check_as(*pair)


def test_statistics_have_the_names() -> None:
    names = replace(ColumnNames(), renamed=(("b", "a"), ("a", "b")))
    assert names.of_statistics({"min.a": 1, "max.b": 2, "min._tick": 3}) == {
        "min.b": 1,
        "max.a": 2,
        "min._tick": 3,
    }
    assert names.free("A", ["a", "A_2"]) == "A_3"
