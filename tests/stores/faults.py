"""One request of twenty goes wrong, in every way of the gate; whoever meets that runs the same again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tests.stores.gate import Fault
from tidemark.warehouse.errors import CommitFailed, StoreUnavailable
from tidemark.warehouse.os_errors import is_store_failure

T = TypeVar("T")

FAULTS = (
    Fault("500", share=0.01),
    Fault("503", share=0.02),
    Fault("reset", share=0.01),
    Fault("lost", share=0.01),
    Fault("timeout", share=0.002, seconds=2.0),
)
TIMEOUT = "1s"  # the client's, less than that of the fault
TRIES = 10


def insist(work: Callable[[], T]) -> T:
    """Runs the same again while the store fails, as the errors say and a scheduler does."""
    for _ in range(TRIES - 1):
        try:
            return work()
        except StoreUnavailable:
            continue
        except CommitFailed as error:
            if not is_store_failure(error):
                raise
    return work()
