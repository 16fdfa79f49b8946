"""The files of a warehouse, for clients that open it through this server: see served_ranges.py.

Only tables of a warehouse that the server was started with are given, and the file `_copied_from`; no other
files of its folder, and no symbolic link is followed. Of several warehouses that are asked as one, each has
its own name behind a dot, as in `flights.eu`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyarrow import fs

from tidemark.jobs.serve.responses import Refused
from tidemark.query.warehouse import Warehouse
from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.delta import table_names
from tidemark.warehouse.delta.files import Files
from tidemark.warehouse.delta.round_trips import ByteRange
from tidemark.warehouse.delta.served_ranges import (
    ANSWER_BYTES,
    MOST_RANGES,
    NAMES_BYTES,
    Answered,
    Part,
    encode,
)
from tidemark.warehouse.errors import InputError, shortened
from tidemark.warehouse.os_errors import report_os_errors

REQUESTS = ("ranges", "names")
_SERVED = frozenset(
    (
        *table_names.ALWAYS_THERE,
        *table_names.PARENTS,
        table_names.REJECTED,
        table_names.REMOVALS,
        table_names.REMOVED,
        table_names.PURGES,
        table_names.COPIED_FROM,
    )
)
_LONGEST_PATH = 1_024
_MOST_PLACE = 2**63


def parsed(body: bytes) -> dict[str, Any]:
    """The object of a request; InputError for anything else."""
    try:
        given: Any = json.loads(body)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict) or not isinstance(given.get("warehouse"), str):
        raise InputError("the body must be a JSON object with the name of a warehouse.")
    return given


def files_of(wh: Warehouse, name: str) -> Files:
    """The files of the warehouse of this name; `flights.eu` is one of several that are asked as one."""
    site, sites = name.partition(".")[2], wh.sites
    if site in sites:
        return sites[site].store.files
    first = name.partition(".")[0]
    has = (
        "is one warehouse. Open it by this name"
        if "" in sites
        else f"is several: {', '.join(f'{first}.{one}' for one in sites)}. Open one of these"
    )
    raise InputError(f"no files are of {shortened(name)}: {shortened(first)} {has}.")


def answer(files: Files, request: str, given: Mapping[str, Any]) -> bytes:
    """The answer to one of REQUESTS."""
    with report_os_errors("reading files of a warehouse"):
        if request == "names":
            return _names(files, _checked(given.get("folder"), may_be_all=True))
        return encode(_parts(files, _ranges(given.get("ranges"))))


def _names(files: Files, folder: str) -> bytes:
    folders = [folder] if folder else sorted(_SERVED)
    found = [info for one in folders for info in _below(files.filesystem, one)]
    listed = [[one.path, one.size, one.mtime_ns] for one in found if one.type == fs.FileType.File]
    text = json_text({"files": listed}).encode()
    if len(text) > NAMES_BYTES:
        raise Refused(422, "TooMuch", "the list of files is larger than 64 MB. Ask for a folder in it.")
    return text


def _below(filesystem: fs.FileSystem, path: str) -> list[fs.FileInfo]:
    """The file at a path, or what is below the folder there."""
    own = filesystem.get_file_info(path)
    if own.type != fs.FileType.Directory:
        return [own]
    return list(filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True)))


def _parts(files: Files, wanted: Sequence[ByteRange]) -> list[Answered]:
    """The parts of the ranges that the files have, cut after ANSWER_BYTES."""
    size_of = files.filesystem.get_file_info
    sizes = {one.path: size_of(one.path).size for one in wanted if one.stop is None}  # None without a file
    parts: list[Answered] = []
    left, asked = ANSWER_BYTES, dict[int, ByteRange]()
    for place, one in enumerate(wanted):
        stop = sizes[one.path] if one.stop is None else one.stop
        if stop is None:
            parts.append((Part.ABSENT, b""))
            continue
        end = max(one.start, min(stop, one.start + left))
        left -= end - one.start
        parts.append((Part.CUT if end < stop else Part.WHOLE, b""))
        if end > one.start:
            asked[place] = ByteRange(one.path, one.start, end)
    for (place, _), content in zip(asked.items(), files.get(list(asked.values())), strict=True):
        parts[place] = (Part.ABSENT, b"") if content is None else (parts[place][0], content)
    return parts


def _ranges(given: Any) -> list[ByteRange]:
    if not isinstance(given, list) or not 0 < len(given) <= MOST_RANGES:
        raise InputError(f"ranges must be a list of 1 to {MOST_RANGES:,} [path, start, stop].")
    return [_range(one) for one in given]


def _range(given: Any) -> ByteRange:
    if not isinstance(given, list) or len(given) != 3:
        raise InputError(f"a range is [path, start, stop], got {shortened(given)}.")
    path, start, stop = given
    end = _MOST_PLACE if stop is None else stop
    if not all(type(one) is int for one in (start, end)) or not 0 <= start <= end <= _MOST_PLACE:
        raise InputError(f"a range has whole numbers start <= stop from 0 on, got {shortened(given)}.")
    return ByteRange(_checked(path), start, stop)


def _checked(path: Any, *, may_be_all: bool = False) -> str:
    """The path of a file of a table, relative to the warehouse; InputError for any other."""
    if path == "" and may_be_all:
        return ""
    parts = path.split("/") if isinstance(path, str) and len(path) <= _LONGEST_PATH else [""]
    is_inside = parts[0] in _SERVED and not {"", ".", ".."} & set(parts)
    if not is_inside or not path.isprintable() or "\\" in path:
        raise InputError(f"no path of a file of a table: {shortened(path)}.")
    return str(path)
