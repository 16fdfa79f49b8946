"""Map, combine and reduce over two warehouses, in Spark and in this process: equal to a count of all rows."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.jobs import site_words
from tests.jobs.conftest import FLIGHTS
from tests.jobs.said import tidemark
from tidemark import stream, warehouse
from tidemark.jobs.cli import main
from tidemark.jobs.site_reduce import combined, combined_events
from tidemark.sketches.sites.endpoint import Endpoint
from tidemark.sketches.sites.envelope import COORDINATOR
from tidemark.sketches.sites.gather import Teller
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.exchange import FileExchange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORDS = "tests.jobs.site_words"


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two warehouses, one with live rows, each with origins that the other has not."""
    folder, rows = tmp_path_factory.mktemp("sites"), _rows()
    for number, part in enumerate((rows.slice(0, 1_200), rows.slice(1_200))):
        warehouse.create(None, folder / str(number), "delay", key="origin", time="time", schema=part.schema)
        warehouse.load(None, folder / str(number), part.slice(0, 700), batch="b")
        stream.append(None, folder / str(number), part.slice(700), source="s", batch=0)
    return folder / "0", folder / "1"


def _rows() -> pa.Table:
    return pq.read_table(FLIGHTS).slice(0, 2_000)


def true_values() -> list[list[Any]]:
    """By a loop over all rows."""
    origins, delays = _rows()["origin"].to_pylist(), _rows()["delay"].to_pylist()
    found: dict[str, dict[str, int]] = {}
    at: defaultdict[str, set[int]] = defaultdict(set)
    for i, (origin, delay) in enumerate(zip(origins, delays, strict=True)):
        one = found.setdefault(origin, {"rows": 0, "longest": delay})
        one["rows"], one["longest"] = one["rows"] + 1, max(one["longest"], delay)
        at[origin].add(i // 1_200)
    return [[key, {**found[key], "sites": len(at[key])}] for key in sorted(found)]


def shared(tmp_path: Path) -> list[Any]:
    (tmp_path / "secret").write_text("0123456789abcdef\n")
    where = ["--exchange", tmp_path / "x", "--topic", "t", "--secret", tmp_path / "secret"]
    return [*where, "--poll", "0.02", "--timeout", "60"]


def mapping(site: int, at: Path, how: list[Any], map_: str = "origins") -> list[Any]:
    functions = ["--map", f"{WORDS}:{map_}", "--combine", f"{WORDS}:both"]
    return ["sites", "map", "-w", at, "--site", site, *functions, "--engine", "local", *how]


def test_two_sites_and_who_asks_meet_in_a_folder(
    sites: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second site begins twice: its first incarnation tells something else and is gone."""
    how = shared(tmp_path)
    secret = b"0123456789abcdef"
    gone = Endpoint("t", 1, [COORDINATOR], incarnation=5, secret=secret)
    files = FileExchange(tmp_path / "x", gone)
    files.send(
        [*gone.tick(), *[one for m in Teller(b"[]").joined(COORDINATOR, again=False) for one in gone.send(m)]]
    )
    codes: list[int] = []
    threads = [
        threading.Thread(
            target=lambda i=i, at=at: codes.append(main.main([str(a) for a in mapping(i, at, how)]))
        )
        for i, at in enumerate(sites)
    ]
    for thread in threads:
        thread.start()
    said = tidemark(
        capsys, "sites", "reduce", "--sites", 2, "--reduce", f"{WORDS}:over_sites", "--json", *how
    )
    for thread in threads:
        thread.join(60)
    assert codes == [0, 0]
    document = next(json.loads(line) for line in said.out.splitlines() if line.startswith("{"))
    assert document == {"sites": 2, "values": true_values()}


@pytest.mark.spark
def test_spark_and_this_process_combine_alike(spark: SparkSession, sites: tuple[Path, Path]) -> None:
    functions = site_words.origins, site_words.both
    for at in sites:
        here = combined_events(None, str(at), None, *functions)
        assert combined_events(spark, str(at), None, *functions) == here
    with pytest.raises(InputError, match="map and combine failed: ZeroDivisionError\\('mine'\\)"):
        combined_events(spark, str(sites[0]), None, site_words.fails, site_words.both)


def test_the_order_and_nesting_of_combine_do_not_matter() -> None:
    pairs = [(i % 3, i) for i in range(30)]
    whole = combined(pairs, max)
    parts = [combined(pairs[at : at + 7], max) for at in range(0, 30, 7)]
    assert combined(((json.loads(k), v) for part in parts for k, v in part.items()), max) == whole
    assert whole == {"0": 27, "1": 28, "2": 29}


def test_each_mistake_is_one_line(
    sites: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    how = shared(tmp_path)
    for map_, says in (
        ("fails", "mine"),
        ("no_json", "JSON"),
        ("missing", "cannot be imported"),
        ("A_NUMBER", "int"),
    ):
        said = tidemark(capsys, *mapping(0, sites[0], how, map_))
        assert said.code == 2
        assert says in said.err
    (tmp_path / "secret").write_text("short")
    said = tidemark(capsys, *mapping(0, sites[0], how))
    assert (said.code, "5 bytes" in said.err) == (2, True)
    (tmp_path / "secret").write_text("0123456789abcdef\n")
    said = tidemark(capsys, *mapping(0, sites[0], [*how, "--timeout", "0"]))
    assert said.code == 1
    assert "start them" in said.err
