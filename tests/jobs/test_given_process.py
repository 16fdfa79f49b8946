"""A command tells and ends the same way whatever process it was given: streams, locale, Ctrl-C.

`check_closed`, `check_bytes` and `check_interrupts` are what broken variants must fail.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from tests.jobs.said import ROOT, environment
from tidemark import warehouse

COMMAND = "import sys; {before}; from tidemark.jobs.cli import main, process; {broken}; sys.exit(main.main())"
ROWS = pa.table({"m": [1.0, 2.0], "k": ["a", "b"]})
# A signal while a module is imported; some turn the interrupt into an ImportError of their own.
AT_IMPORT = """
import os, signal
class Finder:
    def find_spec(self, name, *_):
        if name == {name!r}:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                if {hidden}:
                    raise ImportError(name) from None
                raise
sys.meta_path.insert(0, Finder())
"""
SCRIPTS = [
    f"jobs/{name}.py" for name in ("load_batch", "demo", "maintain", "sql_server", "stream_events", "verify")
]
SCRIPTS.append("jobs/cli/main.py")
SCRIPT = (
    "import runpy, sys; {before}; {broken}; del sys.argv[0]; runpy.run_path(sys.argv[0], None, '__main__')"
)
C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0"}


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("given") / "w"
    warehouse.create(None, path, ["m"], key="k", eps=0.1, schema=ROWS.schema)
    warehouse.load(None, path, ROWS, "a")
    return path


def run(
    words: Sequence[str | bytes],
    shell: str = "",
    *,
    before: str = "pass",
    broken: str = "pass",
    code: str = COMMAND,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own; `shell` says what becomes of its streams."""
    code = code.format(before=f"exec({before!r})", broken=broken)
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {shell}', "sh", sys.executable, "-c", code, *words],
        cwd=ROOT,
        env=environment(**variables),
        capture_output=True,
        text=True,
        check=False,
    )


def check_closed(uri: Path, broken: str = "pass") -> None:
    asked = ["quantile", "1", "-w", str(uri), "--json"]
    whole = run(asked).stdout
    for shell in (">&-", "2>&-", "<&-", ">&- 2>&-"):
        done = run(asked, shell, broken=broken)
        assert (done.returncode, done.stderr) == (0, ""), shell
        assert done.stdout == ("" if shell.startswith(">") else whole), shell
    refused = run(["quantile", "7", "-w", str(uri)], ">&-", broken=broken)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert run(["quantile", "7", "-w", str(uri)], "2>&-", broken=broken).returncode == 2


def test_closed_streams_lose_what_is_written_to_them_and_nothing_else(uri: Path) -> None:
    check_closed(uri)


def test_closed_streams_that_nobody_opens_are_caught(uri: Path) -> None:
    with pytest.raises(AssertionError):
        check_closed(uri, "process._open_streams = lambda: None")


def check_full(uri: Path, broken: str = "pass") -> None:
    for words, shell in (
        (["quantile", "1", "-w", str(uri)], ">/dev/full"),
        (["completion", "bash"], ">/dev/full"),
        (["--version"], ">/dev/full"),
        (["--version"], ">/dev/full 2>/dev/full"),
    ):
        done = run(words, shell, broken=broken)
        assert done.returncode == 1, words
        if "2>" not in shell:
            assert done.stderr.startswith("error: "), words
            assert "No space left on device" in done.stderr
            assert done.stderr.count("\n") == 1


def test_an_output_that_takes_no_more_is_one_error(uri: Path) -> None:
    check_full(uri)


def test_an_output_that_nobody_catches_is_caught(uri: Path) -> None:
    with pytest.raises(AssertionError):
        check_full(
            uri, "from tidemark.jobs.cli import exit_codes; exit_codes.OSError = main.OSError = KeyError"
        )


def test_a_path_from_a_folder_that_was_deleted_is_bad_input(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    before = f"import os; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r})"
    done = run(["quantile", "1", "-w", "w"], before=before)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "which was deleted. Give the whole path" in done.stderr


def test_without_an_environment_and_in_another_zone_times_are_utc(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("t,m\n2026-01-01 23:30:00,1\n2026-01-02 00:30:00,2\n", "utf-8")
    at, words = f"-w {tmp_path}/w", f"--input {rows} --batch a"
    lines = [
        f"create {at} --measure m --time t --tick 1h",
        f"load {at} {words}",
        f"quantile 0.5 {at} --between 2026-01-02 2026-01-03 --json",
    ]
    given = [line.split() for line in lines]
    code = f"import sys; from tidemark.jobs.cli import main; sys.exit(sum(map(main.main, {given})))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"TZ": "Asia/Kolkata", "LANG": "C", "PYTHONPATH": str(ROOT)},
        umask=0o077,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["window"] == {"start": "2026-01-02T00:00:00+00:00", "end": "2026-01-03T00:00:00+00:00"}
    assert [one["value"] for one in found["answers"]] == [2.0]


def check_bytes(uri: Path, broken: str = "pass") -> None:
    refused: list[list[str | bytes]] = [
        ["load", "-w", str(uri), "--input", "in.parquet", "--batch", b"\xff"],
        ["info", "-w", b"/tmp/\xff"],
        [b"\xff"],
    ]
    for words in refused:
        for variables in ({}, C_LOCALE):
            done = run(words, broken=broken, **variables)
            assert done.returncode == 2, done.stderr
            assert done.stderr.startswith("error: not text in UTF-8:"), done.stderr
            assert "\\xff. Names and paths must be UTF-8.\n" in done.stderr
    secret = ("--storage-option", b"AWS_SECRET_ACCESS_KEY=hidden\xff")
    for given in (secret, [b"=".join([secret[0].encode(), secret[1]])]):
        done = run(["info", "-w", "s3://bucket/w", *given], broken=broken)
        assert done.returncode == 2
        assert "--storage-option AWS_SECRET_ACCESS_KEY=..." in done.stderr
        assert "hidden" not in done.stderr
    done = run(["freq", "é", "-w", str(uri)], broken=broken, **C_LOCALE)
    assert (done.returncode, done.stderr) == (0, "")
    assert "é" in done.stdout


def test_arguments_that_are_not_utf8_are_bad_input_and_others_are_taken_in_any_locale(uri: Path) -> None:
    check_bytes(uri)


def test_arguments_that_nobody_looks_at_are_caught(uri: Path) -> None:
    with pytest.raises(AssertionError):
        check_bytes(uri, "process._is_text = lambda _: True")


def check_interrupts(uri: Path, broken: str = "pass") -> None:
    for name in ("tidemark.warehouse.errors", "numpy", "pyarrow"):
        for hidden in (False, True):
            before = AT_IMPORT.format(name=name, hidden=hidden)
            done = run(["info", "-w", str(uri)], before=before, broken=broken)
            assert (done.returncode, done.stderr) == (130, ""), name


def test_control_c_during_an_import_ends_with_130_and_without_a_word(uri: Path) -> None:
    check_interrupts(uri)


def test_an_interrupt_that_an_import_hides_is_caught(uri: Path) -> None:
    with pytest.raises(AssertionError):
        check_interrupts(uri, "process._interrupt = __import__('signal').default_int_handler")


# An object that only itself holds, and that tells when it goes away.
CYCLE = """
class Cycle:
    def __del__(self, tell=__import__("os").write):
        tell(2, b"gone")
cycle = Cycle()
cycle.itself = cycle
del cycle
"""


def check_end(broken: str = "pass") -> None:
    for more, told in (("", ""), ("import duckdb", "gone")):
        before = f"import gc, sys; gc.disable(); {more}\n{CYCLE}"
        done = run(["jobs/cli/main.py", "--version"], before=before, broken=broken, code=SCRIPT)
        assert (done.returncode, done.stderr) == (0, told), more


def test_a_command_ends_at_once_where_no_module_minds() -> None:
    check_end()


def test_an_end_that_looks_through_all_objects_is_caught() -> None:
    with pytest.raises(AssertionError):
        check_end("__import__('gc').freeze = lambda: None")


def check_interrupted_scripts(broken: str = "pass") -> None:
    for script in SCRIPTS:
        before = AT_IMPORT.format(name="argparse", hidden=False)
        done = run([script, "--help"], before=before, broken=broken, code=SCRIPT)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", ""), script


def test_control_c_while_a_job_imports_its_first_modules_ends_with_130_and_without_a_word() -> None:
    check_interrupted_scripts()


def test_a_script_that_starts_with_pythons_own_handler_is_caught() -> None:
    with pytest.raises(AssertionError):
        check_interrupted_scripts("sys.modules['tidemark.jobs.cli.starting'] = sys")
