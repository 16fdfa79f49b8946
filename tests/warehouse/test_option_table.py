"""A row of the table of options is the whole option: keyword, field, property, check, comparison, flag."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from tidemark import warehouse
from tidemark.jobs.cli.main import parser
from tidemark.jobs.cli.options import parsed
from tidemark.option_table import OPTIONS, Option
from tidemark.warehouse import InputError, NotAWarehouse, OptionsMismatch
from tidemark.warehouse.settings.option_kinds import KINDS
from tidemark.warehouse.settings.options import Options

GIVEN: dict[str, Any] = {
    "measures": ["x", "y"],
    "keys": ["k", ["a", "b"]],
    "index": ["x", {"on": "k", "include": ["x", "a"]}],
    "groups": ["a"],
    "companions": {"users": ("hll", "u")},
    "time": "at",
    "tick": "1 h",
    "eps": 0.02,
    "kappa": 3,
    "grace": "2 days",
    "retention": "400 days",
    "key_eps": 0.03,
    "key_delta": 0.04,
    "private": ["k"],
}
OTHER: dict[str, Any] = {
    **dict.fromkeys(("measures", "groups", "index", "time"), "z"),
    **dict.fromkeys(("eps", "key_eps", "key_delta"), 0.4),
    "keys": [["z", "y"]],
    "companions": {"users": ("hll", "z")},
    "tick": "2 h",
    "kappa": 4,
    "grace": "3 days",
    "retention": "forever",
    "private": ["z"],
}


def problems(table: Mapping[str, Option]) -> list[str]:
    """What a row names that is not there, and what is there without a row."""
    keywords = {*inspect.signature(warehouse.create).parameters}
    keywords -= {"spark", "uri", "schema", "storage_options", "key"}
    keywords -= {"secret_file", "secret_command", "reveal"}  # they say which fingerprint is stored
    found = [f"create has no {name}" for name in table.keys() - keywords]
    found += [f"no row of {name}" for name in keywords - table.keys()]
    known = {one.name for one in fields(Options)}
    found += [f"no field {row.field}" for row in table.values() if row.field not in known]
    found += [f"no kind {row.kind}" for row in table.values() if row.kind not in KINDS]
    found += [f"{row.name} has no help" for row in table.values() if row.flag and not row.help]
    return found


def test_every_row_is_an_option_and_every_option_a_row() -> None:
    assert problems(OPTIONS) == []
    assert GIVEN.keys() == OTHER.keys() == OPTIONS.keys()


def test_a_row_that_leads_nowhere_is_caught() -> None:
    kappa = OPTIONS["kappa"]
    rows = [replace(kappa, name="kapa"), replace(kappa, field="kapa"), replace(kappa, kind="kapa")]
    for row in [*rows, replace(kappa, help="")]:
        assert len(problems({**OPTIONS, row.name: row})) == 1
    assert problems({name: row for name, row in OPTIONS.items() if name != "kappa"}) == ["no row of kappa"]


def test_what_is_given_is_stored_read_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.warehouse.companions.declared.Companions.known_kinds", lambda *_: None)
    (tmp_path / "secret").write_text(warehouse.new_secret())
    monkeypatch.setenv("TIDEMARK_SECRET_FILE", str(tmp_path / "secret"))
    made = warehouse.create(None, tmp_path / "w", **GIVEN)
    properties = made.properties()
    assert {f"tidemark.{row.property}" for row in OPTIONS.values()} <= properties.keys()
    assert Options.from_properties("w", properties, {}) == made
    assert warehouse.create(None, tmp_path / "w", **GIVEN) == made
    for name, other in OTHER.items():
        with pytest.raises(OptionsMismatch, match=f"^{name} was given as"):
            warehouse.create(None, tmp_path / "w", **{name: other})


@pytest.mark.parametrize("is_later", [True, False])
def test_a_warehouse_without_the_property_of_a_later_option_has_its_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_later: bool
) -> None:
    """Without one of an option that all warehouses have, it is damaged."""
    properties = warehouse.create(None, tmp_path / "w", ["x"], kappa=3).properties()
    del properties["tidemark.kappa"]
    monkeypatch.setitem(OPTIONS, "kappa", replace(OPTIONS["kappa"], is_later=is_later))
    if is_later:
        assert Options.from_properties("w", properties, {}).kappa == 10
    else:
        with pytest.raises(NotAWarehouse, match=r"tidemark\.kappa .* it is missing"):
            Options.from_properties("w", properties, {})


def test_the_default_is_told_and_valid() -> None:
    rows = [row for row in OPTIONS.values() if row.default is not None]
    assert [row.name for row in rows] == [
        *("tick", "eps", "kappa", "grace", "retention", "key_eps", "key_delta")
    ]
    for row in rows:
        kind = KINDS[row.kind]
        kind.check(row, kind.parse(row.default))
        assert f"default {row.default}" in (warehouse.create.__doc__ or "")


def test_what_is_no_option_is_told() -> None:
    wrong: dict[str, Any] = {"kapa": 3}
    with pytest.raises(TypeError, match=r"create\(\) got an unexpected keyword argument 'kapa'"):
        warehouse.create(None, "w", "x", **wrong)
    with pytest.raises(InputError, match=r"^kappa must be .* at least 2, got 1\. 10 is the default\.$"):
        warehouse.create(None, "w", "x", kappa=1)


def test_the_command_has_every_flag_and_gives_what_create_takes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["create", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    words = ["create"]
    for row in OPTIONS.values():
        if row.flag:
            text = row.help if row.default is None else f"{row.help} (default {row.default})"
            assert row.flag in said
            assert text in said
            words += [row.flag, str(row.default or "x")]
    given = parsed.creation_options(parser().parse_args(words))
    assert given.keys() == {row.name for row in OPTIONS.values() if row.flag}
    assert (given["measures"], given["keys"], given["kappa"]) == (["x"], [["x"]], 10)
