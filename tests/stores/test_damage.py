"""Damage in an object store is told, and repair makes the tables again there as on a disk."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import obstore
import pytest
from obstore.store import S3Store, from_url

from tests.soak import some
from tests.stores.conftest import Place
from tests.stores.filled import Filled
from tests.stores.server import Server
from tidemark import query, warehouse
from tidemark.warehouse import DamagedWarehouse
from tidemark.warehouse.repairs import runs

Harm = Callable[[S3Store], None]


def names(store: S3Store, below: str, ending: str) -> list[str]:
    """The objects below a folder whose names end so, ascending."""
    found = [one["path"] for batch in obstore.list(store, prefix=below) for one in batch]
    return sorted(name for name in found if name.endswith(ending))


def remove_folder(table: str) -> Harm:
    return lambda store: obstore.delete(store, names(store, f"{table}/", ""))


def remove_newest_commit(table: str, count: int = 1) -> Harm:
    """As a bucket that was put back to an earlier moment."""

    def harm(store: S3Store) -> None:
        gone = names(store, f"{table}/_delta_log", ".json")[-count:]
        obstore.delete(store, gone + [name for name in names(store, table, "checkpoint") if "_last" in name])

    return harm


def cut(table: str) -> Harm:
    """The newest file of a table lacks its end."""

    def harm(store: S3Store) -> None:
        name = [one for one in names(store, table, ".parquet") if "checkpoint" not in one][-1]
        whole = bytes(obstore.get(store, name).bytes())
        obstore.put(store, name, whole[:-9])

    return harm


# The first and the last have damage of each of the three ways.
HARM: dict[str, tuple[Harm, ...]] = {
    "the runs are gone": (remove_folder("runs"), cut("key_marks")),
    "the runs are cut": (cut("runs"), cut("keys")),
    "the steps are gone": (remove_folder("steps"), cut("marks")),
    "the keys are put back": (remove_newest_commit("keys/page", 2), cut("ledger")),
}


@pytest.fixture(scope="module")
def sound(server: Server) -> Filled:
    """Runs of loads and of streamed batches, and live batches."""
    sound = Filled(Place(server, server.address("sound")), loads=3, batches=2)
    sound.move()
    sound.append()
    return sound


@pytest.fixture
def filled(sound: Filled, place: Place) -> Filled:
    """A copy, to be damaged."""
    return sound.copy(place)


def harm_it(filled: Filled, harm: str) -> None:
    config: Any = {
        name.lower(): value for name, value in filled.place.options.items() if name != "AWS_ALLOW_HTTP"
    }
    store: Any = from_url(filled.place.uri, config=config, client_options={"allow_http": True})
    for one in HARM[harm]:
        one(store)


def wrong_in_silence(filled: Filled) -> list[str]:
    """The questions that a new reader answers wrongly without an error."""
    count, wrong = sum(map(len, filled.committed)), []
    questions: dict[str, Callable[[query.Warehouse], int]] = {
        "quantile": lambda wh: wh.quantile(0.5, mode="exact").N,
        "where": lambda wh: wh.quantile(0.5, mode="exact", where="ms >= 0").N,
        "frequency": lambda wh: sum(
            one.count for one in wh.frequency([f"/{i}" for i in range(5)], mode="exact")
        ),
    }
    for name, asked in questions.items():
        with suppress(DamagedWarehouse):
            if asked(filled.open()) != count:
                wrong.append(name)
    return wrong


def check_told_and_repaired(filled: Filled, harm: str) -> None:
    harm_it(filled, harm)
    assert not wrong_in_silence(filled)
    filled.forget()
    with suppress(DamagedWarehouse):
        assert not warehouse.verify(filled.place.uri, **filled.how).ok
    assert warehouse.repair(None, filled.place.uri, dry_run=True, **filled.how).outcome == "planned"
    report = warehouse.repair(None, filled.place.uri, **filled.how)
    assert report.outcome == "repaired", str(report)
    filled.forget()
    filled.check()


@pytest.mark.parametrize("harm", some(HARM, 2))
def test_damage_is_told_and_repaired(filled: Filled, harm: str) -> None:
    check_told_and_repaired(filled, harm)
    filled.load()
    assert filled.append()
    filled.check()


def test_a_repair_that_looks_at_no_file_is_caught(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_fault", lambda *_: None)
    with pytest.raises((AssertionError, DamagedWarehouse)):
        check_told_and_repaired(filled, "the runs are cut")
