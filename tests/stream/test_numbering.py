"""Batch numbers: whatever comes, crashes and comes again, each batch counts once, or is refused aloud."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.soak import draws
from tests.stream.played import Crash, append, append_module, crash, create, load, row, values_in
from tests.warehouse.disk import rows_of, tables_of
from tidemark import query, warehouse
from tidemark.warehouse import BatchMismatch, DamagedWarehouse, InputError
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.races import Race
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS, LEDGER
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.ingest import append_rows, batch_numbers, same_rows
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.ledger.ledger_rows import to_arrow

start_module = importlib.import_module("tidemark.stream.start")  # the package gives its name to its function
POINTS = ("rejected", "events", "ledger")  # the commits of a batch, in their order


@pytest.fixture
def uri(tmp_path: Path) -> Path:
    create(tmp_path / "w")
    return tmp_path / "w"


def crashing_before(point: str) -> pytest.MonkeyPatch:
    """The process dies before that commit."""
    patch, commit = pytest.MonkeyPatch(), Race.commit_numbered

    def dying(race: Race, *given: Any) -> bool:
        if race.name == point:
            crash()
        return commit(race, *given)

    patch.setattr(Race, "commit_numbered", dying)
    return patch


def append_and_crash(uri: Path, point: str, *args: Any) -> None:
    patch = crashing_before(point)
    try:
        with pytest.raises(Crash):
            append(uri, *args)
    finally:
        patch.undo()


def test_numbers_rise_and_may_leave_some_out(uri: Path) -> None:
    for number in (0, 5, 7, 40):
        assert append(uri, number, [row(number)])
    assert values_in(uri) == [0, 5, 7, 40]
    assert warehouse.verify(uri).ok


def test_a_number_that_was_passed_over_is_refused_and_nothing_changes(uri: Path) -> None:
    for number in (2, 5):
        append(uri, number, [row(number)], ["bad"])
    for prepare in (lambda: None, lambda: load(uri), lambda: warehouse.maintain(None, uri)):
        prepare()
        before = tables_of(uri)
        for number, rows, refused in ((4, [row(4)], ()), (3, [row(3)], ["bad"]), (0, [row(0)], ())):
            with pytest.raises(
                InputError, match=rf"batch {number} of 's' .* newest batch is 5: .* above 5"
            ) as told:
                append(uri, number, rows, refused)
            assert type(told.value) is InputError
        assert tables_of(uri) == before
        for number in (2, 5):
            assert not append(uri, number, [row(number)], ["bad"])
        assert tables_of(uri) == before
    assert values_in(uri) == [2, 5]


@pytest.mark.parametrize("wide", [False, True])
def test_maintenance_does_not_change_what_a_replay_is(uri: Path, wide: bool) -> None:
    """Batches with rows, without any, and of which every record was refused; loaded, or in a wide range."""
    batches: dict[int, Any] = {
        0: ([row(0)], []),
        1: ([], []),
        2: ([], ["bad"]),
        3: ([row(3), row(3)], ["bad"]),
    }
    batches |= {number: ([row(number)], []) for number in range(4, 10)}
    for number, (rows, refused) in batches.items():
        assert append(uri, number, rows, refused)
    if not wide:
        load(uri)
    warehouse.maintain(None, uri)
    held = ledger_table.ranges_by_file(Store.from_uri(uri), tables.open_table(Store.from_uri(uri), LEDGER))
    assert BatchRange("s", 1, 1) not in [one for found in held.values() for one in found]
    before = tables_of(uri)
    for number, (rows, refused) in reversed(batches.items()):
        assert not append(uri, number, rows, refused), number
    assert tables_of(uri) == before
    with pytest.raises(InputError, match="batch 1 of 's' was never appended"):
        append(uri, 1, [row(1)])
    with pytest.raises(InputError, match="batch 1 of 's' was never appended"):
        append(uri, 1, [], ["a record that would be lost"])
    assert tables_of(uri) == before
    assert len(rows_of(uri, "rejected")) == 2
    assert warehouse.verify(uri).ok


@pytest.mark.parametrize("rows", [[row(5)], []])
@pytest.mark.parametrize("point", POINTS)
def test_a_batch_that_crashed_is_completed_by_its_replay(uri: Path, point: str, rows: list[Any]) -> None:
    append(uri, 3, [row(3)])
    append_and_crash(uri, point, 5, rows, ["bad"])
    assert values_in(uri) == [3]
    assert append(uri, 5, rows, ["bad"])
    assert not append(uri, 5, rows, ["bad"])
    assert values_in(uri) == [3] + [5] * len(rows)
    assert len(rows_of(uri, "rejected")) == 1
    assert warehouse.verify(uri).ok


@pytest.mark.parametrize("point", POINTS)
def test_a_later_batch_finishes_what_a_crash_left(uri: Path, point: str) -> None:
    """Its rows count once from then on, and its replay is one. What never came to `events` is refused."""
    append(uri, 3, [row(3)])
    append_and_crash(uri, point, 5, [row(5)], ["bad"])
    assert append(uri, 6, [row(6)])
    if point == "ledger":
        assert values_in(uri) == [3, 5, 6]
        assert not append(uri, 5, [row(5)], ["bad"])
    else:
        assert values_in(uri) == [3, 6]
        with pytest.raises(InputError, match="batch 5 of 's' was never appended"):
            append(uri, 5, [row(5)], ["bad"])
    load(uri)
    assert len(values_in(uri)) == (3 if point == "ledger" else 2)
    assert warehouse.verify(uri).ok


def passed_over(uri: Path, *later: int) -> None:
    """Batch 1 is in `events`, later ones have ledger rows and it has none."""
    append(uri, 0, [row(0)])
    append_and_crash(uri, LEDGER, 1, [row(1)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(append_module, "_finish", lambda *_: None)
        patch.setattr(ledger_table, "_lacks_rows", lambda *_: False)
        for number in later:
            append(uri, number, [row(number)])


def test_a_batch_without_ledger_row_below_others_that_have_one_is_completed_by_its_replay(uri: Path) -> None:
    passed_over(uri, 4)
    assert values_in(uri) == [0, 4]
    assert append(uri, 1, [row(1)])
    assert not append(uri, 1, [row(1)])
    assert values_in(uri) == [0, 1, 4]
    assert not append(uri, 4, [row(4)])
    assert append(uri, 5, [row(5)])
    load(uri)
    assert values_in(uri) == [0, 1, 4, 5]
    assert warehouse.verify(uri).ok


def test_a_batch_that_a_wide_range_passed_over_is_told(uri: Path) -> None:
    passed_over(uri, 2)
    with pytest.raises(DamagedWarehouse, match=r"counts 2 rows .* events holds 3"):
        append(uri, 1, [row(1)])


def test_rejected_records_are_kept_once_though_a_later_batch_has_some(uri: Path) -> None:
    """Batch 3 waits between its tasks and its commits, while batch 5 is at work."""
    store = Store.from_uri(uri)
    before = append_rows._reject
    later: list[int] = []

    def slow(*args: Any) -> None:
        if not later:
            later.append(5)
            before(store, BatchRange("s", 5, 5), _refused_files(uri, 5))
        before(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(append_rows, "_reject", slow)
        assert append(uri, 3, [row(3)], ["three"])
    rejected = rows_of(uri, "rejected")
    assert sorted(rejected.column("batch").to_pylist()) == [3, 5]
    assert append(uri, 5, [row(5)], ["five"])
    assert len(rows_of(uri, "rejected")) == 2
    assert values_in(uri) == [3, 5]


def _refused_files(uri: Path, number: int) -> Any:
    found: list[Any] = []

    def keeps(_: Any, __: Any, files: Any) -> None:
        found.extend(files)
        crash()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(append_rows, "_reject", keeps)
        with pytest.raises(Crash):
            append(uri, number, [row(number)], ["five"])
    return found


def at_once(*work: Callable[[], Any]) -> list[Any]:
    results: list[Any] = [None] * len(work)
    barrier = threading.Barrier(len(work))

    def run(i: int) -> None:
        barrier.wait()
        try:
            results[i] = work[i]()
        except Exception as error:  # noqa: BLE001  what went wrong is a result
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(work))]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return results


def test_the_same_batch_several_times_at_once_counts_once(uri: Path) -> None:
    for number in range(6):
        results = at_once(*[lambda n=number: append(uri, n, [row(n)], ["bad"])] * 3)
        assert all(isinstance(one, bool) for one in results), results
        assert sum(results) == 1
        assert values_in(uri) == list(range(number + 1))
    assert len(rows_of(uri, "rejected")) == 6
    assert warehouse.verify(uri).ok


@pytest.mark.parametrize("is_broken", [False, True])
def test_of_two_that_append_one_batch_one_is_told_so(
    uri: Path, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    """The second one comes between the two commits of the first. The broken variant tells both."""
    append_batch, came = ledger_table.append_batch, list[bool]()

    def interrupted(*given: Any, **more: Any) -> bool:
        if not came:
            came.append(False)
            came[0] = append(uri, 1, [row(1)])
        return append_batch(*given, **more) or is_broken

    monkeypatch.setattr(ledger_table, "append_batch", interrupted)
    came.append(append(uri, 1, [row(1)]))
    assert came == [True, is_broken]
    assert not append(uri, 1, [row(1)]) or is_broken
    assert values_in(uri) == [1]


def test_batches_at_once_in_the_wrong_order_are_counted_or_refused(uri: Path) -> None:
    expected = []
    for number in range(0, 16, 2):
        first, second = at_once(
            partial(append, uri, number, [row(number)]), partial(append, uri, number + 1, [row(number + 1)])
        )
        assert second is True
        expected += [number] * (first is True) + [number + 1]
        assert first is True or type(first) is InputError, first
        assert values_in(uri) == expected
    load(uri)
    assert values_in(uri) == expected
    assert warehouse.verify(uri).ok


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [(3, 5), (5, 5)])
@pytest.mark.parametrize("point", ["rejected", "events", "ledger"])
def test_another_process_comes_between_two_commits(uri: Path, point: str, first: int, second: int) -> None:
    """Batch `first` is about to commit; `second` of the same source comes, whole, before it does."""
    commit = Race.commit_numbered
    came: list[Any] = []

    def interrupted(race: Race, *given: Any) -> bool:
        if race.name == point and not came:
            came.append(None)
            came[0] = append(uri, second, [row(second)])
        return commit(race, *given)

    append(uri, 1, [row(1)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Race, "commit_numbered", interrupted)
        if first < second and point != "ledger":
            with pytest.raises(InputError, match="batch 3 of 's' was never appended"):
                append(uri, first, [row(first)], ["bad"])
        else:
            append(uri, first, [row(first)], ["bad"])
    assert came == [True]
    assert values_in(uri) == sorted({1, second} | ({first} if point == "ledger" else set()))
    assert warehouse.verify(uri).ok


def follow(uri: Path, steps: list[tuple[str, int, int, str]]) -> None:
    """Does the steps, and compares what came of each with a plain dictionary of what was appended."""
    known: dict[int, int] = {}
    half: int | None = None  # a batch that crashed before its ledger row
    for what, number, rows, point in steps:
        if what == "load":
            load(uri)
        elif what == "maintain":
            warehouse.maintain(None, uri)
        elif number not in known and known and number < max(known):
            with pytest.raises(InputError):
                append(uri, number, [row(number)] * max(1, rows))
        elif number in known:
            assert append(uri, number, [row(number)] * known[number]) is (number == half)
            half = None if number == half else half
        elif what == "crash":
            append_and_crash(uri, point, number, [row(number)] * rows)
            if point == LEDGER:
                known[number], half = rows, number
        else:
            assert append(uri, number, [row(number)] * rows)
            known[number], half = rows, None
        visible = {n: count for n, count in known.items() if n != half}
        assert values_in(uri) == [n for n in sorted(visible) for _ in range(visible[n])]
    assert warehouse.verify(uri).ok


whats = st.sampled_from(["append", "append", "append", "crash", "load", "maintain"])
steps = st.lists(
    st.tuples(whats, st.integers(0, 12), st.integers(0, 2), st.sampled_from(POINTS[1:])), max_size=9
)
histories = settings(max_examples=draws(3), deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@histories
@given(steps=steps)
def test_any_order_of_numbers_crashes_loads_and_maintenance_counts_each_batch_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int, str]]
) -> None:
    uri = tmp_path_factory.mktemp("any") / "w"
    create(uri)
    follow(uri, steps)


def test_a_rule_that_takes_any_lower_number_for_a_replay_is_caught(
    uri: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        batch_numbers,
        "state_of",
        lambda store, *_: "known" if batch_numbers.newest(store, "s") >= 5 else "new",
    )
    append(uri, 5, [row(5)])
    with pytest.raises(BatchMismatch):  # the comparison of the rows catches it, too
        append(uri, 3, [row(3)])
    monkeypatch.setattr(same_rows, "difference", lambda *_: None)
    create(uri.with_name("other"))
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        follow(uri.with_name("other"), [("append", 5, 1, ""), ("append", 3, 1, "")])


def test_a_rule_that_takes_a_replay_for_new_is_caught(uri: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_numbers, "state_of", lambda *_: "new")
    monkeypatch.setattr(tables, "has_transaction", lambda *_: False)
    with pytest.raises(AssertionError):
        follow(uri, [("append", 5, 1, ""), ("append", 5, 1, "")])


def test_an_empty_batch_takes_its_number_in_events_too(uri: Path) -> None:
    """So a number below it that comes at the same time cannot slip in."""
    append(uri, 7, [])
    assert tables.newest_transaction(tables.open_table(Store.from_uri(uri), EVENTS), "s") == 7
    with pytest.raises(InputError, match="newest batch is 7"):
        append(uri, 6, [row(6)])


def test_a_checkpoint_must_know_the_newest_number_whatever_it_brought(
    uri: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(uri, 4, [], ["bad"])
    store = Store.from_uri(uri)
    monkeypatch.setattr(start_module, "newest_offset", lambda *_: 3)
    with pytest.raises(InputError, match="up to 4"):
        start_module.check_numbering(None, batch_numbers.newest(store, "s"), "s", "c")
    monkeypatch.setattr(start_module, "newest_offset", lambda *_: 4)
    start_module.check_numbering(None, batch_numbers.newest(store, "s"), "s", "c")


def test_everything_but_the_commits_is_done_before_the_first_of_them(
    uri: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data that cannot become ledger rows changes nothing, wide ranges included."""
    for number in range(2):
        append(uri, number, [row(number)])
    before = tables_of(uri)
    for broken in ("to_arrow", "join"):
        with monkeypatch.context() as patch:
            patch.setattr(ledger_table, broken, crash)
            with pytest.raises(Crash):
                append(uri, 2, [row(2)], ["bad"])
        assert tables_of(uri) == before
    made: list[Any] = []

    def seen(*args: Any) -> Any:
        made.append(tables_of(uri))
        return to_arrow(*args)

    monkeypatch.setattr(ledger_table, "to_arrow", seen)
    assert append(uri, 2, [row(2)], ["bad"])
    assert made == [before, before]
    assert query.open(uri).info()["live_batches"] == 3
