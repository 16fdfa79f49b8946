"""A warehouse with a feature that this version does not know is refused by name, and stays as it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.warehouse.disk import edit_properties, files_of
from tidemark import query, warehouse
from tidemark.warehouse import NotAWarehouse
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.load import load
from tidemark.warehouse.settings import features

USES: dict[str, Callable[[Path], Any]] = {
    "opening": query.open,
    "options": lambda uri: warehouse.read_options(Store.from_uri(uri)),
    "creating": lambda uri: warehouse.create(None, uri, "x"),
    "loading": lambda uri: load(None, uri),
    "maintaining": lambda uri: warehouse.maintain(None, uri),
    "verifying": warehouse.verify,
}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    warehouse.create(None, tmp_path / "w", "x", eps=0.1)
    return tmp_path / "w"


def refused_by(uri: Path, use: str) -> str:
    """What the error of the use says; nothing has changed."""
    before = files_of(uri)
    with pytest.raises(NotAWarehouse) as found:
        USES[use](uri)
    assert files_of(uri) == before
    return str(found.value)


@pytest.mark.parametrize("use", USES)
def test_an_unknown_feature_is_named_with_the_version_that_knows_it(made: Path, use: str) -> None:
    edit_properties(made, {"tidemark.features": '{"wide-marks": "0.3.0"}'})
    said = refused_by(made, use)
    assert all(word in said for word in (str(made), "'wide-marks'", "0.3.0", "newer tidemark")), said


def test_of_several_features_all_that_are_unknown_are_named_with_the_greatest_version(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "KNOWN", frozenset({"known"}))
    edit_properties(made, {"tidemark.features": '{"b": "0.9.0", "known": "7", "a": "0.10.0"}'})
    said = refused_by(made, "opening")
    assert "'a', 'b'" in said
    assert "0.10.0" in said
    assert "known'" not in said


def test_known_features_and_none_at_all_open(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "KNOWN", frozenset({"known"}))
    for value in (None, "{}", '{"known": "99"}'):
        edit_properties(made, {"tidemark.features": value})
        assert warehouse.open_snapshot(made).options.eps == 0.1


def test_an_unknown_feature_is_told_before_what_it_may_have_changed(made: Path) -> None:
    """The options may look other under it: they are not judged."""
    edit_properties(made, {"tidemark.features": '{"f": "2"}', "tidemark.eps": '"a tenth"'})
    assert "'f'" in refused_by(made, "opening")


@pytest.mark.parametrize(
    "value",
    [
        *("", "{", "null", '["f"]', '"f"', "1", '{"f": 1}', '{"f": ""}', '{"f": "new"}', '{"": "1"}'),
        *('{"f": null}', '{"f": "1", "f": "2"}', '{"f": NaN}', '{"f": "1"}{"g": "2"}', "[" * 100_000),
    ],
)
def test_a_malformed_list_of_features_is_told_with_the_property(made: Path, value: str) -> None:
    edit_properties(made, {"tidemark.features": value})
    said = refused_by(made, "opening")
    assert "tidemark.features" in said
    assert "created with" in said


def test_a_warehouse_needs_no_feature(made: Path) -> None:
    assert "tidemark.features" not in warehouse.open_snapshot(made).options.properties()
    log = (made / "events/_delta_log/00000000000000000000.json").read_text().splitlines()
    (found,) = [json.loads(line)["metaData"] for line in log if "metaData" in json.loads(line)]
    assert "tidemark.features" not in found["configuration"]
    assert found["configuration"]["tidemark.format"] == "1"


def test_a_reader_that_passes_features_over_is_caught(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "describe_unknown", lambda _: None)
    edit_properties(made, {"tidemark.features": '{"wide-marks": "0.3.0"}'})
    with pytest.raises(pytest.fail.Exception):
        refused_by(made, "opening")
