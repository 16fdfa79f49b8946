"""What a statement would read at this moment: the files, row groups and rows that indexes leave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq

from tidemark.query.answers.plan import INDEX, SCAN, RowsPlan, SqlPlan
from tidemark.query.reading.sql_text import quoted
from tidemark.query.scans.index_places import RATES, Found, bounded, find
from tidemark.query.sql.narrowed import Narrowed, condition_sql
from tidemark.warehouse.columns.codes import Ints
from tidemark.warehouse.delta.table_names import EVENTS
from tidemark.warehouse.os_errors import report_unreadable_file
from tidemark.warehouse.snapshots.system_tables import PARTS, Contents

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_COUNTED = "rows that are counted"
_NUMBERS = ("files", "row_groups", "rows")


def explained(
    sites_of: Mapping[str, Mapping[str, Contents]],
    parts: Iterable[Narrowed],
    connection: DuckDBPyConnection | None,
) -> SqlPlan:
    """How the views of rows in a statement are found; reads the footers of their files.

    sites_of: the contents of each site of a warehouse, by the name of the warehouse.
    connection: counts the rows of history of which a condition is true; None: they are bounded.
    """
    plans = []
    for part in parts:
        for name, site in sites_of[part.view.warehouse].items():
            contents = site.listed()
            found = find(contents, part.asked, {}, None if part.needed is None else {*part.needed})
            if found is not None:
                plans.append(_plan(part.view.warehouse or name, contents, part, found, connection))
    return SqlPlan(plans)


def _plan(
    site: str, contents: Contents, part: Narrowed, found: Found, connection: DuckDBPyConnection | None
) -> RowsPlan:
    files = {f"{EVENTS}/{file.path}": file for file in contents.list_events()}
    counts = dict.fromkeys([f"{name}{end}" for name in _NUMBERS for end in ("", "_left")], 0)
    for path in contents.event_paths(part.view.part):
        file = files[path]
        rows = None if found.rows is None else found.rows.get(file.path)
        with report_unreadable_file(path):
            footer = pq.read_metadata(path, filesystem=contents.store.filesystem())
        groups = footer.num_row_groups
        edges = np.cumsum([footer.row_group(group).num_rows for group in range(groups)])
        counts["files"] += 1
        counts["files_left"] += rows is None or len(rows) > 0
        counts["row_groups"] += groups
        counts["row_groups_left"] += groups if rows is None else _touched(edges, rows)
        counts["rows"] += footer.num_rows
        counts["rows_left"] += footer.num_rows if rows is None else len(rows)
    read_us = RATES.row * (found.most if found.rows is None else counts["rows_left"])
    return RowsPlan(
        site=site,
        view=part.view.part,
        alias=part.alias,
        columns=found.columns,
        way=SCAN if found.rows is None else INDEX,
        is_covered=found.values is not None,
        most=found.most,
        selected=_selected(contents, part, connection),
        estimates_ms={INDEX: (found.lookup_us + read_us) / 1000, SCAN: found.scan_us / 1000},
        **counts,
    )


def _touched(edges: Ints, rows: Ints) -> int:
    """How many row groups have some of the rows; edges: where each row group ends, exclusive."""
    return len(np.unique(np.searchsorted(edges, rows, side="right")))


def _selected(contents: Contents, part: Narrowed, connection: DuckDBPyConnection | None) -> tuple[int, int]:
    """How many rows of the view the WHERE selects, at least and at most.

    If the index has the columns of the WHERE, its selected rows are counted. Of all other rows, from none to
    all may be selected.
    """
    live = sum(contents.counts[batches] for batches in contents.live)
    if part.view.part == PARTS[1]:
        return 0, live
    live = 0 if part.view.part == PARTS[0] else live
    condition = None
    if connection is not None and part.where is not None:
        condition = condition_sql(part.where)
    names = {name for name in part.view.columns if condition is not None and name.lower() in condition[1]}
    known = bounded(contents, part.asked, names)
    if known.values is None or condition is None or connection is None:
        return 0, known.most + known.left + live
    connection.register(_COUNTED, known.values)
    statement = f"SELECT count(*) FROM {quoted(_COUNTED)} AS {quoted(part.alias)} WHERE {condition[0]}"
    ((count,),) = connection.execute(statement).fetchall()
    return count, count + known.left + live
