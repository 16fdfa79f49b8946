"""Spark sessions for the jobs, the demo and the tests.

Precedence of settings. Under spark-submit: its `--conf`, then the arguments of `spark_session`. Started from
Python: the arguments of `spark_session`, then spark-defaults.conf. The defaults below always come last.

Delta's jar is optional: tidemark reads and writes its tables itself. Where the jar is on the class path when
Java starts, the session has Delta's extension and catalog. Then Spark can read Delta tables that are inputs,
and scans `events` for the views. `make setup` puts the jar beside Spark's own (jobs/spark/prepare_spark.py).
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from tidemark.jobs.spark.java_stderr import StartOutput, hold_back
from tidemark.warehouse.errors import TidemarkError
from tidemark.warehouse.execution.spark_versions import check_version

_SPARK = ".".join(pyspark.__version__.split(".")[:2])
DELTA_PACKAGE = f"io.delta:delta-spark_{_SPARK}_2.13:4.4.0"
DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

JAVA_REMEDY = (
    "Spark 4 needs Java 17 or 21: install one, set JAVA_HOME to its folder, or run `make setup`, "
    "which installs one. Queries need no Java."
)
FETCH_REMEDY = (
    "Spark's resolver needs a Maven repository (spark.jars.repositories and spark.jars.ivySettings name "
    "others) and a folder that it may write (spark.jars.ivy)."
)
DELTA_REMEDY = (
    f"Give spark-submit --packages {DELTA_PACKAGE}, or run `python -m tidemark.jobs.spark.prepare_spark` "
    "once, which puts the jar beside Spark's own."
)

DEFAULTS = {
    "spark.master": "local[*]",
    "spark.sql.session.timeZone": "UTC",
    # The default, INT96, has no statistics, so files and row groups could not be skipped by time.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A wrong Arrow type then fails where the column is made, with its name, not later in a reader.
    "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
    # With the default of 10,000 rows the transfer between Java and Python takes longer than numpy.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
}

DELTA_DEFAULTS = {
    "spark.sql.extensions": DELTA_EXTENSION,
    "spark.sql.catalog.spark_catalog": DELTA_CATALOG,
}

LOCAL_DEFAULTS = {
    # The defaults of 200 and 50 partitions are for clusters: on one machine each only costs a task.
    "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
    "spark.databricks.delta.snapshotPartitions": "2",
    # The name of the machine may not resolve, and other machines must not connect.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


# Settings that must be on the command line of Java; the others are set on the session.
NEEDED_AT_START = (
    "spark.master",
    "spark.app.name",
    "spark.ui.showConsoleProgress",
    "spark.driver.",
    "spark.jars",
)


class SessionError(TidemarkError, RuntimeError):
    """Spark did not start."""


def spark_session(
    app_name: str, local: Mapping[str, str] = MappingProxyType({}), /, **conf: str
) -> SparkSession:
    """Returns the active session unchanged, or starts one, with Delta if its jar is there.

    local: further defaults where the tasks run in this machine's one Java; all other settings come first.
    conf: settings by their full names, `**{"spark.master": "local[2]"}`. They override the defaults, but not
    the options of spark-submit. Raises SessionError if Java does not start, and InputError if this Spark is
    too old.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    check_version(pyspark.__version__)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Without these two, Spark treats a start from Python as a shell and sets both itself.
    conf = {"spark.app.name": app_name, "spark.ui.showConsoleProgress": "false", **conf}
    with hold_back() as output:
        user = _start_java(conf, output)
        explicit = {**conf, **user} if "PYSPARK_GATEWAY_PORT" in os.environ else {**user, **conf}
        settings = {**DEFAULTS, **(DELTA_DEFAULTS if _has_delta() else {}), **explicit}
        if settings["spark.master"].startswith("local"):
            settings = {**LOCAL_DEFAULTS, **local, **settings}
        builder: SparkSession.Builder = SparkSession.builder
        session = builder.config(map=dict(settings)).getOrCreate()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _raise_interrupt)
    return session


def _raise_interrupt(*_: object) -> NoReturn:
    """Replaces Spark's handler, which calls Java in the middle of another call and prints a long traceback.

    Java ends with this process; the next run of the job recovers its unfinished work.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)  # py4j would log the interrupt as well,
    logging.getLogger().addFilter(_is_not_of_py4j)  # also with the root logger
    raise KeyboardInterrupt


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def _check_java() -> None:
    """SessionError if Spark finds no Java. A spark-env.sh (as `make setup` writes) does its own search."""
    home, conf = os.environ.get("JAVA_HOME"), os.environ.get("SPARK_CONF_DIR")
    scripts = Path(conf) if conf else Path(_find_spark_home()) / "conf"
    if "PYSPARK_GATEWAY_PORT" in os.environ or (scripts / "spark-env.sh").exists():
        return
    if home and shutil.which("java", path=str(Path(home, "bin"))) is None:
        raise SessionError(f"JAVA_HOME is {home}, where there is no bin/java. {JAVA_REMEDY}")
    if not home and shutil.which("java") is None:
        raise SessionError(f"there is no Java: JAVA_HOME is not set and PATH has no java. {JAVA_REMEDY}")


def _start_java(conf: dict[str, str], output: StartOutput) -> dict[str, str]:
    """Starts Spark's Java process unless spark-submit has; returns the settings of the user."""
    _check_java()
    launch = SparkConf(loadDefaults=False)
    for name, value in conf.items():
        if name.startswith(NEEDED_AT_START):
            launch.set(name, value)
    # The user's settings can be read only when Java runs, and pyspark has no public call to start it.
    try:
        with _defer_control_c():
            if SparkContext._gateway is None:  # noqa: SLF001  Java outlives a stopped session
                gateway = launch_gateway(launch, {"stderr": output.sink})  # type: ignore[no-untyped-call]  # pyspark
                SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        if "MavenUtils" in output.show():
            raise SessionError(f"Spark could not fetch packages, see above. {FETCH_REMEDY}") from None
        raise SessionError(f"Spark's Java process did not start, see above. {JAVA_REMEDY}") from None
    return dict(SparkConf().getAll())


@contextmanager
def _defer_control_c() -> Iterator[None]:
    """Raises Ctrl-C only at the end of the block: an interrupted start would leave a Java process behind."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return
    received: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
    if received:
        raise KeyboardInterrupt


def _has_delta() -> bool:
    """Whether Delta's classes are on the class path of Java."""
    java: Any = SparkContext._jvm  # noqa: SLF001
    return bool(java.org.apache.spark.util.Utils.classIsLoadable(DELTA_EXTENSION))
