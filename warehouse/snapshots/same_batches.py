"""Batches that two warehouses have: the same source, number, rows and contents.

If a producer sends a batch to two warehouses by mistake, a question to both as one counts its rows twice.
Each batch is identified by the files of `events` that have it. Batches of the same source and number are
compared in two steps: first by what the logs tell of their files, their rows and the least and greatest
values of columns; where these agree, by the digests in the footers of the files. So hardly any file is opened
unless batches are the same.

A batch that one warehouse has in other files, cut or joined in another way, is not recognised.

Cost: one listing of `events` for each warehouse; a footer for each file of batches of which the logs agree.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.round_trips import at_once
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.events.reader import BULK, BatchRange
from tidemark.warehouse.integrity.sealed_files import open_sealed

Duplicates: TypeAlias = Literal["warn", "refuse"]
DUPLICATES: tuple[Duplicates, ...] = get_args(Duplicates)

_LOG = logging.getLogger("tidemark.sites")
_BOUNDS = ("min._source", "max._source", "min._batch", "max._batch")
_OF_THE_PLACE = "_tick"  # without a time column it numbers the steps of each warehouse
_NAMED = 3  # batches that a message names
_Facts: TypeAlias = tuple[int, tuple[tuple[str, str], ...]]  # of a file: its rows, and the log's statistics


@dataclass(frozen=True, slots=True)
class SameBatch:
    """A batch, or a range of them in one file, that two warehouses have; `sites` are their names."""

    batches: BatchRange
    rows: int
    sites: tuple[str, str]

    @property
    def text(self) -> str:
        """The batch in words."""
        source = self.batches.source
        named = repr(source) if source.startswith(BULK) else self.batches.text
        return f"{named} ({self.rows:,} rows) in {self.sites[0]!r} and {self.sites[1]!r}"


def same_batches(events: Mapping[str, tuple[Store, Iterable[DataFile]]]) -> list[SameBatch]:
    """The batches that two warehouses have, of the files of `events` of each by its name.

    A batch in three warehouses is named once for each that has it after the first.
    """
    seen: dict[tuple[BatchRange, tuple[_Facts, ...]], list[tuple[str, list[DataFile]]]] = {}
    found = []
    for name, (store, files) in events.items():
        for batches, own in _by_batch(files).items():
            others = seen.setdefault((batches, tuple(sorted(map(_facts, own)))), [])
            for other, theirs in others:
                if _contents(store, own) == _contents(events[other][0], theirs):
                    found.append(SameBatch(batches, sum(file.rows for file in own), (other, name)))
                    break
            else:
                others.append((name, own))
    return sorted(found, key=lambda one: (one.batches, one.sites))


def tell_same_batches(
    events: Mapping[str, tuple[Store, Iterable[DataFile]]], duplicates: Duplicates = "warn"
) -> None:
    """Logs a warning for batches that two warehouses have, or raises InputError; both name them."""
    found = same_batches(events)
    if not found:
        return
    named = "; ".join(one.text for one in found[:_NAMED])
    more = f", and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    text = f"the same rows came to two warehouses, so they count twice: {named}{more}. "
    remedy = "Take them out of one, for example with `tidemark unload` or `tidemark delete`"
    if duplicates == "refuse":
        raise InputError(f"{text}{remedy}, or ask with duplicates='warn'.")
    _LOG.warning("%s%s.", text, remedy)


def _by_batch(files: Iterable[DataFile]) -> dict[BatchRange, list[DataFile]]:
    """The files by batch, or by range of joined batches. Files of unknown batches are left out."""
    found: dict[BatchRange, list[DataFile]] = {}
    for file in files:
        source, greatest, first, last = (file.stats.get(name) for name in _BOUNDS)
        if source is not None and source == greatest and first is not None and last is not None and file.rows:
            found.setdefault(BatchRange(source, first, last), []).append(file)
    return found


def _facts(file: DataFile) -> _Facts:
    told = {name: value for name, value in file.stats.items() if not name.endswith(f".{_OF_THE_PLACE}")}
    return file.rows, tuple(sorted((name, repr(value)) for name, value in told.items() if value is not None))


def _contents(store: Store, files: Sequence[DataFile]) -> list[tuple[str, ...]]:
    """The digests of the columns of files, in the order of their texts; of no file without a seal."""

    def of(file: DataFile) -> tuple[str, ...]:
        with open_sealed(store.filesystem(), f"{EVENTS}/{file.path}") as opened:
            return opened.digests(_OF_THE_PLACE) or (f"{store.uri} {file.path}",)

    return sorted(at_once(of, files))
