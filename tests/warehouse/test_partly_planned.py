"""A range of the cascade of which a plan takes a part never replaces its parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.warehouse.hereloader import Loader, rows_of
from tidemark import query, warehouse
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.table_names import STEPS
from tidemark.warehouse.events import steps
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.events.steps import StepPlan
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.sizes import DEFAULT

FAN = DEFAULT.fan
ROWS = 5


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loader:
    """A load that has planned the batches 0 to 20 and died, while the batches up to 31 completed their range.

    Whoever made the range had looked at the plans before that plan was written.
    """
    loader = Loader.create(tmp_path / "w")
    for number in range(FAN):
        if number == 21:
            plan = StepPlan(0, ((BatchRange("web", 0, 20), 21 * ROWS),))
            steps.commit_plan(loader.store, Race(loader.store, STEPS), plan)
        with monkeypatch.context() as stale:
            stale.setattr(ledger_table, "read_step_plans", lambda *_: [])
            loader.stream(rows_of(number, ROWS))
    return loader


def seen(loader: Loader) -> int:
    answer = query.open(loader.uri).quantile(0.5, mode="quick")
    return int(answer.N + answer.nulls)


@pytest.mark.slow
def test_no_batch_is_lost_by_maintenance_between_a_plan_and_its_load(planned: Loader) -> None:
    assert seen(planned) == FAN * ROWS
    planned.maintain(grace="0")
    assert seen(planned) == FAN * ROWS
    planned.load_live()
    assert seen(planned) == FAN * ROWS
    planned.maintain(grace="0")
    planned.load_live()
    assert seen(planned) == FAN * ROWS
    assert warehouse.verify(planned.uri).ok


@pytest.mark.slow
def test_maintenance_that_looks_at_finished_loads_alone_is_caught(
    planned: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_table, "partly_planned", lambda *_: False)
    planned.maintain(grace="0")
    planned.load_live()
    assert seen(planned) != FAN * ROWS
