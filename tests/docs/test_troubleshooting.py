"""Each error text that the page quotes is raised by what the page says it comes from."""

from __future__ import annotations

import ast
import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.docs.pages import DOCS, is_shown
from tests.warehouse.disk import edit_properties
from tests.warehouse.limits import no_bytes
from tidemark import query, stream, warehouse
from tidemark.jobs import load_batch, stream_events
from tidemark.jobs.cli import main
from tidemark.jobs.inputs.spark_inputs import as_input_error
from tidemark.jobs.spark import session
from tidemark.warehouse.execution.spark_versions import check_version

SECTIONS = re.compile(r"^### (.+?)\n\n```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)
QUOTED: dict[str, str] = dict(SECTIONS.findall((DOCS / "troubleshooting.md").read_text()))

NO_DELTA = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta. Make sure the provider name ..."

Names = dict[str, Any]
PROVOKED: dict[str, Callable[[Names], object]] = {
    "No warehouse was chosen": lambda _: query.quantile(0.5),
    "No warehouse was named": lambda _: main.main(["info"]),
    "Not a warehouse": lambda _: query.open("flight"),
    "A feature of a later version": lambda _: _edited("tidemark.features", '{"wide-marks": "0.3.0"}'),
    "An option that was edited": lambda _: _edited("tidemark.eps", "5"),
    "No rows yet": lambda at: _empty(at["spark"]).quantile(0.5),
    "No such measure": lambda at: at["wh"].quantile(0.5, "speed"),
    "An empty window": lambda at: at["wh"].quantile(0.5, between=("2002-01-01", "2002-02-01")),
    "A kind of companions that is not registered": lambda _: warehouse.create(
        None, "new", "delay", companions={"users": ("theta", "origin")}
    ),
    "Not a duration": lambda at: at["wh"].quantile(0.5, last="1 month"),
    "Two windows at once": lambda at: at["wh"].quantile(0.5, last="7d", between=("2001-02-01", None)),
    "No key": lambda at: _without_key(at).frequency("ATL"),
    "A key that is not in history yet": lambda at: _half_altered(at).frequency("ATL"),
    "The same batch with other rows": lambda at: _load(at, at["flights"].limit(10), "2001-02"),
    "Other options": lambda at: warehouse.create(at["spark"], "flights", ["delay", "distance"], eps=0.001),
    "Other columns": lambda at: _load(at, at["flights"].withColumnRenamed("destination", "dest")),
    "Another type": lambda at: _load(at, at["flights"].withColumn("delay", at["flights"].delay / 60)),
    "Not a measure": lambda at: warehouse.create(at["spark"], "new", "origin", schema=at["flights"]),
    "No such input": lambda _: load_batch.main(["-w", "flights", "--input", "2001.csv", "--batch", "x"]),
    "A batch without a name": lambda _: load_batch.main(["-w", "flights", "--input", "docs/data"]),
    "A Spark that is too old": lambda _: check_version("3.5.8"),
    "Spark without Delta": lambda _: str(as_input_error(Exception(NO_DELTA), "table")),
    "Packages that cannot be fetched": lambda _: _told_by(
        session.__file__, "Spark could not fetch", vars(session)
    ),
    "No Kafka source": lambda _: stream_events.main(
        ["-w", "flights", "--source", "kafka", "--bootstrap", "localhost:9", "--topic", "flights"]
    ),
    "A checkpoint that does not fit": lambda at: _start(at["spark"], "web"),
    "Too many records are rejected": lambda _: _reject(),
    "A name that is taken": lambda at: stream.append(
        at["spark"], "flights", at["flights"], source="load:web", batch=0
    ),
    "A file is gone": lambda at: _gone(at["wh"]),
    "A symbolic link": lambda _: _linked(),
    "A path that leads elsewhere": lambda _: _led_elsewhere(),
    "The disk is full": lambda _: _full(),
    "A log is behind the others": lambda at: _copied_meanwhile(at).quantile(0.5),
    "Rows of events were changed": lambda at: _deleted(at["wh"]),
}


def test_every_quoted_error_is_provoked() -> None:
    assert QUOTED.keys() == PROVOKED.keys()
    assert len(QUOTED) > 20


@pytest.mark.parametrize("title", QUOTED)
def test_an_error_is_what_the_page_says(
    title: str, names: Names, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "_used", {})  # another test may have chosen one
    assert is_shown(QUOTED[title], said(PROVOKED[title], names, capsys))


def said(provoke: Callable[[Names], object], names: Names, capsys: pytest.CaptureFixture[str]) -> str:
    """The text of the error: raised, told by a job, or told by its parser."""
    capsys.readouterr()
    try:
        code = provoke(names)
    except warehouse.TidemarkError as error:
        return str(error)
    except SystemExit as ended:
        code = ended.code
    if isinstance(code, str):
        return code
    assert code in (1, 2), "nothing went wrong"
    return capsys.readouterr().err.split("error: ", 1)[1]


def _load(at: Names, rows: Any, batch: str = "more") -> object:
    return warehouse.load(at["spark"], "flights", rows, batch=batch)


def _empty(spark: SparkSession) -> query.Warehouse:
    warehouse.create(spark, "empty", "delay")
    return query.open("empty")


def _without_key(at: Names) -> query.Warehouse:
    warehouse.create(at["spark"], "keyless", "delay", schema=at["flights"])
    return query.open("keyless")


def _half_altered(at: Names) -> query.Warehouse:
    rows = at["flights"].limit(10).toArrow()
    warehouse.create(None, "late", "delay", schema=rows.schema)
    for batch in ("1", "2"):
        warehouse.load(None, "late", rows, batch=batch)

    def stop(point: str) -> None:
        if point == "sorted":
            raise InterruptedError

    with contextlib.suppress(InterruptedError):
        warehouse.alter(None, "late", add_group="origin", progress=stop)
    return query.open("late")


def _start(spark: SparkSession, source: str) -> object:
    arriving = spark.readStream.schema(spark.read.parquet("docs/data/flights-20k.parquet").schema)
    rows = arriving.parquet("docs/data", pathGlobFilter="flights-20k.parquet")
    return stream.start(rows, "flights", source=source, checkpoint=Path("new").absolute())


def _reject() -> int:
    Path("incoming").mkdir()
    Path("incoming/a.json").write_text("nothing\n")
    options = ["--path", "incoming", "--once", "--max-rejected-fraction", "0.5"]
    return stream_events.main(["-w", "flights", "--source", "files", *options])


def _gone(wh: query.Warehouse) -> object:
    for file in Path("flights/runs/delay").rglob("*.parquet"):
        file.unlink()
    return wh.quantile(0.99)


def _edited(name: str, value: str) -> object:
    warehouse.create(None, "edited", "delay")
    edit_properties("edited", {name: value})
    return query.open("edited")


def _linked() -> object:
    warehouse.create(None, "linked", "delay")
    Path("linked/steps").rename("steps")
    Path("linked/steps").symlink_to(Path("steps").absolute())
    return query.open("linked")


def _led_elsewhere() -> object:
    warehouse.create(None, "led", "delay")
    added = {"path": "../../elsewhere/a.parquet", "size": 1, "partitionValues": {}, "modificationTime": 1}
    log = Path("led/steps/_delta_log/00000000000000000001.json")
    log.write_text(json.dumps({"add": {**added, "dataChange": True, "stats": '{"numRecords": 1}'}}))
    return query.open("led").info()


def _full() -> object:
    with no_bytes():
        return warehouse.create(None, "full", "delay")


def _copied_meanwhile(at: Names) -> query.Warehouse:
    """A copy that lacks the newest commit of one table."""
    rows = at["flights"].limit(10).toArrow()
    warehouse.create(None, "copied", "delay", schema=rows.schema, key="origin")
    for batch in ("1", "2"):
        warehouse.load(None, "copied", rows, batch=batch)
    max(Path("copied/runs/delay/_delta_log").glob("*.json")).unlink()
    return query.open("copied")


def _deleted(wh: query.Warehouse) -> object:
    DeltaTable("flights/events").delete("_source = 'web'")
    return wh.quantile(0.99, mode="exact")


def _told_by(file: str, start: str, names: dict[str, Any]) -> str:
    """The text that the source has for an error which no test can bring about: it needs another Spark."""
    strings = (
        node for node in ast.walk(ast.parse(Path(file).read_text())) if isinstance(node, ast.JoinedStr)
    )
    (found,) = [node for node in strings if ast.unparse(node).startswith(f"f'{start}")]
    return str(eval(ast.unparse(found), names))  # noqa: S307  an f-string of our own source


def test_another_text_is_caught() -> None:
    assert not is_shown(QUOTED["No key"].replace("Add", "Make"), QUOTED["No key"])
