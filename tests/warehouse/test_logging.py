"""The library tells its logger what it does, and prints nothing; jobs show what it warns of."""

from __future__ import annotations

import argparse
import ast
import logging
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.warehouse.hereloader import Loader
from tidemark.jobs.cli.exit_codes import job_end
from tidemark.jobs.spark.session import _raise_interrupt

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = ("sketches", "warehouse", "stream", "query")
PRINTS = re.compile(
    r"^(print|sys\.(stdout|stderr)(\.\w+)?|warnings\.warn|logging\.(basicConfig|info|warning|error))$"
)


@pytest.fixture
def logged(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> list[logging.LogRecord]:
    """What a life of a warehouse logs; nothing of it may be printed, the work of Spark's tasks included."""
    with caplog.at_level(logging.INFO, "tidemark"):
        loader = Loader.create(tmp_path / "w")
        for _ in range(3):
            loader.round()
    assert capfd.readouterr() == ("", "")
    return caplog.records


@pytest.mark.slow
def test_loads_merges_maintenance_and_creation_are_told_at_info(logged: list[logging.LogRecord]) -> None:
    told = {record.name: record.getMessage() for record in logged}
    assert told.keys() == {"tidemark.create", "tidemark.load", "tidemark.maintain"}
    assert {record.levelno for record in logged} == {logging.INFO}
    text = "\n".join(record.getMessage() for record in logged)
    assert "created for x, n, k" in text
    assert "runs/x: step 0 is in history, 60 rows" in text
    assert "runs/x: merged 3 runs into L01-0000000000-0000000002" in text
    assert "keys/k: merged" in text
    assert "load loaded, 120 rows" in text
    assert re.search(r"maintained: \d+ files swept", text)


@pytest.mark.slow
def test_no_row_is_told(logged: list[logging.LogRecord]) -> None:
    text = "\n".join(record.getMessage() for record in logged)
    assert not re.search(r"\bk[0-5]\b", text)  # a key of the rows


def printed(source: str) -> list[str]:
    """The calls of a module that write where the caller did not ask for it."""
    calls = [node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [name for name in map(ast.unparse, calls) if PRINTS.match(name)]


@pytest.mark.parametrize("package", LIBRARY)
def test_no_module_of_the_library_prints(package: str) -> None:
    for path in (ROOT / package).glob("*.py"):
        assert printed(path.read_text()) == [], path.name


def test_a_module_that_prints_is_caught() -> None:
    source = "import sys\nprint(1)\nsys.stderr.write('x')\nlogging.warning('x')\n_LOG.warning('x')\n"
    assert printed(source) == ["print", "sys.stderr.write", "logging.warning"]


@pytest.mark.slow
def test_without_a_handler_of_the_caller_s_warnings_go_nowhere() -> None:
    """In a fresh process, where no test framework has put a handler of its own."""
    warn = "logging.getLogger('tidemark.commits').warning('lost a race')"
    script = f"import logging; from tidemark import warehouse; {warn}"
    found = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert (found.stdout, found.stderr) == ("", "")


def warn(_: argparse.Namespace) -> int:
    logging.getLogger("tidemark.commits").info("steps: all is well")
    logging.getLogger("tidemark.commits").warning("steps: try %d lost the race", 1)
    return 0


def fail(given: argparse.Namespace) -> int:
    warn(given)
    raise OSError("gone")


@pytest.mark.parametrize(("run", "code"), [(warn, 0), (fail, 1)])
def test_a_job_shows_warnings_on_stderr_while_it_runs(
    capsys: pytest.CaptureFixture[str], run: Callable[[argparse.Namespace], int], code: int
) -> None:
    before = list(logging.getLogger("tidemark").handlers)
    with job_end(argparse.Namespace(), needs_warehouse=False) as end:
        end.code = run(argparse.Namespace())
    assert end.code == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == "warning: steps: try 1 lost the race"
    assert logging.getLogger("tidemark").handlers == before


def test_control_c_in_a_process_with_spark_leaves_the_loggers_of_others_alone() -> None:
    with pytest.raises(KeyboardInterrupt):
        _raise_interrupt()
    assert logging.getLogger("tidemark.commits").isEnabledFor(logging.WARNING)
    assert not logging.getLogger("py4j.clientserver").isEnabledFor(logging.CRITICAL)
    root = logging.getLogger()
    for path, shown in (("/lib/py4j/java_gateway.py", False), ("/home/py4j.py", True)):
        record = logging.LogRecord("root", logging.ERROR, path, 1, "interrupted", (), None)
        assert bool(root.filter(record)) == shown
