"""JSON records that are read at once mean what the decoder makes of each: values, and reasons of refusals."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.warehouse.hostile_text import BOOLEANS, GOOD, NESTED, NUMBERS, SCHEMA, TEXTS, TIMES
from tidemark.warehouse.text import json_lines, json_records, values
from tidemark.warehouse.text.json_records import JsonRecords
from tidemark.warehouse.text.records import TextColumns

PARSER = JsonRecords(TextColumns(SCHEMA), others=False)
VALUES = [*NESTED, *(text for text in NUMBERS if text), "-0", "null", "true", "1E5", "1e+5", '"null"', '"-0"']
VALUES += [json.dumps(text) for text in (*NUMBERS, *TIMES, *TEXTS, *BOOLEANS)]
VALUES += [json.dumps(text, ensure_ascii=False) for text in TEXTS]


def lines(r: random.Random, count: int) -> list[bytes]:
    """Objects of one form, in which some values and some lines are of any other."""
    names = r.sample(SCHEMA.names, r.randint(1, len(SCHEMA)))
    space = r.choice(["", " ", "\t"])
    found = []
    for _ in range(count):
        fields = {name: GOOD[name] if name in "xfndb" else json.dumps(GOOD[name]) for name in names}
        if r.random() < 0.25:
            fields[r.choice(names)] = r.choice(VALUES)
        pairs = [f'"{name}"{space}:{space}{value}' for name, value in fields.items()]
        if r.random() < 0.05:
            pairs.append(r.choice(pairs))
        if r.random() < 0.05:
            r.shuffle(pairs)
        ending = r.choice([*[""] * 16, chr(13), " ", " x", "}"])
        line = f"{{{space}{f',{space}'.join(pairs)}}}{ending}"
        found.append(line.encode())
    return found


def check(seeds: range) -> int:
    """Compares records of these seeds; returns how many were read at once."""
    quick = 0
    for seed in seeds:
        records = pa.array(lines(random.Random(seed), 40), pa.binary())
        found, expected = PARSER.parse(records), PARSER._decoded(records)
        assert found.refused == expected.refused, seed
        kept = [row for row in range(len(records)) if row not in expected.refused]
        assert list(map(repr, found.rows.take(kept).to_pylist())) == list(
            map(repr, expected.rows.take(kept).to_pylist())
        ), seed
        names = list(json_records.decoded_objects(records[:1])[0] or ())
        if names and set(names) <= set(SCHEMA.names):
            read = json_lines.quick_rows(records, SCHEMA, names)
            quick += 0 if read is None else int(read[1].sum())
    return quick


@pytest.mark.slow
def test_records_that_are_read_at_once_mean_the_same() -> None:
    assert check(range(150)) > 1500


whole_pattern: Callable[..., Any] = json_lines._pattern
whole_parse = values.parse_texts


BROKEN: dict[str, tuple[str, Any]] = {
    "escapes are kept": ("_TEXT", r'"(?:[^"\\]|\\.)*"'),
    "-0 is a whole number": ("_WHOLE", r"-?(?:0|[1-9][0-9]*)"),
    "the end is not looked at": (
        "_pattern",
        lambda *given: whole_pattern(*given).removesuffix(r"[ \t\r\n]*$"),
    ),
    "refused values are kept": ("parse_texts", lambda texts, kind: (whole_parse(texts, kind)[0], [])),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_form_that_takes_too_much_is_caught(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(json_lines, *BROKEN[name])
    if name == "-0 is a whole number":
        monkeypatch.setattr(json_lines, "_NUMBER", r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
    with pytest.raises((AssertionError, pa.ArrowInvalid)):
        check(range(150))
