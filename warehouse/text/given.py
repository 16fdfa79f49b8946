"""Text files that a caller gives without a Spark session, as paths, patterns or lists of these."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from tidemark.warehouse.execution.arrow_inputs import are_paths
from tidemark.warehouse.execution.input_files import LocalPlaces, find_inputs, format_of, local_path
from tidemark.warehouse.text.rows import TEXT_FORMATS, text_rows
from tidemark.warehouse.text.types import Wanted, guess_types


def with_text_read(
    given: Any,
    stored: Callable[[], pa.Schema],
    names: Iterable[str],
    keys: Iterable[str],
    *,
    evolve: bool = False,
) -> Any:
    """The rows of text files as `ArrowRows`; anything else as it was given.

    stored  gives a schema with the types of the warehouse's columns `names`; these are empty before the first
            batch, which chooses them (`guess_types`)
    keys    the columns that are text if the types are chosen
    evolve  whether columns that the warehouse lacks get a type in the same way
    """
    several = [given] if isinstance(given, str | os.PathLike) else given
    if not are_paths(several):
        return given
    texts = [os.fspath(one) for one in several]
    found = find_inputs(texts, LocalPlaces())
    if found.is_delta or (form := format_of(texts, found, None)) not in TEXT_FORMATS:
        return given
    paths = list(map(local_path, found.paths))
    known = stored()
    types = pa.schema([known.field(name) for name in names])
    if evolve or not len(types):
        types = guess_types(paths, form, Wanted(keys=frozenset(keys)), types)
    return text_rows(paths, form, types)
