"""Worlds that tests of several files ask, or copy; none of them changes one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.query.groupworld import HOUR, START, GroupWorld
from tests.query.indexworld import FEW, IndexWorld, grown
from tests.query.scanworld import World
from tests.query.silenced import three_sites
from tests.query.siteworld import Sites, made
from tidemark.query.scans import index_places
from tidemark.query.scans.index_places import IndexRates


@pytest.fixture(scope="session")
def scan_world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Its path has what paths may have."""
    return World.of(tmp_path_factory.mktemp("scans") / "a 'w' =x=1", seed=20261123)


@pytest.fixture(scope="session")
def changed_scan_world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """One to be copied, and the copy to be changed."""
    return World.of(tmp_path_factory.mktemp("scans") / "own", seed=5)


@pytest.fixture(scope="session")
def late_and_live(tmp_path_factory: pytest.TempPathFactory) -> GroupWorld:
    """Two runs with late rows, and live rows."""
    rows: list[Any] = [
        (START + i % 40 * HOUR / 2, "abc"[i * 7 % 3], i % 5, float(i * 37 % 101), None) for i in range(200)
    ]
    return GroupWorld.of(
        tmp_path_factory.mktemp("world"), [(True, rows[:120]), (True, rows[60:160]), (False, rows[150:])]
    )


@pytest.fixture(scope="session")
def index_world(tmp_path_factory: pytest.TempPathFactory) -> IndexWorld:
    """Indexes on all columns but one."""
    return grown(tmp_path_factory.mktemp("index"))


@pytest.fixture(scope="session")
def few_indexes(tmp_path_factory: pytest.TempPathFactory) -> IndexWorld:
    """One with few indexes; a test that changes it takes a copy."""
    return grown(tmp_path_factory.mktemp("few"), seed=3, index=FEW)


@pytest.fixture(scope="session")
def two_sites(tmp_path_factory: pytest.TempPathFactory) -> Sites:
    """Two warehouses with runs and live rows."""
    return made(tmp_path_factory.mktemp("sites"), 3, 2)


@pytest.fixture
def pair(two_sites: Sites, tmp_path: Path) -> Sites:
    """Two warehouses of the test's own."""
    return two_sites.copy(tmp_path)


@pytest.fixture(scope="session")
def to_silence(tmp_path_factory: pytest.TempPathFactory) -> Sites:
    """Three warehouses; of a copy one can fall silent."""
    return three_sites(tmp_path_factory.mktemp("sites"))


@pytest.fixture
def index_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """In small worlds a scan is always faster: here an index is used wherever it can be."""
    monkeypatch.setattr(index_places, "RATES", IndexRates(row=1e9, group=1))
