"""Checks that an object store lets only one of two writers create an object: every commit relies on that.

Two threads create the same Delta table, in a folder of its own, at the same time. Both look whether it
exists, and then put version 0 of the log on the condition that it is absent. The outcomes are:

    both succeeded                      the store ignores the condition: two commits could replace each other
    one was refused by the condition    the store honours it
    one found the table by its look     the threads were not at the same time: they try again
    both failed, and one by its look    the answer to the other's put was lost: they try again
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import CommitProperties

from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import InputError, without_secrets
from tidemark.warehouse.os_errors import is_store_failure

_LOG = logging.getLogger("tidemark.create")
_SCHEMA = pa.schema([("probe", pa.int64())])
_TRIES = 10
_WRITERS = 2
# delta-rs' text for a put that the condition refused; the look at the folder has another one.
_REFUSED = "Failed to commit transaction"
_FOUND = "already exists at that location"


def check_conditional_puts(store: Store) -> None:
    """InputError if the store takes two conditional puts of the same object; local disks are not checked.

    About 30 requests. What was put is deleted.
    """
    if store.files.folder is not None:
        return
    failures: Sequence[Exception] = ()
    for _ in range(_TRIES):
        failures = _race(store)
        if not failures:
            raise InputError(
                f"{without_secrets(store.uri)}: two writers could put the same object, so the store ignores "
                "the condition If-None-Match, and of two loads at the same time one could be lost. Nothing "
                "was created. Use a store that has conditional puts, or switch them on "
                "(aws_conditional_put=etag in the storage options); or let delta-rs lock through DynamoDB: "
                "AWS_S3_LOCKING_PROVIDER=dynamodb and DELTA_DYNAMO_TABLE_NAME."
            )
        if any(_REFUSED in str(failure) for failure in failures):
            return
        lasting = [one for one in failures if _FOUND not in str(one) and not is_store_failure(one)]
        if len(lasting) == _WRITERS:
            break
    if len(failures) == _WRITERS:
        raise failures[0]
    _LOG.warning("%s: could not see whether it has conditional puts", without_secrets(store.uri))


def _race(store: Store) -> Sequence[Exception]:
    """The errors of two writers that create the same object at the same time."""
    folder = f"_probe-{uuid.uuid4().hex}"
    together = threading.Barrier(_WRITERS)

    def create() -> Exception | None:
        together.wait()
        try:
            DeltaTable.create(
                store.table(folder),
                _SCHEMA,
                storage_options=store.options,
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        except Exception as error:  # noqa: BLE001  told apart by the caller
            return error
        return None

    with ThreadPoolExecutor(_WRITERS) as threads:
        outcomes = [writer.result() for writer in [threads.submit(create) for _ in range(_WRITERS)]]
    with suppress(OSError):  # if the caller may not delete, a few hundred bytes stay
        store.filesystem().delete_dir(folder)
    return [outcome for outcome in outcomes if outcome is not None]
