"""Prepares the Spark of this environment: its Java, its Python, the log level, and Delta's jars.

`make setup` runs it; users of the wheel run `python -m tidemark.jobs.spark.prepare_spark`. It writes:

* pyspark/jars: Delta's jars, resolved once by Spark itself. They are optional: Spark then reads Delta tables
  that are inputs. The setting spark.jars.packages would resolve them, and print so, at each start of a job;
* pyspark/conf/spark-env.sh: the Java and the Python to use, however Spark is started;
* pyspark/conf/log4j2.properties: errors only;
* bin/spark-submit of the environment: the script that comes with pyspark finds Spark through the python3 on
  PATH, which is a different one unless the environment is activated.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

import pyspark

from tidemark.jobs.spark.session import DELTA_PACKAGE, SessionError, spark_session

SPARK_HOME = Path(pyspark.__file__).resolve().parent
ENVIRONMENT = Path(sys.prefix)

SPARK_ENV = """\
# Written by `make setup`.
JAVA_HOME=$(sh {java_home} {environment}) || exit 1
: "${{PYSPARK_PYTHON:={python}}}"
"""

# Spark has these in its own version; without the exclusion they would be most of the download.
ALREADY_IN_SPARK = "org.apache.hadoop:*,org.apache.parquet:*,org.apache.logging.log4j:*,org.slf4j:*"

# The gateway's logger is listed because otherwise Spark sets its level itself and prints a message.
LOG4J2 = """\
# Written by `make setup`. The setting spark.log.level says more.
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""

SPARK_SUBMIT = """\
#!/bin/sh
# Written by `make setup`.
export SPARK_HOME={spark_home}
exec "$SPARK_HOME/bin/spark-submit" "$@"
"""


def main() -> None:
    """Writes the files, then copies Delta's jars beside Spark's own unless they are there."""
    conf = SPARK_HOME / "conf"
    conf.mkdir(exist_ok=True)
    java_home = Path(__file__).resolve().parent / "java_home.sh"
    spark_env = SPARK_ENV.format(
        java_home=shlex.quote(str(java_home)),
        environment=shlex.quote(str(ENVIRONMENT)),
        python=sys.executable,
    )
    (conf / "spark-env.sh").write_text(spark_env, encoding="utf-8")
    (conf / "log4j2.properties").write_text(LOG4J2, encoding="utf-8")
    submit = ENVIRONMENT / "bin" / "spark-submit"
    submit.write_text(SPARK_SUBMIT.format(spark_home=shlex.quote(str(SPARK_HOME))), encoding="utf-8")
    submit.chmod(0o755)
    jars = SPARK_HOME / "jars"
    if not any(jars.glob("*delta-spark*.jar")):
        try:
            resolved = resolve_delta(ENVIRONMENT / "ivy")
        except SessionError as error:
            sys.exit(f"error: {error} All but Delta's jars is prepared.")
        add_missing(resolved, jars)


def resolve_delta(ivy: Path) -> list[Path]:
    """Lets Spark's resolver fetch Delta's jar and its dependencies into `ivy`; returns the jars."""
    settings = {
        "spark.master": "local[1]",
        "spark.jars.ivy": str(ivy),
        "spark.jars.packages": DELTA_PACKAGE,
        "spark.jars.excludes": ALREADY_IN_SPARK,
    }
    spark_session("prepare", **settings).stop()
    return sorted((ivy / "jars").glob("*.jar"))


def add_missing(resolved: list[Path], jars: Path) -> None:
    """Copies the resolved jars whose artifact Spark lacks into its folder `jars`.

    An artifact is never there twice: which of two versions on a class path is loaded would be random.

    The resolver names a file `<group>_<artifact>-<version>.jar`; Spark omits the group. Delta's own jar is
    copied last: its presence shows that all others were copied.
    """
    present = {artifact(jar.name) for jar in jars.glob("*.jar")}
    missing = [jar for jar in resolved if artifact(jar.name.split("_", 1)[1]) not in present]
    for jar in sorted(missing, key=lambda jar: "delta-spark" in jar.name):
        shutil.copyfile(jar, jars / jar.name)


def artifact(name: str) -> str:
    """The name of a jar without its version: `delta-storage-4.4.0.jar` gives `delta-storage`."""
    return re.split(r"-\d", name, maxsplit=1)[0]


if __name__ == "__main__":
    main()
