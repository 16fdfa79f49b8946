"""A reader: a process of its own that asks warehouses again and again and keeps a journal of what it saw.

    python reader.py SOCKET

The journal of a warehouse has an entry for each error and for each change of versions; a change is asked
about in all three modes. While the versions stay, the answers must. An object store may fail to answer, even
after retries: then nothing was seen.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.crash.batches import MEASURES
from tests.crash.truth import PHIS, Seen, look
from tidemark import query
from tidemark.warehouse import open_snapshot
from tidemark.warehouse.errors import StoreUnavailable

# After a round it rests for so many times as long as the round took, at most so many seconds: the processes
# that it watches have more to do. It rests less beside a store, where its own requests are among those that
# go wrong. Niceness would not do, as a session of its own has a share of the processors of its own. A soak
# asks without pause.
_REST, _REST_BESIDE_STORE = (12, 2), (4, 1)
_SOAKS = int(os.environ.get("TIDEMARK_SOAK_KILLS", "0")) > 0
_OPEN_EVERY = 16  # rounds after which a reader that knows nothing of the past looks, too


@dataclass
class Watched:
    """A warehouse, its journal, and what was last seen of each measure."""

    uri: str
    warehouse: Any = None
    rounds: int = 0
    unanswered: int = 0
    journal: list[Seen] = field(default_factory=list)
    last: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def look(self) -> None:
        """One question on each measure."""
        self.rounds += 1
        for measure in MEASURES:
            try:
                self._ask(measure)
            except StoreUnavailable:
                self.unanswered += 1
            except Exception:  # noqa: BLE001 - no error is legal, so each goes into the journal
                self.journal.append(Seen(measure, None, error=traceback.format_exc()))
        if self.rounds % _OPEN_EVERY == 0:
            try:
                self.journal += [look(open_snapshot(self.uri), measure, fresh=True) for measure in MEASURES]
            except StoreUnavailable:
                self.unanswered += 1
            except Exception:  # noqa: BLE001
                self.journal.append(Seen("", None, error=traceback.format_exc()))

    def _ask(self, measure: str) -> None:
        if self.warehouse is None:
            self.warehouse = query.open(self.uri)
        seen = self._answered(measure, "accurate")
        versions, said = self.last.get(measure, (None, None))
        if seen.answers and versions == _state(seen):
            if repr(seen.answers) != said:
                self.journal.append(
                    replace(seen, rows=None, error=f"answers differ at {versions}: {said} {seen}")
                )
            return
        self.journal.append(seen)
        if seen.answers:
            self.last[measure] = (_state(seen), repr(seen.answers))
            self.journal += [self._answered(measure, mode) for mode in ("quick", "exact")]

    def _answered(self, measure: str, mode: str) -> Seen:
        try:
            answers = tuple(self.warehouse.quantile(list(PHIS), measure, mode=mode))
        except query.EmptyWindow:
            return Seen(measure, 0)
        one = answers[0]
        blind = tuple(replace(answer, blocks_read=0) for answer in answers)
        return Seen(measure, one.N + one.nulls, one.nans, one.nulls, one.m, blind)


def _state(seen: Seen) -> tuple[Any, Any]:
    """The versions, and what is said of the window: when rows have expired, before any of them leaves."""
    return seen.answers[0].as_of, seen.answers[0].widened


def main(address: str) -> None:
    watched: dict[str, Watched] = {}
    due = 0.0  # when the next round is; an order is taken at once
    with Client(address, family="AF_UNIX") as connection:
        connection.send(("ready",))
        while True:
            while not watched or connection.poll(max(0.0, due - time.monotonic())):
                try:
                    order, uri = connection.recv()
                except EOFError:
                    return
                if order == "watch":
                    watched[uri] = Watched(uri)
                elif order == "collect":
                    one = watched.pop(uri)
                    one.look()
                    connection.send((one.rounds - one.unanswered, one.journal))
            began = time.monotonic()
            for one in list(watched.values()):
                one.look()
            ended = time.monotonic()
            times, most = _REST_BESIDE_STORE if any("://" in uri for uri in watched) else _REST
            due = ended + (0 if _SOAKS else min(times * (ended - began), most))


if __name__ == "__main__":
    from tests.crash import reader

    reader.main(sys.argv[1])
