"""The README's Python runs as it stands, block after block, and its answers are right."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent


def test_every_python_block_of_the_readme_runs_and_the_answer_keeps_its_promise(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    names: dict[str, Any] = {"spark": spark, "path": str(tmp_path / "flights")}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)  # noqa: S102  the README is ours
    delays = np.sort(pq.read_table("docs/data/flights-20k.parquet").column("delay").to_numpy())
    answer = names["answer"]
    rank = int(np.searchsorted(delays, answer.value, "right"))
    assert answer.rank_lo <= rank <= answer.rank_hi
    assert answer.error_bound <= 0.01 * answer.m
    assert answer.low <= delays[int(np.ceil(0.99 * len(delays))) - 1] <= answer.high
    assert "FAIL" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["README.md", "DESIGN.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_every_file_that_a_page_links_to_is_there(name: str) -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", (ROOT / name).read_text()):
        assert (ROOT / link).exists(), link
