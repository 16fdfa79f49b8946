"""What another tool takes out of the ledger is told, and written again: by a replay, by a load."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.soak import some
from tests.warehouse.hereloader import Loader, rows_of
from tidemark import query, stream, warehouse
from tidemark.warehouse.ingest import batch_numbers
from tidemark.warehouse.ledger import ledger_table, unaccounted
from tidemark.warehouse.ledger.unaccounted import Unaccounted
from tidemark.warehouse.sizes import Tuning

FAN = Tuning(fan=3)
CHECK = "events: each batch has the rows that came"
BATCHES = {number: rows_of(100 + number, 30) for number in range(5)}


def restored(ledger: DeltaTable) -> None:
    ledger.restore(ledger.version() - 1)


def one_deleted(ledger: DeltaTable) -> None:
    ledger.delete("first_batch = 4")


def emptied(ledger: DeltaTable) -> None:
    ledger.delete()


HARM: dict[str, tuple[Callable[[DeltaTable], None], set[int]]] = {
    "restored": (restored, {4}),
    "one deleted": (one_deleted, {4}),
    "emptied": (emptied, {0, 1, 2, 3, 4}),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Loader:
    loader = Loader.create(tmp_path_factory.mktemp("sound") / "w", FAN)
    loader.load(rows_of(1, 300))
    for rows in BATCHES.values():
        loader.stream(rows)
    return loader


@pytest.fixture
def loader(sound: Loader, tmp_path: Path) -> Loader:
    return sound.copied(tmp_path / "w")


def append(loader: Loader, number: int, rows: pa.Table) -> bool:
    return stream.append(None, loader.uri, rows, source="web", batch=number, tuning=FAN)


def values(*tables: pa.Table) -> int:
    """The rows with a value of x."""
    return sum(len(table) - table.column("x").null_count for table in tables)


def count(loader: Loader) -> int:
    return query.open(loader.uri).quantile(0.5, "x").N


def broken(loader: Loader) -> dict[str, str]:
    return {check.name: check.detail for check in warehouse.verify(loader.uri).checks if not check.ok}


def whole(loader: Loader, *more: pa.Table) -> None:
    assert broken(loader) == {}
    assert count(loader) == values(rows_of(1, 300), *BATCHES.values(), *more)


def told(loader: Loader, lost: set[int]) -> None:
    found = broken(loader)
    assert list(found) == [CHECK]
    assert f"batch {min(lost)} of 'web'" in found[CHECK]
    assert f"{sum(len(BATCHES[number]) for number in lost)} rows" in found[CHECK]


@pytest.mark.parametrize("harm", HARM)
def test_verify_tells_what_the_ledger_has_lost_and_the_replay_writes_it(loader: Loader, harm: str) -> None:
    change, lost = HARM[harm]
    change(DeltaTable(f"{loader.uri}/ledger"))
    told(loader, lost)
    for number, rows in BATCHES.items():
        assert append(loader, number, rows) is (number in lost)
        assert not append(loader, number, rows)
    whole(loader)
    loader.load_live()
    whole(loader)


@pytest.mark.parametrize(("harm", "bulk"), some(product(HARM, (False, True)), 4))
def test_a_load_writes_it_whatever_was_appended_meanwhile(loader: Loader, harm: str, bulk: bool) -> None:
    """Batch 5 would complete the range 3 to 5, which must not hide that 4 is missing."""
    change, lost = HARM[harm]
    change(DeltaTable(f"{loader.uri}/ledger"))
    later = rows_of(7, 30)
    assert append(loader, 5, later)
    told(loader, lost)
    if bulk:
        loader.load(rows_of(8, 50))
        whole(loader, later, rows_of(8, 50))
    else:
        loader.load_live()
        whole(loader, later)
    for number, rows in BATCHES.items():
        assert not append(loader, number, rows)


def test_a_batch_that_crashed_between_its_commits_is_no_damage(loader: Loader) -> None:
    """The ledger has not taken its number yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_table, "append_batch", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            append(loader, 5, rows_of(7, 30))
    report = warehouse.verify(loader.uri)
    assert report.ok
    assert "batch 5 of 'web' may be under way" in str(report)
    loader.load_live()
    assert append(loader, 5, rows_of(7, 30))
    whole(loader, rows_of(7, 30))


def test_joined_files_are_read_only_if_the_numbers_do_not_add_up(
    loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader.maintain()
    with monkeypatch.context() as patch:
        patch.setattr(unaccounted, "count_rows", lambda *_: 1 / 0)
        loader.load(rows_of(8, 50))
    one_deleted(DeltaTable(f"{loader.uri}/ledger"))
    told(loader, {4})
    loader.load_live()
    whole(loader, rows_of(8, 50))


# Variants that are broken on purpose: the properties above fail on each.


def test_a_verifier_that_does_not_look_for_lost_batches_is_caught(
    loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unaccounted, "find", lambda *_: Unaccounted({}, {}, {}))
    with pytest.raises(AssertionError):
        test_verify_tells_what_the_ledger_has_lost_and_the_replay_writes_it(loader, "restored")


def test_a_replay_that_believes_the_number_alone_is_caught(
    loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_numbers, "state_of", lambda *_: "known")
    with pytest.raises(AssertionError):
        test_verify_tells_what_the_ledger_has_lost_and_the_replay_writes_it(loader, "restored")


def test_a_wide_range_over_a_lost_batch_is_caught(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_table, "_lacks_rows", lambda *_: False)
    with pytest.raises((AssertionError, warehouse.DamagedWarehouse)):
        test_a_load_writes_it_whatever_was_appended_meanwhile(loader, "one deleted", bulk=False)
