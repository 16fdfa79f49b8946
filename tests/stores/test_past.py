"""A warehouse in a store as it was: after a step, and at a time."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from tests.stores.conftest import Place
from tests.stores.filled import Filled
from tests.stores.rows import check
from tidemark import query, warehouse
from tidemark.warehouse import InputError


def test_a_step_and_a_time_answer_as_they_did_then(place: Place) -> None:
    filled = Filled(place, loads=2, kappa=2)
    filled.append()
    filled.load()
    after_a_load, rows_then = 2, list(filled.committed)
    filled.append()
    time.sleep(0.005)
    moment, rows_at = datetime.now(UTC), list(filled.committed)
    time.sleep(0.005)
    filled.append()
    filled.move()
    filled.load()
    filled.forget()
    check(query.open(place.uri, place.options, at=after_a_load), rows_then)
    check(query.open(place.uri, place.options, at=moment), rows_at)
    check(query.open(place.uri, place.options), filled.committed)
    warehouse.maintain(None, place.uri, grace="0 s", storage_options=place.options)
    with pytest.raises(InputError, match="is deleted"):
        query.open(place.uri, place.options, at=after_a_load)
