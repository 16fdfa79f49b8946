"""A copy goes from a disk into a store, from one folder of it to another, and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stores.conftest import Place
from tests.stores.filled import Filled
from tidemark import query, warehouse


def test_a_copy_goes_between_disks_and_stores(place: Place, tmp_path: Path) -> None:
    filled = Filled(place, loads=3, batches=2, kappa=2)
    near, options = tmp_path / "near", place.options
    second, third = f"{place.uri}-second", f"{place.uri}-third"

    def check(uri: str | Path) -> None:
        wh = query.open(uri, storage_options=None if uri == near else options)
        assert [one.value for one in wh.quantile([0.1, 0.5, 0.9], mode="exact")] == truth

    wh = query.open(place.uri, storage_options=options)
    truth = [one.value for one in wh.quantile([0.1, 0.5, 0.9], mode="exact")]
    for uri, to, ours, theirs in (
        (place.uri, near, options, {}),
        (near, second, None, options),
        (second, third, options, None),
    ):
        report = warehouse.copy(uri, to, storage_options=ours, to_storage_options=theirs)
        assert report.verified is not None
        assert report.verified.ok
        check(to)
    assert warehouse.load(None, third, storage_options=options).outcome == "loaded"
    check(third)
    with pytest.raises(warehouse.InputError, match="has a warehouse already"):
        warehouse.copy(near, third, to_storage_options=options)
    filled.check()
