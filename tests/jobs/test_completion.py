"""Completion: the scripts are sound shell, know every option of the parser, and complete in a real shell."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.jobs.said import process
from tidemark.jobs.cli.completion import pages, script
from tidemark.jobs.cli.main import parser

SHELLS = ("bash", "zsh", "fish")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_knows_every_command_and_every_option(shell: str) -> None:
    text = script(shell, parser())
    known = list(pages(parser()))
    assert {"", "quantile", "plot", "plot cdf", "load"} <= {page.path for page in known}
    for page in known:
        for option in page.options:
            for name in option.names:
                assert re.search(rf"(?<![\w-]){re.escape(_told(shell, name))}(?![\w-])", text), (
                    page.path,
                    name,
                )
        assert all(word in text for word, _ in page.words)


def _told(shell: str, name: str) -> str:
    """How a script names an option."""
    if shell == "fish":
        return f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
    return name


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_takes_its_script(shell: str, tmp_path: Path) -> None:
    said = process("completion", shell)
    assert (said.code, said.err) == (0, "")
    assert said.out == script(shell, parser()) + "\n"
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    path = tmp_path / "script"
    path.write_text(said.out)
    done = subprocess.run([program, "-n", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


COMPLETED = {
    "": {"create", "load", "quantile", "watch", "plot", "completion"},
    "qu": {"quantile"},
    "-": {"-h", "--help", "-w", "--warehouse"},
    "quantile --m": {"--measure", "--missing", "--mode"},
    "quantile 0.5 --mode ": {"quick", "accurate", "exact"},
    "quantile --mode = q": {"quick"},
    "-w load plot ": {"cdf", "quantiles", "histogram", "top"},
    "plot quantiles --o": {"--output"},
    "completion ": {"bash", "zsh", "fish"},
    "load --format c": {"csv"},
    "load --batch ": set(),
    "create --measure load --ke": {"--key", "--key-eps", "--key-delta"},
}


@pytest.mark.parametrize("typed", COMPLETED)
def test_bash_offers_what_fits(typed: str) -> None:
    words = ["tidemark", *typed.split(" ")]
    array = " ".join(f"'{word}'" for word in words)
    ask = f'COMP_WORDS=({array}); COMP_CWORD={len(words) - 1}; _tidemark; printf "%s\\n" "${{COMPREPLY[@]}}"'
    line = ["/bin/bash", "-c", f"{script('bash', parser())}\n{ask}"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    expected = COMPLETED[typed]
    assert expected <= found if typed in {"", "-"} else expected == found, found


def test_bash_completes_commands_and_files_at_a_prompt(tmp_path: Path) -> None:
    """A real prompt in a terminal: the tab key completes a command, then a name with a space."""
    (tmp_path / "two words.csv").write_text("x\n1\n")
    (tmp_path / "script").write_text(script("bash", parser()))
    outer, inner = os.openpty()
    line = ["/bin/bash", "--norc", "--noprofile", "-i"]
    env = {"PS1": "> ", "TERM": "dumb", "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    with subprocess.Popen(
        line, cwd=tmp_path, env=env, stdin=inner, stdout=inner, stderr=inner, start_new_session=True
    ) as shell:
        os.close(inner)
        try:
            os.write(outer, b"source ./script; tidemark() { printf '<%s>' \"$@\"; }\n")
            _until(outer, b"> ")
            os.write(outer, b"tidemark lo\t--inp\ttwo\t\n")
            assert b"<load><--input><two words.csv>" in _until(outer, b"<two words.csv>")
        finally:
            shell.kill()
    os.close(outer)


def _until(terminal: int, words: bytes) -> bytes:
    """What the terminal shows up to the words."""
    found, end = b"", time.monotonic() + 20
    while words not in found:
        ready, _, _ = select.select([terminal], [], [], max(0, end - time.monotonic()))
        assert ready, found
        found += os.read(terminal, 65536)
    return found


FISH = {
    "qu": {"quantile"},
    "plot ": {"cdf", "quantiles", "histogram", "top"},
    "quantile 1 --mode ": {"quick", "exact", "accurate"},
}


@pytest.mark.parametrize("typed", FISH)
def test_fish_offers_what_fits(typed: str) -> None:
    program = shutil.which("fish")
    if program is None:
        pytest.skip("fish is not installed")
    ask = f"{script('fish', parser())}\ncomplete -C 'tidemark {typed}'"
    done = subprocess.run([program, "-c", ask], capture_output=True, text=True, check=True)
    assert {line.split("\t")[0] for line in done.stdout.splitlines()} == FISH[typed]
