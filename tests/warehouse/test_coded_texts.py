"""Texts in dictionaries: the same rows, digest and size as without, and no entry that no row has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidemark.warehouse.columns import coded_texts
from tidemark.warehouse.columns.arrow_types import with_plain_types
from tidemark.warehouse.columns.coded_texts import plain_bytes, with_used_entries
from tidemark.warehouse.integrity import digests
from tidemark.warehouse.integrity.digests import column_digest, text_digest

CASES: dict[str, list[tuple[list[int | None], list[str | None]]]] = {
    "one length": [([0, 2, 2, 0], ["ab", "cd", "ef"]), ([1, 0, 1], ["gh", "cd"])],
    "several lengths": [([0, 2, 1], ["a", "", "äöü"]), ([1, 1], ["a", "b"])],
    "no text": [([0, 0, 0], [""])],
    "NULL": [([0, None, 1, None], ["ab", "cd", "ef"]), ([None], ["ef", "gh"])],
    "a NULL entry": [([0, 1, 2], ["ab", None, "cd"])],
    "only NULL": [([None, None], ["ab"]), ([None], [])],
    "no rows": [([], ["ab"])],
    "no chunk": [],
}


def column(case: str, kind: pa.DataType) -> pa.ChunkedArray:
    """A column with an array for each pair of indices and entries, each cut out of a longer one."""
    chunks = []
    for codes, entries in CASES[case]:
        longer = pa.DictionaryArray.from_arrays(
            pa.array([None, *codes, None], pa.int32()), pa.array([*entries, "x"], kind)
        )
        chunks.append(longer.slice(1, len(codes)))
    return pa.chunked_array(chunks, pa.dictionary(pa.int32(), kind))


def check(kind: pa.DataType = pa.string()) -> None:  # noqa: B008  a type is a constant
    for case in CASES:
        rows = pa.table(
            {"text": column(case, kind), "n": pa.array(range(len(column(case, kind))), pa.int32())}
        )
        plain = with_plain_types(rows)
        assert text_digest(rows["text"]) == column_digest(plain["text"]), case
        bits = sum(chunk.nbytes for chunk in plain["text"].is_null().chunks)
        ends = 4 * plain["text"].num_chunks  # an array of n texts has n + 1 offsets
        assert 0 <= plain.nbytes - plain_bytes(rows) <= 2 * (bits + ends), case
        found = with_used_entries(rows, ["text"])
        assert with_plain_types(found).equals(plain), case
        if case != "a NULL entry":
            used = {*plain["text"].drop_null().to_pylist()}
            for chunk in found["text"].chunks:
                assert sorted(chunk.dictionary.to_pylist()) == sorted(used), case


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()], ids=str)
def test_dictionaries_stand_for_their_texts(kind: pa.DataType) -> None:
    check(kind)


def _other_entry(usual: Callable[..., Any]) -> Callable[..., Any]:
    return lambda chunk, used: usual(chunk, np.roll(used, 1))


MISTAKES: dict[str, tuple[Any, str, Callable[[Callable[..., Any]], Callable[..., Any]]]] = {
    "all entries stay": (coded_texts, "_renumbered", lambda _: lambda chunk, __: chunk),
    "other entries stay": (coded_texts, "_renumbered", _other_entry),
    "each row has its own entries": (
        coded_texts,
        "with_used_entries",
        lambda usual: (
            lambda rows, names: pa.concat_tables(
                [usual(rows.slice(0, 1), names), usual(rows.slice(1), names)]
            )
        ),
    ),
    "the size is that of the indices": (coded_texts, "_text_bytes", lambda _: lambda chunk: chunk.nbytes),
    "lengths are left out": (
        digests,
        "_coded_words",
        lambda usual: lambda chunk: iter([next(iter(usual(chunk)))]),
    ),
    "the entries for the rows": (
        digests,
        "_coded_words",
        lambda _: lambda chunk: digests._digest_words(chunk.dictionary),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_with_dictionaries_is_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, broken = MISTAKES[mistake]
    monkeypatch.setattr(module, name, broken(getattr(module, name)))
    monkeypatch.setitem(globals(), "with_used_entries", coded_texts.with_used_entries)
    with pytest.raises(AssertionError):
        check()


def check_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six bytes stand for the 2 GiB that an array of texts can have."""
    monkeypatch.setattr(digests, "_MOST_BYTES", 6)
    usual = digests._texts_of

    def texts_of(chunk: pa.DictionaryArray) -> pa.Array:
        found = usual(chunk)
        assert sum(len(text.encode()) for text in found.to_pylist() if text is not None) <= 6
        return found

    monkeypatch.setattr(digests, "_texts_of", texts_of)
    check()


def test_texts_are_taken_in_parts_that_an_array_can_have(monkeypatch: pytest.MonkeyPatch) -> None:
    check_parts(monkeypatch)
    monkeypatch.setattr(digests, "_parts", lambda chunk: [chunk])
    with pytest.raises(AssertionError):
        check_parts(monkeypatch)


@pytest.mark.parametrize("index", [-1, 2, 2**31 - 1])
def test_an_index_of_damaged_bytes_is_an_error(index: int) -> None:
    """Arrow does not compare the indices that it reads with the entries."""
    damaged = pa.Array.from_buffers(pa.int32(), 2, [None, pa.py_buffer(np.array([0, index], np.int32))])
    entries = pa.array(["ab", "cd"])
    found = pa.DictionaryArray.from_arrays(damaged, entries, safe=False)
    rows = pa.table({"text": found})
    for use in (
        lambda: text_digest(rows["text"]),
        lambda: plain_bytes(rows),
        lambda: with_used_entries(rows, ["text"]),
    ):
        with pytest.raises(IndexError):
            use()
