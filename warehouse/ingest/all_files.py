"""One commit replaces all files of `events`, and the columns of the table.

write    tasks write each file anew, with its rows in their order
commit   one commit, on a version whose files all have a successor; files that came meanwhile are written
before the next try
"""

from __future__ import annotations

import pyarrow as pa
from deltalake import Schema

from tidemark.warehouse.delta import own_files
from tidemark.warehouse.delta.changes import Replacement
from tidemark.warehouse.delta.data_files import NewFile, list_files
from tidemark.warehouse.delta.races import Race, replace_files
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.ingest.event_files import JoinFiles
from tidemark.warehouse.ingest.private_rows import WrappedTokens
from tidemark.warehouse.work import Work


class AllFiles:
    """The successors of the files of `events`, each written once.

    done     the point that is reached once they replaced them
    tokens   newer tokens that the rows get, or None
    """

    def __init__(self, work: Work, done: str, tokens: WrappedTokens | None = None) -> None:
        self._work, self._done, self._tokens = work, done, tokens
        self._looks = own_files.Looks(work.store, before_commit=True)
        self._written: dict[str, NewFile] = {}

    def replace(self, race: Race, schema: Schema) -> bool:
        """Tries to replace all files of the race's table, which gets the schema; whether it did."""
        files = [file.path for file in list_files(race.table) if file.rows]
        missing = [path for path in files if path not in self._written]
        tasks = [self._task(schema, path) for path in missing]
        self._written.update(zip(missing, self._work.executor.run(tasks), strict=True))
        self._work.reached("rewritten")
        successors = {path: self._written[path] for path in files}
        if lost := self._looks.lost([f"{EVENTS}/{file.path}" for file in successors.values()]):
            self._written = {
                old: new for old, new in successors.items() if f"{EVENTS}/{new.path}" not in lost
            }
            race.look_again()  # the call that deleted them may have replaced the old ones, too
            return False
        if not race.change(Replacement(schema, [file.action() for file in successors.values()])):
            return False
        self._work.reached(self._done)
        self._replace_lost(schema, successors)
        return True

    def _task(self, schema: Schema, path: str) -> JoinFiles:
        return JoinFiles(self._work.store, pa.schema(schema), (path,), self._tokens)

    def _replace_lost(self, schema: Schema, successors: dict[str, NewFile]) -> None:
        """Writes files again that maintenance deleted before the commit: the old files stay for the grace."""
        store = self._work.store
        looks = own_files.Looks(store)
        while lost := looks.lost([f"{EVENTS}/{file.path}" for file in successors.values()]):
            gone = {old: new for old, new in successors.items() if f"{EVENTS}/{new.path}" in lost}
            for old, new in gone.items():
                (again,) = self._work.executor.run([self._task(schema, old)])
                replace_files(store, EVENTS, {new.path}, [again.action(new_rows=False)])
                successors = {**successors, old: again}
