"""One S3 server for the tests of a process; each test has a folder of its own in its bucket."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.stores.filled import Filled
from tests.stores.server import Server, running


@dataclass(frozen=True)
class Place:
    """A folder in the bucket of the server."""

    server: Server
    uri: str

    @property
    def options(self) -> dict[str, str]:
        return self.server.options


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with running() as started:
        yield started


@pytest.fixture
def place(server: Server) -> Iterator[Place]:
    """An empty folder; the gate lets everything through until the test says otherwise."""
    server.set()
    yield Place(server, server.address(f"{uuid.uuid4().hex}/flights"))
    server.set()


@pytest.fixture(scope="session")
def filled_once(server: Server) -> Filled:
    return Filled(Place(server, server.address("filled")), 1, 1)


@pytest.fixture
def filled(filled_once: Filled, place: Place) -> Filled:
    """A warehouse of a load and a live batch, of the test's own."""
    return filled_once.copy(place)
