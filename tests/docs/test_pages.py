"""Every block of code on the site does what the page says."""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.docs.pages import DOCS, KINDS, ROOT, blocks, check_unit, checked, is_shown, run_page, run_shell
from tests.stores.server import running
from tidemark import warehouse

PAGES = sorted({*DOCS.rglob("*.md")} - {DOCS / "start.md"})
ERRORS = DOCS / "troubleshooting.md"
STORES = DOCS / "guides" / "object_stores.md"  # runs against a server, below
WHEEL = DOCS / "guides" / "wheel.md"  # tests/jobs/test_wheel.py runs it in an environment of its own


def test_the_start_page_runs(started: Path) -> None:
    assert (started / "flights/events").is_dir()


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page not in (ERRORS, STORES, WHEEL) and blocks(page)],
    ids=lambda page: page.stem,
)
def test_a_page_runs_and_prints_what_it_shows(page: Path, names: dict[str, Any]) -> None:
    run_page(page, names)


def test_the_page_on_object_stores_runs_against_a_server(
    names: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with running() as server:
        for name, value in server.options.items():
            monkeypatch.setenv(name, value)  # the page's own exports end with the test
        run_page(STORES, names)
        assert not [request for request in server.requests() if request.fault]


@pytest.mark.parametrize("page", [*PAGES, DOCS / "start.md", ROOT / "README.md"], ids=lambda page: page.stem)
def test_no_block_is_left_out(page: Path) -> None:
    """Each is of a kind that is run, and what is shown as printed stands below what prints it."""
    found = blocks(page)
    assert {block.kind for block in found} <= set(KINDS)
    assert len(re.findall(r"^ *```[^`\s{]", page.read_text(), re.MULTILINE)) == len(found)
    if page != ERRORS:
        below = ["", *(block.kind for block in found)]
        assert all(below[i] in ("python", "shell") for i, one in enumerate(found) if one.kind == "text")


@pytest.mark.slow
def test_the_shell_lines_of_the_readme_are_taken_by_the_real_parsers() -> None:
    text = (ROOT / "README.md").read_text()
    commands = r"(?:\.venv/bin/|make |tidemark |export )"
    found = re.findall(rf"^    ({commands}(?:.*\\\n)*.*)$", text, re.MULTILINE)
    assert len(found) >= 10
    for one in found:
        checked(re.sub(r"\\\n\s*", "", one))


@pytest.mark.parametrize(
    "wrong",
    ["ExecStart=tidemark sql-server --user names", "ExecStart=tidemark sql-server\nRestart on-failure"],
)
def test_a_wrong_unit_is_caught(wrong: str) -> None:
    check_unit("[Service]\nExecStart=/opt/tidemark/bin/tidemark sql-server\n")
    with pytest.raises((AssertionError, SystemExit, configparser.Error)):
        check_unit(f"[Service]\n{wrong}\n")


@pytest.mark.parametrize(
    "line",
    [
        "tidemark quantile 0.5 --las 14d",
        "spark-submit --py-file dist/tidemark-0.2.0.zip jobs/load_batch.py --input x --batch y",
        "spark-submit jobs/load_batches.py --input x --batch y",
        "spark-submit jobs/load_batch.py --inputs x --batch y",
        "spark-submit --py-files dist/tidemark-0.0.9.zip jobs/load_batch.py --input x --batch y",
        "python -m tidemark.jobs.verify --warehouses w",
        "make docks",
        "docker run tidemark",
    ],
)
def test_a_wrong_command_is_caught(line: str) -> None:
    with pytest.raises((AssertionError, SystemExit)):
        checked(line)


def test_a_page_that_shows_something_else_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_shown("a ...\nd  \n", "a b\nc\nd\n")
    assert not is_shown("a\n", "a b\n")
    assert not is_shown("...b\n", "a\n")
    monkeypatch.setattr("tests.docs.pages.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1)\n```\n```text\n2\n```\n")
    with pytest.raises(AssertionError, match="printed was\n1"):
        run_page(page, {})


def test_a_path_that_jq_finds_null_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.docs.pages.ROOT", tmp_path)
    rows = pa.table({"x": [7]})
    warehouse.create(None, tmp_path / "w", ["x"], schema=rows.schema)
    warehouse.load(None, tmp_path / "w", rows, "a")
    page, line = tmp_path / "page.md", f"tidemark quantile 0.5 -w {tmp_path / 'w'} --json | jq"
    page.write_text(f"```shell\n{line} '.answers[0].value'\n```\n```text\n7\n```\n")
    run_page(page, {})
    for path in (".value", ".answers[0].values"):
        page.write_text(f"```shell\n{line} '{path}'\n```\n")
        with pytest.raises(AssertionError, match="is null"):
            run_page(page, {})


def test_a_command_that_fails_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError):
        run_shell("tidemark info -w nothing")
