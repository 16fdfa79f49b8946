"""Table functions in Spark's Python workers: warehouses stay open from one call to the next.

Spark reuses a worker process, so later calls have marks and summaries in memory and only look for new data.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from tidemark.query.reader import Reader
from tidemark.query.reading.budgets import LEAST
from tidemark.query.sql import spark_calls, sql_rows
from tidemark.query.sql.registered import Registered
from tidemark.warehouse.columns.column_names import ColumnNames
from tidemark.warehouse.errors import InputError, TidemarkError
from tidemark.warehouse.settings.options import Options
from tidemark.warehouse.snapshots.past import opened
from tidemark.warehouse.snapshots.system_tables import rows_of_files

_open_readers: dict[WarehouseAddress, tuple[Reader, Registered]] = {}


@dataclass(frozen=True, slots=True)
class WarehouseAddress:
    """The address of a warehouse, and its identity.

    The identity distinguishes a warehouse from an earlier one at the same address; None for any.
    """

    uri: str
    storage_options: tuple[tuple[str, str], ...] = field(repr=False)
    identity: str | None = None
    at: int | str | None = None  # the moment, see `query.open`

    def open(self) -> Reader:
        """A reader of the warehouse, opened by the first call and reused by later ones.

        Raises NotAWarehouse if another one was registered, see registered.py.
        """
        if self not in _open_readers:
            reader = self.open_current()
            _open_readers[self] = reader, Registered(reader.store, self.identity or reader.identity)
        reader, registered = _open_readers[self]
        registered.check()
        return reader

    def open_current(self) -> Reader:
        """A new reader of the warehouse that is at the address now, whatever its identity."""
        # With less memory than other readers: a machine may have a worker process for each core.
        return Reader(opened(self.uri, dict(self.storage_options) or None, at=self.at), LEAST)


def rows_of_call(address: tuple[Any, ...], function: str, *args: Any) -> Iterator[Any]:
    """The rows that a table function yields.

    A TidemarkError is shown by its message alone, without a traceback. The environment variable for that
    stays set, but Spark ends a worker that has failed, so no later call is affected.
    """
    try:
        yield from _FUNCTIONS[function](WarehouseAddress(*address), *args)
    except TidemarkError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def analysis_of_call(
    address: tuple[Any, ...], function: str, bound: tuple[Any, ...], args: Any, named: Any
) -> Any:
    """What the `analyze` of the function "rows" or "describe" returns; it raises what refuses the call."""
    place = WarehouseAddress(*address)
    try:
        if function == "rows":
            name, measure = bound
            return spark_calls.plan_call(place.open(), name, measure, args, named)
        place.open_current()  # to describe it
    except TidemarkError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
    return spark_calls.analyzed([("facts", "string")])


def _describe(address: WarehouseAddress, *_call: Any) -> Iterator[tuple[str]]:
    wh = address.open_current()
    named = replace(address, identity=wh.identity)
    _open_readers[named] = wh, Registered(wh.store, wh.identity)
    options = wh.options
    columns = {options.names.stored(name): kind for name, kind in options.columns}
    facts = {"properties": options.properties(), "columns": columns, "identity": wh.identity}
    yield (json.dumps(facts),)


def options_of(uri: str, facts_json: str) -> tuple[Options, str]:
    """The options of a warehouse and its identity, from the JSON text that the function `describe` yields."""
    facts = json.loads(facts_json)
    return Options.from_properties(uri, facts["properties"], facts["columns"]), facts["identity"]


def _batches(address: WarehouseAddress, fingerprint: str) -> Iterator[tuple[Any, ...]]:
    """The visible ranges of batches. InputError if the tokens are of another secret by now.

    Spark then reads the files of `events` itself, so `event_paths` first refuses paths that leave the
    warehouse.
    """
    contents = address.open().contents()
    if contents.options.fingerprint != fingerprint:
        raise InputError(
            "the secret of the private columns was rotated since the views were registered. Register them "
            "again, and make tokens again."
        )
    contents.event_paths("events")
    return contents.batches()


def _live(
    address: WarehouseAddress, columns: Iterable[tuple[str, str]], names: ColumnNames
) -> Iterator[pa.RecordBatch]:
    """The rows of the live batches, with the columns of the time of registration, and their names of then."""
    contents = address.open().contents()
    return replace(contents, store=replace(contents.store, names=names)).live_rows(dict(columns))


def _read(
    address: WarehouseAddress,
    columns: Iterable[tuple[str, str]],
    names: ColumnNames,
    shares: pa.RecordBatch,
) -> Iterator[pa.RecordBatch]:
    """The visible rows of the files in the rows of `files`; columns as `_live` has them."""
    pairs = zip(*(column.to_pylist() for column in shares.columns), strict=True)
    return rows_of_files(replace(address.open().contents().store, names=names), dict(columns), pairs)


_FUNCTIONS: dict[str, Any] = {
    "describe": _describe,
    "rows": lambda address, *call: spark_calls.rows_of_plan(address.open(), *call),
    sql_rows.SUMMARY_VIEW: lambda address: sql_rows.rows(address.open(), sql_rows.SUMMARY_VIEW, None, (), {}),
    "live": _live,
    "batches": _batches,
    "files": lambda address, part: address.open().contents().file_shares(part),
    "read": _read,
    "steps": lambda address: address.open().contents().step_rows(),
    "runs": lambda address: address.open().contents().run_rows(),
}
