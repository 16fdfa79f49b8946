"""One way to a Spark session that reads and writes Delta, for the jobs, the demo and the tests.

Whoever starts Spark decides: under spark-submit its `--conf` wins over what a caller asks for, from Python
the caller wins over spark-defaults.conf. Both win over the defaults below.

Delta's jars must be there when Spark's Java process starts. `make setup` puts them beside Spark's own
(jobs/spark/prepare_spark.py). Where that was not done, a session started from Python asks Spark's resolver
for them, which fetches them once. Under spark-submit Java already runs, and spark.jars.packages is no longer
read: there the missing jars are an error that says what to type.
"""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from tidemark.jobs.spark.java_stderr import Said, held_back
from tidemark.warehouse.errors import TidemarkError

DELTA_PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
# Spark has these in its own version, and they are most of what would be fetched.
ALREADY_IN_SPARK = "org.apache.hadoop:*,org.apache.parquet:*,org.apache.logging.log4j:*,org.slf4j:*"
DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

JAVA_REMEDY = (
    "Spark 4.2 needs Java 17 or 21: install one, set JAVA_HOME to its folder, or run `make setup`, "
    "which brings one. Questions need no Java."
)
FETCH_REMEDY = (
    "Spark's resolver needs a Maven repository (spark.jars.repositories and spark.jars.ivySettings name "
    "others) and a folder that it may write (spark.jars.ivy)."
)

DEFAULTS = {
    "spark.master": "local[*]",
    "spark.sql.extensions": DELTA_EXTENSION,
    "spark.sql.catalog.spark_catalog": DELTA_CATALOG,
    "spark.sql.session.timeZone": "UTC",
    # The default, INT96, has no statistics, so nothing could be skipped by time.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A wrong Arrow type then fails where it is made, with its name, and not late in a reader.
    "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
    # The default of 10,000 rows spends more time between Java and Python than in numpy.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
}

LOCAL_DEFAULTS = {
    # The 200 and 50 partitions of the defaults are for clusters: here each costs a task and saves nothing.
    "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
    "spark.databricks.delta.snapshotPartitions": "2",
    # The machine's own name need not resolve, and nobody else is to connect.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


# What only the command line of Java can tell it; the rest is set on the session.
NEEDED_AT_START = (
    "spark.master",
    "spark.app.name",
    "spark.ui.showConsoleProgress",
    "spark.driver.",
    "spark.jars",
)


class SessionError(TidemarkError, RuntimeError):
    """Spark cannot be used as it was started."""


def spark_session(app_name: str, **conf: str) -> SparkSession:
    """Return the active session as it is, or start one with Delta.

    conf holds settings by their full names, `**{"spark.master": "local[2]"}`. They win over the defaults,
    but not over what the user gave to spark-submit. Raises SessionError where Spark runs without Delta.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Spark takes a start from Python for a shell and then sets these two by itself.
    conf = {"spark.app.name": app_name, "spark.ui.showConsoleProgress": "false", **conf}
    with held_back(_tell_of_fetching) as said:
        given = _start_java(conf, said)
        chosen = {**conf, **given} if "PYSPARK_GATEWAY_PORT" in os.environ else {**given, **conf}
        settings = {**DEFAULTS, **chosen}
        if settings["spark.master"].startswith("local"):
            settings = {**LOCAL_DEFAULTS, **settings}
        builder: SparkSession.Builder = SparkSession.builder
        session = builder.config(map=dict(settings)).getOrCreate()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _interrupted)
    return session


def _interrupted(*_: object) -> NoReturn:
    """In place of Spark's handler, which calls Java in the middle of a call and fails with a page of text.

    Java ends with this process, and what it was doing is mended by the next run.
    """
    logging.disable()  # py4j logs the interrupt, too
    raise KeyboardInterrupt


def _check_java() -> None:
    """SessionError where Spark finds no Java; what `make setup` leaves in spark-env.sh looks further."""
    home, conf = os.environ.get("JAVA_HOME"), os.environ.get("SPARK_CONF_DIR")
    scripts = Path(conf) if conf else Path(_find_spark_home()) / "conf"
    if "PYSPARK_GATEWAY_PORT" in os.environ or (scripts / "spark-env.sh").exists():
        return
    if home and shutil.which("java", path=str(Path(home, "bin"))) is None:
        raise SessionError(f"JAVA_HOME is {home}, where there is no bin/java. {JAVA_REMEDY}")
    if not home and shutil.which("java") is None:
        raise SessionError(f"there is no Java: JAVA_HOME is not set and PATH has no java. {JAVA_REMEDY}")


def _start_java(conf: dict[str, str], said: Said) -> dict[str, str]:
    """Start Spark's Java process unless spark-submit has, and return the settings that it knows."""
    _check_java()
    launch = SparkConf(loadDefaults=False)
    for name, value in conf.items():
        if name.startswith(NEEDED_AT_START):
            launch.set(name, value)
    if not _delta_is_beside_spark():
        _ask_for_delta(launch)
    # The user's settings can be asked for only once Java runs, and there is no public call to start it.
    try:
        with _control_c_waits():
            if SparkContext._gateway is None:  # noqa: SLF001  a session that was stopped has left its Java
                gateway = launch_gateway(launch, {"stderr": said.sink})  # type: ignore[no-untyped-call]
                SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        if "MavenUtils" in said.show():
            raise SessionError(f"{DELTA_PACKAGE} could not be fetched, see above. {FETCH_REMEDY}") from None
        raise SessionError(f"Spark's Java process did not start, see above. {JAVA_REMEDY}") from None
    java = SparkContext._jvm  # noqa: SLF001
    if java is None or not java.org.apache.spark.util.Utils.classIsLoadable(DELTA_EXTENSION):
        raise SessionError(
            f"Spark was started without Delta Lake: {DELTA_EXTENSION} is not on its class path. "
            f"Use the spark-submit of an environment made by `make setup`, or pass --packages {DELTA_PACKAGE}"
        )
    return dict(SparkConf().getAll())


@contextmanager
def _control_c_waits() -> Iterator[None]:
    """Ctrl-C is heard at the end: pyspark would leave a Java behind that was interrupted while it starts."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears signals
        return
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if heard:
        raise KeyboardInterrupt


def _ask_for_delta(launch: SparkConf) -> None:
    """Delta among the packages that Java is started with, whichever way the user names more."""
    wanted = {"spark.jars.packages": DELTA_PACKAGE, "spark.jars.excludes": ALREADY_IN_SPARK}
    for name, value in wanted.items():
        launch.set(name, ",".join(filter(None, [value, launch.get(name, "")])))
    typed = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    if "delta-spark" not in typed:  # the packages of a command line replace those of a setting
        replacing = ("--packages=", "--conf=spark.jars.packages=", "spark.jars.packages=")
        words = [
            f"{word},{DELTA_PACKAGE}" if before == "--packages" or word.startswith(replacing) else word
            for before, word in pairwise(["", *shlex.split(typed)])
        ]
        os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join(words or ["pyspark-shell"])


def _tell_of_fetching(line: str) -> None:
    """What the resolver says of its folder tells whether Delta is to be fetched, which takes a while."""
    _, is_told, folder = line.partition("The jars for the packages stored in: ")
    if is_told and not Path(folder, "{}_{}-{}.jar".format(*DELTA_PACKAGE.split(":"))).exists():
        print(f"Fetching {DELTA_PACKAGE} for Spark, once.", file=sys.stderr, flush=True)


def _delta_is_beside_spark() -> bool:
    return any((Path(_find_spark_home()) / "jars").glob("*delta-spark*.jar"))
