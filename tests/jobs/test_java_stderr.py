"""What Java says while it starts is shown only where it does not start; what it says later is passed on."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tidemark.jobs.spark.java_stderr import StartOutput, hold_back
from tidemark.jobs.spark.session import SessionError

pytestmark = pytest.mark.spark

COUNT = 5000  # lines: more than a pipe holds
TALK = f"for i in $(seq {COUNT}); do echo noise $i >&2; done; printf 'no end' >&2"
NOISE = "".join(f"noise {i}\n" for i in range(1, COUNT + 1)) + "no end"
ERRORS = "an error\nand its cause\n"


class Java:
    """Processes that talk until they are up; when their input ends they tell errors, and end."""

    def __init__(self) -> None:
        self.children: list[subprocess.Popen[bytes]] = []
        # The Java of a session that is already up has a thread that reads until it ends.
        self.others = set(threading.enumerate())

    def start(self, said: StartOutput) -> None:
        line = ["/bin/sh", "-c", f"{TALK}; echo up; read line; printf '{ERRORS}' >&2"]
        child = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said.sink)
        self.children.append(child)
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"

    def end(self) -> None:
        """All have ended, and what they said has been read."""
        while self.children:
            self.children.pop().communicate()
        for thread in set(threading.enumerate()) - self.others:
            if "(_read)" in thread.name:
                thread.join(20)


@pytest.fixture
def java() -> Iterator[Java]:
    processes = Java()
    yield processes
    processes.end()


def check_a_start(holding: Any, java: Java, capfd: pytest.CaptureFixture[str]) -> None:
    """It says nothing, and all that is said after it is there."""
    with holding() as said:
        java.start(said)
    assert capfd.readouterr().err == ""
    java.end()
    assert capfd.readouterr().err == ERRORS


def test_a_start_is_quiet_and_errors_after_it_are_told(java: Java, capfd: pytest.CaptureFixture[str]) -> None:
    check_a_start(hold_back, java, capfd)


def fails(java: Java, error: BaseException) -> None:
    with hold_back() as said:
        java.start(said)
        if isinstance(error, SessionError):
            assert said.show() == NOISE
        raise error


@pytest.mark.parametrize("error", [SessionError("no Java"), RuntimeError("no session")])
def test_a_start_that_fails_shows_everything_once_and_in_its_order(
    error: Exception, java: Java, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whether who started Java has looked at it before, or not."""
    with pytest.raises(type(error)):
        fails(java, error)
    assert capfd.readouterr().err == NOISE


def test_control_c_while_java_starts_is_quiet(java: Java, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        fails(java, KeyboardInterrupt())
    java.end()
    assert capfd.readouterr().err == ""


def test_a_start_that_shows_or_swallows_what_is_said_is_caught(
    java: Java, capfd: pytest.CaptureFixture[str]
) -> None:
    """As pyspark starts Java, with this process's standard error; and with a file that nobody reads."""

    @contextmanager
    def shown() -> Iterator[StartOutput]:
        yield StartOutput(2)

    @contextmanager
    def swallowed() -> Iterator[StartOutput]:
        with Path(os.devnull).open("wb") as nobody:
            yield StartOutput(nobody.fileno())

    with pytest.raises(AssertionError, match="noise 1"):
        check_a_start(shown, java, capfd)
    java.end()
    capfd.readouterr()
    with pytest.raises(AssertionError, match="an error"):
        check_a_start(swallowed, java, capfd)
