"""Records of removals: what they say comes back, what is left of a plan adds up, no number comes twice."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import REMOVALS
from tidemark.warehouse.events import removals
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.events.removals import Removal, RemovedPart
from tidemark.warehouse.events.steps import StepPlan
from tidemark.warehouse.runs.levels import Run
from tidemark.warehouse.runs.run_tables import net_of, new_attempt

PARTS = {BatchRange("load:a", 7, 7): 10, BatchRange("stream", 0, 31): 20, BatchRange("stream", 32, 32): 5}


@st.composite
def drawn(draw: st.DrawFn) -> list[Removal]:
    found, left = [], dict(PARTS)
    for number in range(draw(st.integers(0, 5))):
        parts = []
        for step, batches in enumerate(PARTS):
            rows = draw(st.integers(0, left[batches]))
            left[batches] -= rows
            parts.append(RemovedPart(step, batches, rows))
        kind: removals.Kind = draw(st.sampled_from(("delete", "unload")))
        request = draw(st.none() | st.text(max_size=3))
        found.append(Removal(number, kind, tuple(parts), draw(st.booleans()), f"{number}-x.parquet", request))
    return found


@given(drawn())
def test_records_come_back_and_what_is_left_adds_up(given_removals: list[Removal]) -> None:
    assert removals.removals_of_rows(removals.rows_of_removals(given_removals)) == given_removals
    for up_to in range(-1, 6):
        gone = sum(one.rows for one in given_removals if one.number <= up_to)
        removed = removals.Removed(5, tuple(given_removals)).up_to(up_to)
        left = removed.parts(PARTS)
        assert sum(left.values()) == sum(PARTS.values()) - gone
        for step, (batches, rows) in enumerate(PARTS.items()):
            plan = StepPlan(step, ((batches, rows),))
            assert removed.rows([plan]) == left[batches] >= 0


@given(drawn(), st.integers(-1, 6), st.integers(-1, 6))
def test_a_void_removal_did_not_happen_and_its_number_is_not_used_again(
    given_removals: list[Removal], decided: int, voided: int
) -> None:
    happened = removals.Removed.seen(given_removals, decided, voided)
    assert [one.number for one in happened.removals] == [
        one.number for one in given_removals if one.number <= decided and one.number != voided
    ]
    assert removals.next_number(given_removals, decided) > max(decided, len(given_removals) - 1)


@given(drawn(), st.integers(0, 2), st.integers(0, 2), st.integers(-1, 6))
def test_pending_are_later_removals_of_the_run_s_steps(
    given_removals: list[Removal], first: int, last: int, number: int
) -> None:
    first, last = sorted((first, last))
    found = removals.Removed(5, tuple(given_removals)).pending(first, last, number)
    for one in given_removals:
        touches = any(part.rows and first <= part.step <= last for part in one.parts)
        assert (one in found) == (touches and one.number > number)


def test_a_run_s_file_says_what_it_is_net_of() -> None:
    for number in (-1, 0, 7, 12_345):
        path = f"run={Run(0, 4, 1).name}/{new_attempt(number)}-00003-0a1b2c3d.parquet"
        assert net_of(path) == number
    assert new_attempt(3) != new_attempt(3)


def test_records_are_committed_joined_and_withdrawn(tmp_path: Path) -> None:
    store = Store.from_uri(tmp_path / "w")
    tables.create(store, REMOVALS, removals.SCHEMA)
    (batches, _), *_ = PARTS.items()
    wanted = [
        Removal(number, "delete", (RemovedPart(0, batches, 1),), kept=False, file=f"{number}.parquet")
        for number in range(7)
    ]
    for one in wanted:
        race = Race(store, REMOVALS)
        assert removals.commit_removal(store, race, one)
    table = tables.open_table(store, REMOVALS)
    assert removals.read_removals(store, table) == wanted
    assert len(table.file_uris()) < len(wanted)
    late = Race(store, REMOVALS)
    _ = late.table

    def kept(one: Removal) -> Removal | None:
        return None if one.number == 6 else one

    removals.replace_records(store, kept)
    assert not removals.commit_removal(store, late, wanted[6])  # planned on a version that is not the newest
    removals.replace_records(store, kept)
    assert removals.read_removals(store, tables.open_table(store, REMOVALS)) == wanted[:6]
