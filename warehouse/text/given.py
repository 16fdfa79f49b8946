"""Text files that a caller gives without a Spark session, as paths, patterns or lists of these."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemark.warehouse.execution.arrow_inputs import ArrowRows, are_paths
from tidemark.warehouse.execution.input_files import LocalPlaces, find_inputs, format_of, local_path
from tidemark.warehouse.text.guessed_types import Wanted, guess_types
from tidemark.warehouse.text.rows import TEXT_FORMATS, text_rows


@dataclass(frozen=True, slots=True)
class TextFiles:
    """Text files of one form."""

    paths: list[Path]
    form: str

    def rows(
        self, known: pa.Schema, names: Iterable[str], keys: Iterable[str], *, evolve: bool = False
    ) -> ArrowRows:
        """Their rows.

        known   a schema with the types of the warehouse's columns `names`; these are empty before the first
                batch, which chooses them (`guess_types`)
        keys    the columns that are text if the types are chosen
        evolve  whether columns that the warehouse lacks get a type in the same way
        """
        types = pa.schema([known.field(name) for name in names])
        if evolve or not len(types):
            types = guess_types(self.paths, self.form, Wanted(keys=frozenset(keys)), types)
        return text_rows(self.paths, self.form, types)


def text_files(given: Any) -> TextFiles | None:
    """The text files that a caller gives as rows; None for anything else."""
    several = [given] if isinstance(given, str | os.PathLike) else given
    if not are_paths(several):
        return None
    texts = [os.fspath(one) for one in several]
    found = find_inputs(texts, LocalPlaces())
    if found.is_delta or (form := format_of(texts, found, None)) not in TEXT_FORMATS:
        return None
    return TextFiles(list(map(local_path, found.paths)), form)
