"""The places of an alert over sites: the exchange by which they meet, and their messages.

    TASK     the coordinator to a site    the conditions, and how often the site has to say something
    ASK      the coordinator to a site    the numbers of conditions with a group: report
    ZONES    the coordinator to a site    the same with their zones
    GONE     the coordinator to a site    the same: no site has rows of the group, so forget it
    REPORT   a site to the coordinator    how often the site looked; the same as in ASK with their sums here,
                                          or why there are none; of no condition: that it is there

Contents are JSON. Each place seals what it sends with the secret.

A group is named by the JSON text of its values. The group ALL stands for a condition without groups. If the
condition has groups, a report about ALL has no sums: it says that the site has reported all its groups, or
why it cannot.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

from tidemark.query.alerts.reading import number_of
from tidemark.sketches.errors import CorruptSketch, SketchError
from tidemark.sketches.sites.endpoint import Endpoint
from tidemark.sketches.sites.machine import Machine, Message
from tidemark.warehouse.errors import TidemarkError
from tidemark.warehouse.exchange import FileExchange, Place
from tidemark.warehouse.os_errors import in_home

TASK, ASK, ZONES, REPORT, GONE = range(1, 6)
PATIENCE = 4.0  # seconds until a message that nobody took is sent again; then twice that ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A folder or an object store where the places of an alert over sites meet.

    uri: an absolute path, or the address of an object store with a conditional put; all places can reach it.
    topic: the alert's name in the exchange, the same at all places: text of at most 200 bytes.
    secret: 16 to 64 bytes, the same at all places; it is never shown.
    storage_options: of the object store, as delta-rs defines them.
    """

    uri: str | os.PathLike[str]
    topic: str
    secret: bytes = field(repr=False)
    storage_options: dict[str, str] | None = field(default=None, repr=False)

    def place(self, number: int, peers: list[int], machine: Machine) -> Place:
        """The place of that number, started now. InputError for an exchange that cannot be used."""
        with exchange_errors():
            incarnation = time.time_ns()
            endpoint = Endpoint(self.topic, number, peers, incarnation=incarnation, secret=self.secret)
            uri = Path(in_home(self.uri)).absolute() if "://" not in str(self.uri) else self.uri
            files = FileExchange(uri, endpoint, storage_options=self.storage_options, from_now=True)
            return Place(machine, endpoint, files)


@contextmanager
def exchange_errors() -> Iterator[None]:
    """Refusals of the exchange as errors of the package."""
    try:
        yield
    except SketchError as error:
        raise TidemarkError(str(error)) from error


def said(to: int, kind: int, content: Any) -> Message:
    """A message with its content."""
    return Message(to, kind, json.dumps(content, separators=(",", ":")).encode())


def level_text(clear: Any) -> list[str] | None:
    """A clear level as JSON has it: a number or a time, exactly."""
    if clear is None:
        return None
    if isinstance(clear, str | date):
        return ["time", clear if isinstance(clear, str) else clear.isoformat()]
    return ["number", str(number_of(clear))]


def level_of(said: list[str] | None) -> str | Fraction | None:
    """The inverse of `level_text`."""
    return None if said is None else said[1] if said[0] == "time" else Fraction(said[1])


@contextmanager
def one_release(payload: bytes) -> Iterator[Any]:
    """The content of a message. CorruptSketch if it does not have the form of this release."""
    try:
        yield json.loads(payload)
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        if isinstance(error, SketchError):
            raise
        raise CorruptSketch(f"got {payload[:80]!r}; run one release of tidemark at all places") from error
