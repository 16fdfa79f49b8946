"""The cases of an experiment: many are measured in processes beside each other, few in this one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

Case = TypeVar("Case")
Outcome = TypeVar("Outcome")


def outcomes(
    measure: Callable[[Case], Outcome], cases: Sequence[Case], *, at_once: int, together: int = 1
) -> dict[Case, Outcome]:
    """What is measured of each case.

    at_once: the number of processes; with 1 none is started, which takes a second. together: how many cases
    a process is given at a time.
    """
    if at_once == 1:
        return {case: measure(case) for case in cases}
    with ProcessPoolExecutor(at_once, get_context("spawn")) as pool:
        return dict(zip(cases, pool.map(measure, cases, chunksize=together), strict=True))
