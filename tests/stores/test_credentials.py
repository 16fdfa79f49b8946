"""Credentials reach everything that needs them, and are shown nowhere."""

from __future__ import annotations

import logging
import traceback
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs
from pyspark.sql import SparkSession

from tests.stores.conftest import Place
from tests.stores.gate import WRITES, Fault
from tests.stores.rows import HOW, check, rows
from tidemark import query, stream, warehouse
from tidemark.jobs import load_batch
from tidemark.jobs.cli.main import main
from tidemark.query.sql.spark_worker import WarehouseAddress
from tidemark.warehouse import os_errors
from tidemark.warehouse.delta.store import UNFINISHED_UPLOADS, Store
from tidemark.warehouse.errors import StoreUnavailable, TidemarkError


@pytest.fixture
def secret() -> str:
    return f"secret{uuid.uuid4().hex}"


@pytest.fixture
def secretly(place: Place, secret: str) -> dict[str, str]:
    """The options of the store, with a secret that tests look for."""
    return {**place.options, "AWS_SECRET_ACCESS_KEY": secret}


def test_the_secret_is_in_no_object_log_error_or_repr(
    place: Place, secretly: dict[str, str], secret: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    how: dict[str, Any] = {"storage_options": secretly}
    texts: list[object] = [warehouse.create(None, place.uri, ["ms"], **HOW, **how)]
    texts.append(warehouse.load(None, place.uri, rows(0), "night-0", **how))
    stream.append(None, place.uri, rows(1), source="web", batch=0, **how)
    wh = query.open(place.uri, secretly)
    texts += [wh, wh.info(), wh.quantile(0.5), wh.frequency("/1"), wh.contents()]
    store = Store.from_uri(place.uri, secretly)
    texts += [store, WarehouseAddress(place.uri, store.storage_options)]
    texts.append(warehouse.verify(place.uri, **how))
    for fault in (Fault("403"), Fault("reset", "PUT")):
        place.server.set(fault)
        for call in (
            lambda: query.open(place.uri, secretly),
            lambda: warehouse.load(None, place.uri, rows(2), "night-2", **how),
        ):
            try:
                call()
            except TidemarkError as error:
                cause: BaseException | None = error
                while cause is not None:
                    texts.append(cause)
                    cause = cause.__cause__
    place.server.set()
    for text in texts:
        assert secret not in repr(text) + str(text)
    assert secret not in caplog.text
    files = store.filesystem()
    for info in files.get_file_info(fs.FileSelector("", recursive=True)):
        if info.is_file:
            with files.open_input_stream(info.path) as content:
                assert secret.encode() not in content.read()


def shown(endpoint: str, secret: str, **options: str) -> str:
    """The traceback of a reader that cannot be opened, as a log has it."""
    address, port = endpoint.rsplit(":", 1)
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": "us-east-1"}
    given = {"AWS_ENDPOINT_URL": f"{address.replace('//', f'//user:{secret}@')}:{port}", **keys, **options}
    try:
        query.open("s3://bucket/w", {"AWS_ALLOW_HTTP": "true", **given})
    except TidemarkError as error:
        return "".join(traceback.format_exception(error))
    raise AssertionError("it was opened")


def test_no_traceback_shows_the_password_of_an_endpoint_or_the_value_of_an_option(
    place: Place, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.server.set(Fault("403"))
    told = shown(place.options["AWS_ENDPOINT_URL"], secret)
    assert "StoreUnavailable: " in told
    assert secret not in told
    for option, kind in (("timeout", "Duration"), ("AWS_ALLOW_HTTP", "boolean")):
        told = shown("http://127.0.0.1:9", secret, **{option: secret})
        assert f"InputError: a value of storage_options is not valid: a {kind} was expected" in told
        assert secret not in told
    monkeypatch.setattr(os_errors, "_remove_secrets", lambda _: None)  # the broken variant
    assert secret in shown("http://127.0.0.1:9", secret, timeout=secret)
    assert secret in shown(place.options["AWS_ENDPOINT_URL"], secret)


def test_spark_shows_it_in_no_plan_and_no_setting(
    spark: SparkSession, place: Place, secretly: dict[str, str], secret: str
) -> None:
    how: dict[str, Any] = {"storage_options": secretly}
    warehouse.create(None, place.uri, ["ms"], **HOW, **how)
    warehouse.load(spark, place.uri, spark.createDataFrame(rows(0)), "night-0", **how)
    query.register_views(spark, place.uri, "secretly", **how)
    for statement in ("SELECT * FROM secretly_events", "SELECT * FROM secretly_quantile(0.5)"):
        frame = spark.sql(statement)
        assert len(frame.collect()) >= 1
        assert secret not in frame._jdf.queryExecution().toString()
    shown = [*spark.conf.getAll.items(), *spark.sparkContext.getConf().getAll()]
    shown += [tuple(row) for row in spark.sql("SHOW VIEWS").collect()]
    assert secret not in str(shown)


def test_a_reader_needs_no_right_to_write(place: Place) -> None:
    how: dict[str, Any] = {"storage_options": place.options}
    warehouse.create(None, place.uri, ["ms"], **HOW, **how)
    warehouse.load(None, place.uri, rows(0), "night-0", **how)
    stream.append(None, place.uri, rows(1), source="web", batch=0, **how)
    reader = {**place.options, "AWS_ACCESS_KEY_ID": "READER"}
    place.server.set(Fault("403", WRITES, user="READER"))
    wh = query.open(place.uri, reader)
    check(wh, [rows(0), rows(1)])
    assert wh.sql("SELECT count(*) FROM events").fetchall() == [(400,)]
    assert wh.quantile(0.5, where="ms > 10", mode="exact").N > 0
    assert warehouse.verify(place.uri, storage_options=reader).ok
    assert not [request for request in place.server.requests() if request.fault]
    with pytest.raises(StoreUnavailable, match="not allowed"):
        warehouse.load(None, place.uri, rows(2), "night-2", storage_options=reader)
    assert [request for request in place.server.requests() if request.fault]


def test_the_nightly_job_twice_by_its_command(
    spark: SparkSession, place: Place, secretly: dict[str, str], secret: str, tmp_path: Path, capfd: Any
) -> None:
    """By Spark, then by the local engine, then questions; the options from a file and from the line."""
    options = {name: value for name, value in secretly.items() if name != "AWS_REGION"}
    lines = [f"{name}={value}" for name, value in options.items()]
    (tmp_path / "store.txt").write_text("# of the test\n\n" + "\n".join(lines) + "\n")
    at = ["-w", place.uri, "--storage-options", str(tmp_path / "store.txt"), "--storage-option"]
    at.append("AWS_REGION=eu-central-1")
    (tmp_path / "in").mkdir()
    spark.createDataFrame(rows(0)).coalesce(1).write.parquet(str(tmp_path / "in"), mode="overwrite")
    load = [*at, "--input", str(tmp_path / "in"), "--batch", "night-0", "--measure", "ms", "--time", "at"]
    for _ in range(2):
        assert load_batch.main(load) == 0
    assert main(["load", *load, "--engine", "local"]) == 0
    said = capfd.readouterr()
    assert said.out.count("was loaded before, nothing changed") == 2
    for command in (["quantile", "0.5"], ["info"], ["verify"], ["maintain"], ["alter", "--add-key", "page"]):
        assert main([*command, *at]) == 0, command
    assert main(["freq", "/1", *at]) == 0
    after = capfd.readouterr()
    assert after.out.count(UNFINISHED_UPLOADS) == 1  # by maintain
    for text in (said.out, said.err, after.out, after.err):
        assert secret not in text
    assert query.open(place.uri, secretly).quantile(0.5).N == 200


def test_the_environment_serves_the_command(
    place: Place, secretly: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    for name, value in secretly.items():
        monkeypatch.setenv(name, value)
    assert main(["create", "-w", place.uri, "--measure", "ms"]) == 0
    assert query.open(place.uri).info()["live_rows"] == 0
    said = capfd.readouterr()
    assert UNFINISHED_UPLOADS in said.out
    assert secretly["AWS_SECRET_ACCESS_KEY"] not in "".join(said)


@pytest.mark.parametrize("text", ["hidden", "=hidden"])
def test_an_option_that_is_none_is_a_usage_error_that_does_not_show_it(
    text: str, tmp_path: Path, capfd: Any
) -> None:
    (tmp_path / "store.txt").write_text(f"AWS_REGION=x\n{text}\n")
    for given in (["--storage-option", text], ["--storage-options", str(tmp_path / "store.txt")]):
        with pytest.raises(SystemExit):
            main(["info", "-w", "s3://b/w", *given])
        shown = capfd.readouterr().err
        assert "must be KEY=VALUE" in shown
        assert "hidden" not in shown
