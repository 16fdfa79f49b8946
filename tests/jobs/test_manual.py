"""The pages: each has examples that parse, and each command is there."""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from tests.docs.pages import jq
from tests.jobs.said import ROOT, tidemark
from tidemark.jobs.cli import main
from tidemark.jobs.cli.commands import COMMANDS
from tidemark.option_table import OPTIONS


@pytest.mark.parametrize("page", [one.name for one in COMMANDS])
def test_each_page_has_examples_that_parse(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = tidemark(capsys, *page.split(), "--help")
    assert said.code == 0
    assert "exit codes:" in said.out
    (found,) = [one for one in COMMANDS if one.name == page]
    assert found.examples
    for example in found.examples:
        assert example in said.out
        main.parser().parse_args(_argv(example))


def _argv(line: str) -> list[str]:
    """What follows the command's name, up to a pipe; also where the shell is to evaluate what it prints."""
    words = shlex.split(re.sub(r'"\$\((.*)\)"|\\\n', r" \1", line), comments=True)
    behind = words[words.index("tidemark") + 1 :]
    return behind[: behind.index("|")] if "|" in behind else behind


@pytest.mark.slow
def test_what_jq_reads_in_the_examples_is_there(flights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of the help pages and of the README, asked of real flights."""
    examples = [example for command in COMMANDS for example in command.examples]
    examples += re.findall("^    (tidemark .*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    read = [example for example in examples if "| jq " in example]
    assert len(read) >= 6
    for example in read:
        line, path = example.split("| jq ")
        argv = [flights if word == "flights" else word for word in _argv(line)]
        said = tidemark(capsys, *argv, *([] if "-w" in argv else ["-w", flights]))
        assert jq(path.strip("'"), said.out) is not None, example


def test_every_command_is_reached_by_its_module(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [one.run.split(":") for one in COMMANDS if one.run]
    assert all(callable(getattr(import_module(module), name)) for module, name in runs)
    assert tidemark(capsys, "--help").out.count("quantile") >= 1


def test_the_help_of_create_gives_the_default_grace(capsys: pytest.CaptureFixture[str]) -> None:
    help_text = " ".join(tidemark(capsys, "create", "--help").out.split())
    assert f"how long old files are kept for readers (default {OPTIONS['grace'].default})" in help_text
