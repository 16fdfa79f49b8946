"""The functions of the tests of jobs/site_reduce.py: rows and the longest delay of each origin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def origins(batch: Any) -> Iterator[tuple[str, list[int]]]:
    """A pair for each row: [rows, delay]."""
    yield from (
        (origin, [1, delay])
        for origin, delay in zip(batch["origin"].to_pylist(), batch["delay"].to_pylist(), strict=True)
    )


def both(a: list[int], b: list[int]) -> list[int]:
    """The rows of both, and the longer delay."""
    return [a[0] + b[0], max(a[1], b[1])]


def over_sites(key: str, values: list[list[int]]) -> dict[str, int]:
    """The rows and the longest delay over all sites, and how many sites have the origin."""
    assert key.isupper()
    return {"rows": sum(v[0] for v in values), "longest": max(v[1] for v in values), "sites": len(values)}


def fails(*_: Any) -> Any:
    """A mistake of a user."""
    raise ZeroDivisionError("mine")


def no_json(batch: Any) -> list[tuple[Any, Any]]:
    """A key that JSON has not."""
    return [({1, 2}, batch.num_rows)]


A_NUMBER = 7
