"""Which files an input is: one rule for this process, for Spark, and for object stores.

    a file         itself
    a folder       its files, by name; not those whose names begin with '_' or '.', as everywhere in Spark.
                   A folder in it is refused
    a pattern      has * ? or [..], and no such path exists: what matches, by name, each a file or a folder as
                   above. With **, which is any number of folders, also none, it matches files alone
    a Delta table  alone, and whole: only its log knows which of its files have its rows

No file is taken twice. Files of several folders called `column=value` are refused: the column is in no file.
The rule is `find_inputs`, over the few questions of `Places`; `LocalPlaces` answers them for this machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol

from tidemark.warehouse.errors import InputError
from tidemark.warehouse.os_errors import as_system_refused, in_home

_FORMAT_OF_EXTENSION = {
    "parquet": "parquet",
    "csv": "csv",
    "tsv": "tsv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
}
FORMATS = (*dict.fromkeys(_FORMAT_OF_EXTENSION.values()), "delta")
_DELTA_LOG = "_delta_log"
_MAGIC = frozenset("*?[")
_URL_MARK = "://"
_SHOWN_INPUTS = 3  # in an error text
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(//[^/]*)?")
_NO_PARTITIONS = (
    "A column in the names of folders is not read: write it into the files, or make them a Delta table."
)


class Places(Protocol):
    """A file system. Paths are texts in its own form, with '/' between their parts."""

    def is_folder(self, path: str) -> bool | None:
        """Whether it is a folder; None if there is nothing."""

    def entries(self, folder: str) -> list[tuple[str, bool]]:
        """The name of each entry, and whether it is a folder."""

    def real(self, path: str) -> str:
        """The path that two names of one file share."""


@dataclass(frozen=True, slots=True)
class Found:
    """The files of an input in their order, at least one; or, if `is_delta`, the folder of a Delta table."""

    paths: tuple[str, ...]
    is_delta: bool = False


def find_inputs(given: Sequence[str], places: Places) -> Found:
    """What the given paths and patterns mean; InputError for what is missing, or means nothing whole."""
    paths = map(in_home, given)
    named = [entry for one in paths for entry in _expanded(one.rstrip("/") or one, places)]
    files: list[str] = []
    for path, is_folder in named:
        entries = sorted(places.entries(path)) if is_folder else []
        if (_DELTA_LOG, True) not in entries:
            files += _visible(path, entries) if is_folder else [path]
        elif len(named) == 1:
            return Found((path,), is_delta=True)
        else:
            raise InputError(f"{path} is a Delta table: it is an input of its own. Load it as its own batch.")
    _check_distinct(files, places)
    _check_folders(files, places)
    return Found(tuple(files))


def described(given: Sequence[str]) -> str:
    """The inputs for an error text: the first ones, and the number of the others."""
    others = len(given) - _SHOWN_INPUTS
    return ", ".join(given[:_SHOWN_INPUTS]) + (f" and {others:,} more" if others > 0 else "")


def format_of(given: Sequence[str], found: Found, kind: str | None) -> str:
    """The given format, or else that of the files' names; InputError if these do not fit together.

    given: the paths and patterns, for error texts. kind: the given format, None without one.
    """
    if found.is_delta and kind in (None, "delta"):
        return "delta"
    if found.is_delta or kind == "delta":
        raise InputError(
            f"{found.paths[0]} is a Delta table: its files may have rows that it removed. Omit --format."
            if found.is_delta
            else f"{described(given)} is not a Delta table. Omit --format delta."
        )
    if kind is not None:
        return kind
    formats = set().union(*map(formats_of, found.paths))
    if len(formats) != 1:
        raise InputError(
            f"cannot tell the format of {described(given)} (found {sorted(formats) or 'none'}). "
            f"Give --format {'|'.join(FORMATS)}, or name the files so."
        )
    return formats.pop()


def formats_of(path: str) -> set[str]:
    """The formats that the name of a file stands for: none, one, or several."""
    extensions = path.rpartition("/")[2].lower().split(".")[1:]
    return {_FORMAT_OF_EXTENSION[part] for part in extensions if part in _FORMAT_OF_EXTENSION}


def input_files(given: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    """The files of one or several local paths and patterns: `find_inputs`. InputError for a Delta table."""
    several = [given] if isinstance(given, str | os.PathLike) else given
    found = find_inputs([os.fspath(one) for one in several], LocalPlaces())
    if found.is_delta:
        raise InputError(
            f"{found.paths[0]} is a Delta table, which only Spark can read: load it with a Spark session."
        )
    return list(map(local_path, found.paths))


class LocalPlaces:
    """The file systems of this machine. `file://` before a path is left out."""

    def is_folder(self, path: str) -> bool | None:
        """See `Places.is_folder`; InputError for the address of another machine."""
        local = local_path(path)
        if not os.path.lexists(local):
            return None
        return local.is_dir()

    def entries(self, folder: str) -> list[tuple[str, bool]]:
        """See `Places.entries`."""
        try:
            with os.scandir(local_path(folder)) as entries:
                return [(entry.name, entry.is_dir()) for entry in entries]
        except OSError as error:
            raise as_system_refused(f"reading {folder}", error) or InputError(
                f"cannot read the input {folder}: {error}. Nothing was changed."
            ) from error

    def real(self, path: str) -> str:
        """See `Places.real`."""
        return os.path.realpath(path)


def is_local(path: str) -> bool:
    """Whether it is a path on this machine, and no address."""
    return _URL_MARK not in path.removeprefix("file://")


def local_path(path: str) -> Path:
    """The path on this machine; InputError for the address of another one."""
    if not is_local(path):
        raise InputError(f"{path} is not on this machine: without Spark an input is a local file or folder.")
    return Path(path.removeprefix("file://"))


def _expanded(one: str, places: Places) -> list[tuple[str, bool]]:
    """The path if it exists, otherwise what it matches as a pattern; each with whether it is a folder."""
    if not one:
        raise InputError("an input is an empty text. Name a file, a folder or a pattern.")
    is_folder = places.is_folder(one)
    if is_folder is None:
        scheme = _SCHEME.match(one)
        start = scheme[0] if scheme else ""
        absolute = one.startswith("/", len(start))
        parts = one[len(start) :].lstrip("/").split("/")
        parts += ["*"] if parts[-1] == "**" else []
        found = _matches(start if absolute or scheme else ".", parts, places) if _MAGIC & set(one) else ()
        matches = sorted({entry for entry in found if "**" not in parts or not entry[1]})
        if not matches:
            raise InputError(f"no such input: {one}.")
        return matches
    if not is_folder and _is_hidden(_name(one)):
        raise InputError(
            f"the name of {one} begins with '_' or '.': such files are never part of an input, as in Spark. "
            "Rename it."
        )
    return [(one, is_folder)]


def _matches(folder: str, parts: Sequence[str], places: Places) -> Iterator[tuple[str, bool]]:
    """The paths below the folder that match the parts of a pattern, each with whether it is a folder."""
    part, rest = parts[0], parts[1:]
    if part == "**":
        yield from _matches(folder, rest, places)
    if not _MAGIC & set(part):
        path = f"{folder}/{part}"
        is_folder = places.is_folder(path)
        if is_folder and rest:
            yield from _matches(path, rest, places)
        elif is_folder is not None and not rest:
            yield path, is_folder
        return
    for name, is_folder in places.entries(folder):
        if (_is_hidden(name) and part[0] != name[0]) or not fnmatchcase(name, part):
            continue
        path = f"{folder}/{name}"
        if is_folder and part == "**":
            yield from _matches(path, parts, places)
        elif is_folder and rest:
            yield from _matches(path, rest, places)
        elif not rest and part != "**":
            yield path, is_folder


def _visible(folder: str, entries: Sequence[tuple[str, bool]]) -> list[str]:
    """The files of the folder; InputError for a folder of folders, or without files."""
    visible = [entry for entry in entries if not _is_hidden(entry[0])]
    inner = next((name for name, is_folder in visible if is_folder), None)
    if inner is not None:
        remedy = (
            _NO_PARTITIONS
            if "=" in inner
            else f"Name all files with a pattern, such as '{folder}/**/*.parquet', or load each folder."
        )
        raise InputError(f"the input {folder} contains the folder {inner}. {remedy}")
    if not visible:
        raise InputError(f"the input {folder} contains no files.")
    return [f"{folder}/{name}" for name, _ in visible]


def _check_distinct(files: Sequence[str], places: Places) -> None:
    seen: dict[str, str] = {}
    for file in files:
        real = places.real(file)
        if real in seen:
            same = "" if seen[real] == file else f", also called {seen[real]},"
            raise InputError(f"the file {file}{same} is in the input twice. Name it once.")
        seen[real] = file


def _check_folders(files: Sequence[str], places: Places) -> None:
    """InputError for files of a Delta table, or of several folders that stand for values of a column."""
    folders = {file.rpartition("/")[0]: file for file in files}
    if len(valued := {_name(folder) for folder in folders if "=" in _name(folder)}) > 1:
        raise InputError(f"the files are in folders such as {min(valued)}. {_NO_PARTITIONS}")
    for folder, file in folders.items():
        table = folder
        while "=" in _name(table):
            table = table.rpartition("/")[0]
        if places.is_folder(f"{table}/{_DELTA_LOG}" if table else _DELTA_LOG):
            raise InputError(
                f"{file} is a file of the Delta table {table or '.'}: only its log knows which rows count. "
                "Give the table's folder instead."
            )


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _is_hidden(name: str) -> bool:
    return name.startswith(("_", "."))
