"""The blocks of a page, and how each kind is run: as a reader would, one after the other.

python    runs, in one namespace a page
shell     is parsed by the real parsers, and runs unless it needs a cluster, Kafka or the network
sql       runs in Spark, one statement after the other
json      parses
ini       is a unit of systemd: systemd takes it, if it is there, and its command is parsed by the real parser
text      is what the block above it printed; "..." stands for anything
"""

from __future__ import annotations

import argparse
import configparser
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from tidemark.jobs.cli import main
from tidemark.jobs.cli.options import changing, loading, parts, serving, shared

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
MAKEFILE = (ROOT / "Makefile").read_text()
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

KINDS = ("python", "shell", "sql", "json", "ini", "text")
# What needs more than this machine, or a shell, or does not end by itself.
ELSEWHERE = (
    *("tidemark serve ", "tidemark mcp ", "sql_server.py "),
    *(" --master ", " --bootstrap ", " /data/", "completion "),
)
JOBS = {
    "load_batch": loading.LOAD,
    "stream_events": loading.STREAM,
    "maintain": changing.MAINTAIN,
    "sql_server": serving.SQL_SERVER,
}


@dataclass(frozen=True)
class Block:
    kind: str
    text: str
    line: int

    def __str__(self) -> str:
        return f"line {self.line}"


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of code, in their order; what Sphinx makes of its own directives is none."""
    source = page.read_text()
    return [
        Block(fence[1], fence[2], source[: fence.start()].count("\n") + 1)
        for fence in re.finditer(r"^```([^\s{]+)\n(.*?)^```$", source, re.DOTALL | re.MULTILINE)
    ]


def is_shown(text: str, printed: str) -> bool:
    """Whether what was printed is what the page shows."""
    pattern = ".*?".join(map(re.escape, _lines(text).split("...")))
    return re.fullmatch(pattern, _lines(printed), re.DOTALL) is not None


def _lines(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def run_page(page: Path, names: dict[str, Any]) -> None:
    """Every block in its order; AssertionError where one does not do what the page says."""
    printed = ""
    for block in blocks(page):
        where = f"{page.relative_to(ROOT)}, {block}"
        if block.kind == "text":
            assert is_shown(block.text, printed), f"{where}: printed was\n{printed}"
            continue
        out = io.StringIO()
        with redirect_stdout(out):
            if block.kind == "python":
                exec(compile("\n" * block.line + block.text, str(page), "exec"), names)  # noqa: S102  the pages are ours
            elif block.kind == "shell":
                run_shell(block.text)
            elif block.kind == "sql":
                for statement in block.text.split(";"):
                    names["spark"].sql(statement).show(truncate=False)
            elif block.kind == "json":
                json.loads(block.text)
            elif block.kind == "ini":
                check_unit(block.text)
        printed = out.getvalue()


def run_shell(text: str) -> None:
    """Every command of a block: checked by its parser, and run where this machine has all that it needs."""
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        run = checked(line)
        if not any(word in line for word in ELSEWHERE):
            run()


def check_unit(text: str) -> None:
    """Takes a unit of systemd apart; AssertionError where systemd, or our parser, would."""
    unit = configparser.ConfigParser(interpolation=None)
    unit.read_string(text)
    command = unit["Service"]["ExecStart"]
    checked(command)
    if systemd := shutil.which("systemd-analyze"):
        with tempfile.TemporaryDirectory(prefix="unit-") as folder:
            path = Path(folder, "page.service")  # its program must exist
            path.write_text(text.replace(command.split()[0], sys.executable))
            said = subprocess.run([systemd, "verify", path], capture_output=True, text=True, check=False)
        assert (said.returncode, said.stderr) == (0, ""), said.stderr


def checked(line: str) -> Callable[[], object]:
    """What runs the command, its words having been taken by the real parser."""
    words = shlex.split(line, comments=True)
    if "|" in words:
        at = words.index("|")
        return lambda: _piped(checked(shlex.join(words[:at])), words[at + 1 :])
    for word in words:
        assert not word.startswith("dist/") or f"tidemark-{VERSION}" in word, word
    if words[0] == "export":
        name, value = words[1].split("=", 1)
        return lambda: os.environ.update({name: value})
    if words[0] == "make":
        assert all(re.search(rf"^{target}:.*## ", MAKEFILE, re.MULTILINE) for target in words[1:]), line
        return lambda: None
    if words[0].endswith("spark-submit"):
        return _checked_submit(words[1:])
    if words[0].endswith("python"):
        assert words[1] == "-m"
        return _checked_job(words[2].removeprefix("tidemark.jobs."), words[3:])
    if words[0] == "eval":
        substitution = re.fullmatch(r"\$\((.*)\)", words[1])
        assert substitution, line
        return checked(substitution[1])
    assert Path(words[0]).name == "tidemark", line
    main.parser().parse_args(words[1:])
    return lambda: _succeed(main.main, words[1:])


def _piped(run: Callable[[], object], reader: list[str]) -> None:
    """Runs a command and prints what jq makes of its JSON; what the page reads must be there."""
    out = io.StringIO()
    with redirect_stdout(out):
        run()
    assert reader[0] == "jq", reader
    print(json.dumps(jq(reader[1], out.getvalue())))


def jq(path: str, text: str) -> Any:
    """The value at a path such as .answers[0].value; AssertionError where jq would say null."""
    value = json.loads(text)
    for name, place in re.findall(r"\.(\w+)|\[(\d+)\]", path):
        value = value.get(name) if name else value[int(place)]
        assert value is not None, f"{path} is null in {text}"
    return value


def _checked_submit(words: list[str]) -> Callable[[], object]:
    at = next(i for i, word in enumerate(words) if word.endswith(".py"))
    assert {word for word in words[:at] if word.startswith("--")} <= submit_options(), words
    assert (ROOT / words[at]).exists(), words[at]
    return _checked_job(Path(words[at]).stem, words[at + 1 :])


def _checked_job(name: str, argv: list[str]) -> Callable[[], object]:
    """`verify` and `demo` have what every command has."""
    parser = argparse.ArgumentParser()
    parts.add(parser, JOBS.get(name, shared.COMMON))
    parser.parse_args(argv)
    main = import_module(f"tidemark.jobs.{name}").main
    return lambda: _succeed(main, argv)


def _succeed(main: Callable[[list[str]], int], argv: list[str]) -> None:
    assert main(argv) == 0, argv


@cache
def submit_options() -> set[str]:
    """The options that this Spark's spark-submit has."""
    submit = Path(sys.executable).parent / "spark-submit"
    told = subprocess.run([submit, "--help"], capture_output=True, text=True, check=False, env=_plain())
    found = set(re.findall(r"^\s+(?:-\w, )?(--[\w-]+)", told.stdout + told.stderr, re.MULTILINE))
    assert {"--master", "--packages"} <= found
    return found


def _plain() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
