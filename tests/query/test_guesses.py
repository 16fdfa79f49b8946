"""Answers while a reader looks for newer data: what fails is asked again, a fault of ours is raised."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tidemark import query, warehouse
from tidemark.query.asking import ask as asking
from tidemark.warehouse.errors import DamagedWarehouse, EmptyWindow, StoreUnavailable


@pytest.mark.parametrize(
    ("error", "is_ours"),
    [
        (DamagedWarehouse("a file is missing"), False),
        (StoreUnavailable("no answer"), False),
        (EmptyWindow("no rows"), False),
        (OSError("no such file"), False),
        (KeyError("runs"), True),
        (TypeError("None"), True),
        (AssertionError(), True),
    ],
)
def test_a_guess_that_failed_is_asked_again_unless_the_fault_is_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, is_ours: bool
) -> None:
    warehouse.create(None, tmp_path, ["x"], schema=pa.schema([("x", pa.float64())]))
    guess: Future[int] = Future()
    guess.set_exception(error)
    monkeypatch.setattr(asking, "_look", lambda *_: (6, guess))
    request: Any = SimpleNamespace(plan=lambda _: SimpleNamespace(answer=lambda view: view + 1))
    session = query.open(tmp_path)._session
    if is_ours:
        with pytest.raises(type(error)):
            asking.ask(session, request)
    else:
        assert asking.ask(session, request) == 7
