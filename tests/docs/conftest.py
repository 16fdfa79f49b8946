"""The warehouse that the start page makes, and from which the other pages go on."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt
from pyspark.sql import SparkSession

from tests.docs.pages import DOCS, ROOT, run_page
from tidemark import query, stream, warehouse


@contextmanager
def desk(spark: SparkSession, folder: Path) -> Iterator[Path]:
    """Works in a folder where the project's files are found as from its root, and what is written stays."""
    folder.mkdir(exist_ok=True)
    for name in ("docs", "jobs"):
        (folder / name).symlink_to(ROOT / name)
    before = Path.cwd()
    with patch.dict(os.environ):  # what a page exports ends with it
        try:
            _work_in(spark, folder)
            yield folder
        finally:
            _work_in(spark, before)


def _work_in(spark: SparkSession, folder: Path) -> None:
    """Java keeps the folder that it was started in, so Spark's relative paths are told of another one."""
    os.chdir(folder)
    jvm: Any = spark._jvm
    hadoop = jvm.org.apache.hadoop.fs
    files = hadoop.FileSystem.get(spark._jsparkSession.sessionState().newHadoopConf())
    files.setWorkingDirectory(hadoop.Path(str(folder)))


@pytest.fixture(scope="session")
def started(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the start page was run; nobody changes it."""
    with desk(spark, tmp_path_factory.mktemp("started")) as folder:
        run_page(DOCS / "start.md", {"spark": spark})
    return folder


@pytest.fixture
def names(
    spark: SparkSession, started: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, Any]]:
    """What the start page leaves: a folder to work in with a copy of the warehouse, and its names."""
    mpl.use("agg")
    monkeypatch.setenv("TIDEMARK_WAREHOUSE", "")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    with desk(spark, tmp_path / "page"):
        shutil.copytree(started / "flights", "flights")
        yield {
            "spark": spark,
            "flights": spark.read.parquet("docs/data/flights-20k.parquet"),
            "wh": query.open("flights"),
            "query": query,
            "stream": stream,
            "warehouse": warehouse,
        }
    for setting in [one for one in spark.conf.getAll if one.startswith("spark.tidemark.")]:
        spark.conf.unset(setting)
    plt.close("all")
