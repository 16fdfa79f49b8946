"""Entries of a log that nest JSON too deep for delta-rs, which ends the process at about 30,000 levels.

delta-rs parses the entries of a log, and the statistics that they have as text, by functions that call
themselves for each level. Nothing that a table needs is nested more than a few levels deep. So an entry is
looked at before delta-rs sees it. Brackets in other strings do not count.

Cost: a small entry is checked by its size alone; a larger one takes a few passes of numpy, a millisecond a
megabyte. In a checkpoint, which is Parquet, only the statistics are checked.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.warehouse.delta.log_files import LAST_CHECKPOINT
from tidemark.warehouse.errors import DamagedWarehouse

MOST_LEVELS = 128  # the levels that serde_json takes, which parses the schema in a log
_HARMLESS_BYTES = 2**12  # as many levels are a quarter of what delta-rs takes
_NOT_BLANK = re.compile(r"\S")


def may_nest(size: int) -> bool:
    """Whether an entry of that many bytes can nest too deep for delta-rs; else it need not be looked at."""
    return size > _HARMLESS_BYTES


def check_nesting(table: str, name: str, content: bytes) -> None:
    """DamagedWarehouse if the JSON of an entry of a table's log nests deeper than MOST_LEVELS.

    name   the name of the entry's file; a checkpoint is Parquet, with statistics in JSON
    """
    if name.endswith(".parquet"):
        texts = list(_statistics_in_checkpoint(content))
    elif _openings(content) > MOST_LEVELS:
        texts = [content, *(_statistics(content) if _depth(content) <= MOST_LEVELS else ())]
    else:
        return
    if any(_depth(text) > MOST_LEVELS for text in texts):
        raise DamagedWarehouse(
            f"the log of the table {table} cannot be read: its entry {name} nests JSON more than "
            f"{MOST_LEVELS} levels deep. `tidemark repair` makes tables again from events; a log of events "
            "itself has to come back from a copy."
        )


def _openings(text: bytes) -> int:
    return text.count(b"{") + text.count(b"[")


def _depth(text: bytes) -> int:
    """The deepest level of the brackets that stand in no string."""
    codes = np.frombuffer(text.replace(rb"\\", b"").replace(rb"\"", b""), np.uint8)
    outside = ~np.bitwise_xor.accumulate(codes == ord('"'))
    levels = np.zeros(len(codes), np.int32)
    levels[outside & ((codes == ord("{")) | (codes == ord("[")))] = 1
    levels[outside & ((codes == ord("}")) | (codes == ord("]")))] = -1
    return int(levels.cumsum(dtype=np.int32).max(initial=0))


def _statistics(entry: bytes) -> Iterator[bytes]:
    """The texts of statistics in an entry that is not nested too deep, up to where it stops being JSON."""
    for action in _values(entry.decode(errors="replace")):
        for part in action.values() if isinstance(action, dict) else ():
            stats = part.get("stats") if isinstance(part, dict) else None
            if isinstance(stats, str) and _openings(stats.encode(errors="replace")) > MOST_LEVELS:
                yield stats.encode(errors="replace")


def _statistics_in_checkpoint(content: bytes) -> Iterator[bytes]:
    """The texts of statistics with many levels in a checkpoint; none if it cannot be read."""
    with suppress(pa.ArrowException, OSError):
        for batch in pq.ParquetFile(io.BytesIO(content)).iter_batches(columns=["add.stats"]):
            # Not pyarrow.compute: it imports pandas.
            for text in set(batch.column("add").field("stats").to_pylist() if batch.num_columns else ()):
                if text is not None and _openings(text.encode(errors="replace")) > MOST_LEVELS:
                    yield text.encode(errors="replace")


def _values(text: str) -> Iterator[Any]:
    decoder, place = json.JSONDecoder(), 0
    with suppress(ValueError):
        while match := _NOT_BLANK.search(text, place):
            value, place = decoder.raw_decode(text, match.start())
            yield value


def entries_read(names: Iterable[str], version: int | None = None, after: int = -1) -> list[str]:
    """The files of a log that delta-rs reads to open a version; None is the newest.

    after   the version at which the table is open already; -1 if it is not
    """
    numbers = {name: int(name[:20]) for name in names if name[:20].isdigit()}
    if version is not None:
        numbers = {name: number for name, number in numbers.items() if number <= version}
    checkpoints = [number for name, number in numbers.items() if name.endswith(".checkpoint.parquet")]
    first = max(after + 1, *checkpoints, 0)
    commits = [name for name, number in numbers.items() if name.endswith(".json") and number >= first]
    if after >= 0:
        return commits
    hints = [name for name in names if name == LAST_CHECKPOINT]
    whole = [name for name, number in numbers.items() if number == first and name.endswith(".parquet")]
    return [*hints, *whole, *commits]
