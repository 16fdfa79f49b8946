"""Make this environment's Spark ready: its Java, its Python, Delta's jars and a quiet log.

`make setup` runs it. What is written:

* pyspark/jars: Delta's jars, resolved once by Spark itself. The setting spark.jars.packages would resolve
  them again, and print so, whenever a job starts, and `--packages` on a command line would replace it;
* pyspark/conf/spark-env.sh: which Java and which Python, for whoever starts Spark and however;
* pyspark/conf/log4j2.properties: errors only;
* bin/spark-submit of the environment: the one that pyspark brings looks for Spark through the python3 on
  PATH, which is another one unless the environment is activated.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

import pyspark

from tidemark.jobs.spark.session import spark_session

SPARK_HOME = Path(pyspark.__file__).resolve().parent
ENVIRONMENT = Path(sys.prefix)

SPARK_ENV = """\
# Written by `make setup`.
JAVA_HOME=$(sh {java_home} {environment}) || exit 1
: "${{PYSPARK_PYTHON:={python}}}"
"""

# The gateway's logger is named because Spark sets a level of its own, and says so, where it is not.
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
    """Write the files, then let Spark resolve Delta and add its jars to Spark's own."""
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
        add_missing(resolve_delta(ENVIRONMENT / "ivy"), jars)


def resolve_delta(ivy: Path) -> list[Path]:
    """Let Spark's resolver fetch Delta's jar and what it depends on into ivy; return the jars."""
    spark = spark_session("prepare", **{"spark.master": "local[1]", "spark.jars.ivy": str(ivy)})
    spark.stop()
    return sorted((ivy / "jars").glob("*.jar"))


def add_missing(found: list[Path], jars: Path) -> None:
    """Copy the jars that Spark lacks: two versions of one artifact on a class path would win by chance.

    The resolver names a file `<group>_<artifact>-<version>.jar`, and Spark leaves the group out.
    The jar of Delta itself goes last: where it is, the work is done.
    """
    present = {artifact(jar.name) for jar in jars.glob("*.jar")}
    missing = [jar for jar in found if artifact(jar.name.split("_", 1)[1]) not in present]
    for jar in sorted(missing, key=lambda jar: "delta-spark" in jar.name):
        shutil.copyfile(jar, jars / jar.name)


def artifact(name: str) -> str:
    """Return a jar's name without its version: `delta-storage-4.4.0.jar` gives `delta-storage`."""
    return re.split(r"-\d", name, maxsplit=1)[0]


if __name__ == "__main__":
    main()
