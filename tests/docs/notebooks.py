"""Where tests execute the notebooks of the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import DOCS


def folder_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a notebook finds the data as in its own folder, and nothing of this session's Spark."""
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(DOCS.parent))
    (tmp_path / "docs/notebooks").mkdir(parents=True)
    (tmp_path / "docs/data").symlink_to(DOCS / "data")
    return tmp_path / "docs/notebooks"
