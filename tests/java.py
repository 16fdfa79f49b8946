"""The Java processes that tests start: their options, an archive of Spark's classes, and its Python workers.

`make test` runs `python -m tests.java` once, which writes the archive into build/java. With it a start of
Spark takes two thirds of the processor time: Java maps classes that are parsed and verified already, and does
not read them from jars (class data sharing, JEP 350). Without the archive, or with one that no longer fits
the jars, the tests are the same and take longer.

An archive holds no classes of folders, and is used only where the class path begins with the archive's own
jars. Spark puts its folder of settings first, so build/java/bin/java puts it last. In that folder is also
which daemon of Python workers is taken (tests/spark_workers), which saves most of a second for each.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tests.spark_workers.spark_daemon import FAST

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / "build" / "java"
CONF = HOME / "conf"
ARCHIVE = HOME / "spark.jsa"

# Of the jobs that tests start, and not of the session that they share: each query runs once or twice, which
# takes less than to compile it.
DEFAULTS = {"spark.sql.codegen.wholeStage": "false", **FAST}

# These processes end before the second compiler would pay off, and have one or two cores for a small heap:
# together this halves the processor time of a start of Spark. Without the second compiler the code cache
# would be small, and would fill; so would the first share of memory for classes, for which all is collected.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m -XX:MetaspaceSize=256m"

JAVA = """\
#!/bin/bash
# Written by tests/java.py.
options=()
for option in "$@"; do
    case $option in
    "{conf}/:"*)
        jars=${{option#"{conf}/:"}}
        case "$*" in
        *-XX:ArchiveClassesAtExit=*) options+=("$jars") ;;
        *) options+=("$jars:{conf}/" "-XX:SharedArchiveFile={archive}" "-Xlog:cds*=off") ;;
        esac
        ;;
    *) options+=("$option") ;;
    esac
done
exec "{java}" "${{options[@]}}"
"""


def set_options() -> None:
    """Sets the options of each driver that a test starts, here or in another process.

    Before each of them Spark's scripts start another Java, the launcher, which prints its command line.
    """
    os.environ["SPARK_SUBMIT_OPTS"] = os.environ["SPARK_LAUNCHER_OPTS"] = SHORT_LIVED
    if ARCHIVE.exists():
        os.environ["SPARK_CONF_DIR"] = str(CONF)


@cache
def java_home() -> str:
    """The JAVA_HOME that `make setup` chose for this environment's Spark."""
    look = ["/bin/sh", str(ROOT / "jobs" / "spark" / "java_home.sh"), sys.prefix]
    return subprocess.run(look, capture_output=True, text=True, check=True).stdout.strip()


def write_archive() -> None:
    """Writes build/java anew: the settings of Spark, a java that uses the archive, and the archive."""
    import pyspark  # noqa: PLC0415  each test imports this module, few need Spark

    shutil.rmtree(HOME, ignore_errors=True)
    CONF.mkdir(parents=True)
    settings = Path(pyspark.__file__).resolve().parent / "conf"
    shutil.copy(settings / "log4j2.properties", CONF)
    (CONF / "spark-env.sh").write_text(f"JAVA_HOME='{HOME}'\n: \"${{PYSPARK_PYTHON:={sys.executable}}}\"\n")
    (CONF / "spark-defaults.conf").write_text(
        "".join(f"{name}  {value}\n" for name, value in DEFAULTS.items())
    )
    java = HOME / "bin" / "java"
    java.parent.mkdir()
    java.write_text(JAVA.format(conf=CONF, archive=ARCHIVE, java=f"{java_home()}/bin/java"))
    java.chmod(0o755)

    os.environ["SPARK_CONF_DIR"] = str(CONF)
    os.environ["SPARK_SUBMIT_OPTS"] = (
        f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={ARCHIVE} -Xlog:cds*=off "
        f"-Dlog4j2.configurationFile={CONF / 'log4j2.properties'}"
    )
    _load_classes()


def _load_classes() -> None:
    """Does what most tests do in Spark, then ends Java, which writes the archive."""
    from pyspark import SparkContext  # noqa: PLC0415

    from tidemark import query, stream, warehouse  # noqa: PLC0415
    from tidemark.jobs.spark.session import spark_session  # noqa: PLC0415

    spark = spark_session("archive", **{"spark.master": "local[2]"})
    with tempfile.TemporaryDirectory() as folder:
        uri = f"{folder}/w"
        columns = "timestamp_seconds(id) AS time, double(id) AS delay, 'ATL' AS origin"
        rows = [spark.sql(f"SELECT {columns} FROM range({day}, {day} + 500)") for day in range(5)]
        warehouse.create(spark, uri, ["delay"], key="origin", time="time", kappa=2)
        for number, day in enumerate(rows[:4]):
            warehouse.load(spark, uri, day, f"day {number}")
        stream.append(spark, uri, rows[4], source="archive", batch=0)
        warehouse.maintain(spark, uri)
        query.register_views(spark, uri, "w")
        spark.sql("SELECT * FROM w_quantile(0.5)").collect()
    gateway = SparkContext._gateway
    assert gateway is not None
    spark.stop()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    write_archive()
