"""Rows leave once, in whatever order writers, readers and kills come; each rule of the protocol is needed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.warehouse.removal_model import Torn, play

# A rule that is broken, and a draw near which a reader notices it.
BROKEN = {
    "runs do not say what they are net of": 0,
    "files are not looked for": 8,
    "the number is that of another version": 14,
    "merges do not wait": 16,
    "a merge forgets kept rows": 0,
    "inputs are compared by name": 348,
    "events is looked at before the runs": 4,
    "what comes has a commit of its own": 7,
    "the step is not loaded first": 0,
    "kept rows of other runs are subtracted, too": 2,
    "kept rows are subtracted from runs that are net of them": 0,
    "the records are older than events": 0,
    "runs that get rows keep rows": 0,
    "rows leave before others come": 51,
    "a run with rows is joined": 486,
    "an emptied run is counted": 1,
    "of an emptied run kept rows are subtracted": 1,
    "a merge takes emptied runs": 0,
    "a merge has the files of an emptied run": 11066,
    "merges do not wait for the decision": 4199,
    "runs that were built after the decision are put in place": 7051,
}


@given(st.randoms(use_true_random=False))
def test_each_reader_sees_whole_removals_and_each_row_once(choose: random.Random) -> None:
    play(choose)


@pytest.mark.parametrize("broken", BROKEN)
def test_without_a_rule_a_reader_sees_rows_twice_or_not_at_all(broken: str) -> None:
    with pytest.raises((AssertionError, Torn)):
        _play_many(broken)


def _play_many(broken: str) -> None:
    for seed in range(BROKEN[broken], BROKEN[broken] + 1000):
        play(random.Random(seed), broken, moves=400)
