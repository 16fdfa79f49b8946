"""Copy: a warehouse at another place, while others load, stream and maintain. Needs no JVM.

One version of each table is copied. The versions are pinned in an order in which each reference resolves
(verification/pinned_tables.py). If nobody commits meanwhile, they are of one moment; else they are a state as
after a crash, which readers and the next load accept. Then:

    data files    those of the versions; what is there with its size is not copied again. If maintenance
                  deleted some meanwhile, all tables are pinned again
    logs          of each table the newest checkpoint and the commits from there to the version, `events`
                  last: before it, no reader takes the place for a warehouse
    verify        of the copy: all its files are read, and every invariant is checked

So a copy that was interrupted is finished by the same call. Earlier versions, and files that no table names
any more, are not copied. The copy has the identity of its source: it is the same warehouse, at another place.

Cost: one read and one write of all files, and the reads of `verify`; a few MB for each of the files that are
copied at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import fs

from tidemark.warehouse.delta import table_open
from tidemark.warehouse.delta.log_files import LAST_CHECKPOINT, checkpoint_name, checkpoint_version
from tidemark.warehouse.delta.log_nesting import entries_read
from tidemark.warehouse.delta.probe import check_conditional_puts
from tidemark.warehouse.delta.retries import delete_file
from tidemark.warehouse.delta.round_trips import at_once
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.delta.table_names import COPIED_FROM, EVENTS
from tidemark.warehouse.errors import Contended, DamagedWarehouse, InputError, TidemarkError, without_secrets
from tidemark.warehouse.os_errors import report_os_errors
from tidemark.warehouse.verification.pinned_tables import PinnedTables, pin_tables
from tidemark.warehouse.verify import Report, verify

_LOOKS = 20  # for a moment in which nobody commits
_TRIES = 5  # until maintenance deletes no file of what is copied
_PIECE = 2**22  # bytes of a file in memory
_AT_ONCE = 16  # files between two words of progress


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What a call of `copy` did.

    versions   by table, the version that was copied
    files      the number of data files of the copy
    bytes      their size
    there      how many of them were there already, from a call that was interrupted
    verified   what `verify` says of the copy; None if it was not asked for
    """

    versions: Mapping[str, int]
    files: int
    bytes: int
    there: int
    verified: Report | None


def copy(
    uri: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    storage_options: dict[str, str] | None = None,
    to_storage_options: dict[str, str] | None = None,
    check: bool = True,
    progress: Callable[[str], None] | None = None,
) -> CopyReport:
    """Copies a warehouse to a place where there is none, between disks and object stores.

    uri       the warehouse; others may write to it meanwhile. Nothing of it is changed
    to        a new or empty folder, or the unfinished copy that an interrupted call with this source left
    storage_options
              options of the object store that has the warehouse, as delta-rs takes them
    to_storage_options
              those of the store that gets the copy; None: the same
    check     whether `verify` reads the copy
    progress  called with a text at the start of each part

    Run the same call again after it was interrupted: it goes on. Raises NotAWarehouse if there is no
    warehouse at `uri`, InputError if there is something else at `to`, and for an object store that does not
    refuse a second put of the same object, DamagedWarehouse for a table that cannot be read, and Contended if
    maintenance deletes files again and again before they are copied.
    """
    with report_os_errors("copy"):
        say = progress or (lambda _: None)
        source = Store.from_uri(uri, storage_options)
        target_options = storage_options if to_storage_options is None else to_storage_options
        target = Store.from_uri(to, target_options)
        _check_apart(source, target)
        pinned = _pin(uri, storage_options)
        _begin(target, pinned.snapshot.identity)
        there: set[str] = set()
        for _ in range(_TRIES):
            stated = pinned.file_sizes()
            there |= set(stated) & _there(target, stated)
            try:
                _copy_files(source, target, {path: stated[path] for path in set(stated) - there}, say)
                break
            except FileNotFoundError as error:
                newer = _pin(uri, storage_options)
                if newer.versions == pinned.versions:
                    raise DamagedWarehouse(
                        f"a file of {without_secrets(source.uri)} is missing ({error}), so it cannot be "
                        "copied. Run `tidemark verify` and `tidemark repair`, and the same copy again."
                    ) from error
                pinned = newer
        else:
            raise Contended(
                f"maintenance deleted files of {without_secrets(source.uri)} {_TRIES} times before they were "
                "copied. Run the same copy again: it goes on. Let the grace be longer than a copy takes."
            )
        say("logs")
        _copy_logs(source, target, pinned)
        delete_file(target.filesystem(), COPIED_FROM)
        verified = verify(to, storage_options=target_options, progress=progress) if check else None
        versions = {name: table.version() for name, table in _last_opened(pinned).items()}
        return CopyReport(versions, len(stated), sum(stated.values()), len(there & set(stated)), verified)


def _check_apart(source: Store, target: Store) -> None:
    places = [f"{store.uri.rstrip('/')}/" for store in (source, target)]
    if places[0].startswith(places[1]) or places[1].startswith(places[0]):
        raise InputError(
            f"a warehouse cannot be copied into itself: {without_secrets(source.uri)} to "
            f"{without_secrets(target.uri)}. Give a folder beside it."
        )


def _pin(uri: str | os.PathLike[str], storage_options: dict[str, str] | None) -> PinnedTables:
    """All tables, of one moment if there is one in which nobody commits. Raises the error of a table."""
    pinned = pin_tables(uri, storage_options)
    for _ in range(_LOOKS):
        before, pinned = pinned, pin_tables(uri, storage_options)
        if before.versions == pinned.versions:
            break
    for _, table in pinned.tables():
        if isinstance(table, TidemarkError):
            raise table
    return pinned


def _begin(target: Store, identity: str) -> None:
    """Checks that the place is new, or has an unfinished copy of this warehouse; marks it as a copy."""
    target.files.check_place(writing=True)
    filesystem, place = target.filesystem(), without_secrets(target.uri)
    if filesystem.get_file_info(COPIED_FROM).type == fs.FileType.File:
        if not identity.encode().startswith(_read(filesystem, COPIED_FROM)):  # a kill may have cut it
            raise InputError(
                f"{place} has a part of a copy of another warehouse. Give another folder, or delete that one."
            )
    elif table_open.exists(target, EVENTS):
        raise InputError(
            f"{place} has a warehouse already, and nothing of it was changed. Give another folder."
        )
    elif filesystem.get_file_info(fs.FileSelector("", allow_not_found=True)):
        raise InputError(f"{place} is not empty, and nothing of it was changed. Give a new folder.")
    else:
        check_conditional_puts(target)
    if target.files.folder is not None:
        Path(target.files.folder).mkdir(parents=True, exist_ok=True)
    _write(filesystem, COPIED_FROM, identity.encode())


def _there(target: Store, stated: Mapping[str, int]) -> set[str]:
    """Which of the files are at the target with their sizes."""
    tables = {path.split("/", 1)[0] for path in stated}
    found = target.filesystem().get_file_info
    listed = (one for name in sorted(tables) for one in found(fs.FileSelector(name, True, True)))
    return {one.path for one in listed if stated.get(one.path) == one.size}


def _copy_files(source: Store, target: Store, sizes: Mapping[str, int], say: Callable[[str], None]) -> None:
    """Copies files; FileNotFoundError if one is not there any more."""
    reads, writes = source.filesystem(), target.filesystem()
    paths, done, whole = sorted(sizes), 0, sum(sizes.values())
    for start in range(0, len(paths), _AT_ONCE):
        some = paths[start : start + _AT_ONCE]
        say(f"files: {done / max(whole, 1):.0%} of {whole / 2**20:.1f} MB")
        for folder in {path.rsplit("/", 1)[0] for path in some}:
            writes.create_dir(folder, recursive=True)
        at_once(partial(_copy_file, reads, writes), some)
        done += sum(sizes[path] for path in some)


def _copy_file(reads: fs.FileSystem, writes: fs.FileSystem, path: str) -> None:
    with reads.open_input_stream(path) as taken, writes.open_output_stream(path) as put:
        while piece := taken.read(_PIECE):
            _write_piece(put, piece)


def _last_opened(pinned: PinnedTables) -> dict[str, DeltaTable]:
    """Each table, `events` last; of the steps those that were opened last."""
    found = {name: table for name, table in pinned.tables() if isinstance(table, DeltaTable)}
    return {**{name: table for name, table in found.items() if name != EVENTS}, EVENTS: found[EVENTS]}


def _copy_logs(source: Store, target: Store, pinned: PinnedTables) -> None:
    """Copies what opens each table at its version; that of `events` last.

    The oldest entry, or the checkpoint, comes last: before it, no table can be opened.
    """
    for name, table in _last_opened(pinned).items():
        folder, version = f"{name}/_delta_log", table.version()
        wanted = entries_read(source.files.log_names(name), version)
        paths = [f"{folder}/{entry}" for entry in wanted]
        contents = dict(zip(paths, at_once(partial(_read, source.filesystem()), paths), strict=True))
        hint = f"{folder}/{LAST_CHECKPOINT}"
        newest = checkpoint_version(contents.get(hint))
        # The checkpoint may have come after the log was listed. delta-rs finds one by its name, too.
        if newest is None or f"{folder}/{checkpoint_name(newest)}" not in contents:
            contents.pop(hint, None)
        target.filesystem().create_dir(folder, recursive=True)
        for path in sorted(contents, reverse=True):
            _write(target.filesystem(), path, contents[path])


def _read(filesystem: fs.FileSystem, path: str) -> bytes:
    with filesystem.open_input_stream(path) as file:
        content: bytes = file.read()
    return content


def _write(filesystem: fs.FileSystem, path: str, content: bytes) -> None:
    with filesystem.open_output_stream(path) as file:
        _write_piece(file, content)


def _write_piece(file: pa.NativeFile, piece: bytes) -> None:
    file.write(piece)
