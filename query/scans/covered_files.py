"""Files of `events` of which an index has all rows, and where the found rows lie in these files.

Method. Runs name a row by its origin (warehouse/events/origins.py): the file in which it was first written. A
file that was written anew tells the origins of its rows in its footer, which is read once in a process. So
a row that an index found is found in the file that has it now, and

    an origin file is *known* if   rows of the runs with this origin
                                       = rows of it in the files of this version - those that are NULL
    a file is *covered*      if   all of its rows are of origin files that are known

Each run has a row once, and the runs have disjoint steps, so no row is counted twice. A version of `events`
has all rows that an origin file was written with, or none of them, and runs have no others: so equal numbers
mean the same rows. All other files are scanned: that takes longer, but no row is missed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tidemark.warehouse.columns.codes import Ints, places_among
from tidemark.warehouse.delta.data_files import DataFile
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.events.origins import Origins, file_id, origins_of
from tidemark.warehouse.integrity.sealed_files import open_sealed
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.projections.index_marks import Places
from tidemark.warehouse.snapshots.system_tables import Contents

_ORIGINS_BYTES = 2**26  # of origins that are kept
_ROW_BITS = 40  # a file has fewer rows than 2**40
_UNKNOWN = 2**62  # more rows than there are


# The origins in a footer; None if the file is the origin of its own rows. Shared by all readers of the
# process, by the address of the file: files never change.
_origins: LRUCache[tuple[Origins | None]] = LRUCache(_ORIGINS_BYTES)


def _read(store: Store, path: str) -> Origins | None:
    """The origins that the footer of a file tells; DamagedWarehouse if it cannot be read."""
    kept = _origins.at((store.uri, path))
    if kept.value is not None:
        return kept.value[0]
    full = f"{EVENTS}/{path}"
    with open_sealed(store.filesystem(), full, display_name=f"{full} of the warehouse {store.uri}") as opened:
        told = origins_of(opened, path)
    return kept.keep((told,), 64 if told is None else told.nbytes)[0]


_Files = Mapping[int, tuple[DataFile, Origins | None]]  # by id; with origins: those that were written anew


@dataclass(frozen=True, slots=True, eq=False)
class CoveredFiles:
    """The files of which indexes have all rows that are not NULL.

    files: these files. others: those that are not covered.
    """

    files: _Files
    others: _Files

    @classmethod
    def of(cls, contents: Contents, indexes: Iterable[tuple[str, Places]]) -> CoveredFiles:
        """The files that all of the indexes cover.

        indexes: for each the stored name of its column, and how many rows it has by origin file.

        DamagedWarehouse if a footer cannot be read.
        """
        given = [
            (name, dict(zip(places.files.tolist(), places.rows.tolist(), strict=True)))
            for name, places in indexes
        ]
        asked = {one.file.path for one in contents.visible_files() if not one.is_live}
        files: dict[int, tuple[DataFile, Origins | None]] = {}
        for file in contents.list_events():
            own = file_id(file.path)
            is_known = all(_filled(file, name) in {None, rows.get(own, 0)} for name, rows in given)
            is_asked = file.path in asked and not is_known
            files[own] = file, _read(contents.store, file.path) if is_asked else None
        covered = files
        for name, rows in given:
            wanted = _rows_by_origin(files, name)
            ids = {one for one, count in wanted.items() if count == rows.get(one, 0)}
            covered = {own: one for own, one in covered.items() if ids.issuperset(_origin_ids(own, one[1]))}
        return cls(covered, {own: one for own, one in files.items() if own not in covered})

    @property
    def paths(self) -> list[str]:
        """Their paths, relative to the table."""
        return [file.path for file, _ in self.files.values()]

    @property
    def rows(self) -> int:
        """How many rows they have."""
        return sum(file.rows for file, _ in self.files.values())

    @property
    def origin_ids(self) -> set[int]:
        """The ids of the origin files of their rows."""
        return {one for own, (_, origins) in self.files.items() for one in _origin_ids(own, origins)}

    def in_history(self, contents: Contents) -> CoveredFiles:
        """The files whose rows are all visible and of history, and whose origin files no other file has.

        So all rows that runs have of these origin files are in these files.
        """
        visible, found = contents.visible_files(), self
        whole = {file_id(one.file.path) for one in visible if one.is_whole and not one.is_live}
        while True:
            beside = CoveredFiles(found.others, {}).origin_ids
            kept = {
                own: one
                for own, one in found.files.items()
                if own in whole and beside.isdisjoint(_origin_ids(own, one[1]))
            }
            if len(kept) == len(found.files):
                return found
            out = {own: one for own, one in found.files.items() if own not in kept}
            found = CoveredFiles(kept, {**found.others, **out})

    def without(self, others: CoveredFiles) -> CoveredFiles:
        """The files that are not among `others`."""
        return CoveredFiles({own: one for own, one in self.files.items() if own not in others.files}, {})

    def rows_by_path(self, ids: Ints, rows: Ints) -> dict[str, Ints]:
        """By the path of each file, the numbers that the rows have in it, ascending, each once.

        ids, rows: the origin file and the origin row of each, in any order.
        """
        paths = self.paths
        if not paths:
            return {}
        origins, first, counts, start, owner = self._pieces()
        known, codes = np.unique(origins, return_inverse=True)
        order = np.lexsort((first, codes))
        first, counts, start, owner = first[order], counts[order], start[order], owner[order]
        at = places_among(known, ids)
        at, rows = at[at >= 0], rows[at >= 0]
        ends = (codes[order] << _ROW_BITS) + first
        place = np.searchsorted(ends, (at << _ROW_BITS) + rows, side="right") - 1
        inside = (place >= 0) & (rows - first[place] < counts[place]) & (codes[order][place] == at)
        place, rows = place[inside], rows[inside]
        numbers, owners = start[place] + rows - first[place], owner[place]
        order = np.lexsort((numbers, owners))
        edges = np.searchsorted(owners[order], np.arange(len(paths) + 1))
        return {path: np.unique(numbers[order[edges[i] : edges[i + 1]]]) for i, path in enumerate(paths)}

    def _pieces(self) -> Ints:
        """(5, pieces): the origin file, the first row there, the rows, the first row here, the file."""
        parts = []
        for place, (own, (file, origins)) in enumerate(self.files.items()):
            if origins is None:
                parts.append(np.array([[own], [0], [file.rows], [0], [place]]))
            else:
                starts, owner = np.cumsum(origins.rows) - origins.rows, np.full(len(origins.rows), place)
                parts.append(np.stack([origins.files, origins.first, origins.rows, starts, owner]))
        return np.concatenate(parts, axis=1)


def _filled(file: DataFile, name: str) -> int | None:
    """How many rows of a file are not NULL in a column; None if its statistics do not tell."""
    nulls = file.stats.get(f"null_count.{name}")
    return None if nulls is None or file.rows < 0 else int(file.rows - nulls)


def _origin_ids(own: int, origins: Origins | None) -> list[int]:
    return [own] if origins is None else np.unique(origins.files).tolist()


def _rows_by_origin(files: _Files, name: str) -> Counter[int]:
    """The rows by origin file that are not NULL in a column; more than there are where that is not known."""
    found = Counter[int]()
    for own, (file, origins) in files.items():
        filled = _filled(file, name)
        if filled is None:
            found.update(dict.fromkeys(_origin_ids(own, origins), _UNKNOWN))
        elif origins is None:
            found[own] += filled
        else:
            of_origin = origins.nulls.get(name, {})
            ids, codes = np.unique(origins.files, return_inverse=True)
            counts = np.bincount(codes, origins.rows).astype(np.int64).tolist()
            is_told = filled == file.rows - sum(of_origin.values())
            for one, count in zip(ids.tolist(), counts, strict=True):
                found[one] += count - of_origin.get(one, 0) if is_told else _UNKNOWN
    return found
