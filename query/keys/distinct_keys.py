"""Numbers of distinct keys: of a window, of two windows compared, and of new keys of a window.

    least <= number of keys <= most     always
    lo    <= number of keys <= hi       with the answer's confidence

    approximate   from samples of keys (key_samples.py): the keys of the largest exactly known part of the
                  window, and an estimate of the number of the others
    exact         if samples leave a doubt, all keys of the window are counted; only history's part of a
                  partial tick stays uncertain

While runs still have removed rows, samples count the keys of these rows, too. So the keys of removed rows are
looked up, and keys without any other row are subtracted. Questions about two windows, and windows that cut a
tick, count all keys then.

Error. With d keys outside of the largest part, of which the share p is sampled, the standard error is about
sqrt(d / p) keys. Without such a part, 16,384 sampled keys give 0.8 %. If the number of keys of a second part
is known, too, only the share f of its keys that the first part lacks is estimated: the variance is 1 - f
times that of counting these keys alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tidemark.query.answers.distinct_answers import DistinctAnswer, KeyNumber, OverlapAnswer
from tidemark.query.answers.key_answers import KeyFields
from tidemark.query.keys import key_scan
from tidemark.query.keys.key_question import KeyQuestion, WantedKeys, scope_fields
from tidemark.query.keys.key_samples import WindowKeys
from tidemark.query.keys.key_windows import KeyWindow, key_window, window_before
from tidemark.query.keys.run_keys import Base, union
from tidemark.query.keys.scanned_parts import ScannedParts
from tidemark.query.reading.asked_window import AskedWindow
from tidemark.sketches.sampling import ALL, trials_interval
from tidemark.sketches.sampling.key_sample import Hashes, below
from tidemark.warehouse.columns.ticks import TickGrid
from tidemark.warehouse.snapshots.views import KeysView


@dataclass(frozen=True, slots=True)
class Distinct(WantedKeys[DistinctAnswer]):
    """The number of keys that have rows in the window."""

    counts_alone: ClassVar[bool] = True
    bounds_silent: ClassVar[bool] = True

    def answers(self, questions: Sequence[KeyQuestion]) -> DistinctAnswer:
        """The number."""
        (question,) = questions
        return _distinct(question)

    def of_scan(self, parts: ScannedParts) -> Sequence[DistinctAnswer]:
        """See `WantedKeys.of_scan`."""
        return parts.answers(DistinctAnswer, dict.fromkeys(DistinctAnswer.COLUMNS, parts.keys))

    def counts_of_scan(self, parts: ScannedParts) -> NDArray[Any] | None:
        """See `WantedKeys.counts_of_scan`."""
        return parts.keys


@dataclass(frozen=True, slots=True)
class Overlap(WantedKeys[OverlapAnswer]):
    """The numbers of keys with rows in two windows, in the first alone, and in the second alone."""

    other: AskedWindow

    def windows(self, window: KeyWindow, view: KeysView, grid: TickGrid | None) -> list[KeyWindow]:
        """The two windows."""
        return [window, key_window(view, self.other, grid)]

    def answers(self, questions: Sequence[KeyQuestion]) -> OverlapAnswer:
        """The three numbers, and the number of keys of each window."""
        return _overlap(*questions)


@dataclass(frozen=True, slots=True)
class NewKeys(WantedKeys[DistinctAnswer]):
    """The number of keys with rows in the window and none before it. InputError if it has no start."""

    def windows(self, window: KeyWindow, view: KeysView, grid: TickGrid | None) -> list[KeyWindow]:  # noqa: ARG002
        """The window, and all that is before it."""
        return [window, window_before(window, grid)]

    def answers(self, questions: Sequence[KeyQuestion]) -> DistinctAnswer:
        """The number."""
        question, before = questions
        if _is_counted(question, before) and question.scanned is not None:
            scan, part = question.scanned
            return _answer(question, _known(scan.new_keys.get(part, 0)))
        return _answer(question, _overlap(question, before).only_a)


def _distinct(question: KeyQuestion) -> DistinctAnswer:
    if question.mode == "exact" and question.scanned is not None:
        scan, part = question.scanned
        return _answer(question, _known(scan.keys.get(part, 0)))
    if question.has_kept and (question.window.partial_ticks or question.mode == "exact"):
        return _answer(question, _counted_all(question))
    number = estimate_distinct(question.sampled_keys(), question.promise.delta)
    if question.has_kept:
        return _answer(question, _without_gone(number, question))
    if question.mode == "exact" and number.least < number.most:
        number = _counted_all(question)
    return _answer(question, number)


def _counted_all(question: KeyQuestion) -> KeyNumber:
    """The counted number of keys; keys of warehouses that do not answer are bounded."""
    number = _counted(key_scan.distinct(question.rows(summed=True)))
    if question.silent is None:
        return number
    silent = question.silent_keys()
    least, most = max(number.least, silent.least), number.most + silent.most
    return KeyNumber(max(number.count, least), least, most, least, most)


def _without_gone(number: KeyNumber, question: KeyQuestion) -> KeyNumber:
    """The number of keys, of which some have no row any more.

    number: the number of keys of all rows of the runs, removed ones included, and of live rows.

    A key of removed rows is looked up: it is gone if no run and no live batch has another row of it.
    """
    live = question.bounded(question.history(question.window.overlapping).gone)
    least, most = int((live.most == 0).sum()), int((live.least == 0).sum())
    ends = (number.lo - most, number.hi - least, number.least - most, number.most - least)
    lo, hi, low, high = (max(0, end) for end in ends)
    count = number.count - int((live.estimate == 0).sum())
    return KeyNumber(min(max(count, lo), hi), lo, hi, low, high)


def _is_counted(*questions: KeyQuestion) -> bool:
    """Whether the keys of all windows are counted, because one of the questions needs it."""
    return any(question.mode == "exact" or question.has_kept for question in questions)


def _overlap(a: KeyQuestion, b: KeyQuestion) -> OverlapAnswer:
    if _is_counted(a, b):
        both, only_a, only_b = map(_counted, key_scan.overlap(a.rows(), b.rows()))
    else:
        both, only_a, only_b = estimate_overlap(a.sampled_keys(), b.sampled_keys(), a.promise.delta)
    return OverlapAnswer(_distinct(a), _distinct(b), both, only_a, only_b)


def _answer(question: KeyQuestion, number: KeyNumber) -> DistinctAnswer:
    is_exact = question.mode == "exact" or number.least == number.most
    confidence = 1.0 if is_exact else 1 - question.promise.delta
    scope: KeyFields = {**scope_fields(question), "eps": 0.0, "confidence": confidence}
    return DistinctAnswer(**scope, **{name: getattr(number, name) for name in DistinctAnswer.COLUMNS})


def _known(keys: int) -> KeyNumber:
    return KeyNumber(keys, keys, keys, keys, keys)


def _counted(bounds: key_scan.BoundedEstimate) -> KeyNumber:
    """The number of keys that a scan counted."""
    low, estimate, high = bounds
    return KeyNumber(min(max(round(estimate), low), high), low, high, low, high)


def _sampled(keys: WindowKeys, threshold: int) -> tuple[Hashes, Any]:
    """The keys below a threshold, and the chance that each has rows in the window: 1 for the certain ones."""
    certain, possible = below(keys.certain, threshold), below(keys.possible, threshold)
    chances = np.concatenate([np.ones(len(certain)), keys.chances[: len(possible)]])
    return np.concatenate([certain, possible]), chances


def _estimated(
    chances: Any, threshold: int, delta: float, least: int, most: int, *, known: int = 0
) -> KeyNumber:
    """The number of keys of which some are sampled: `known` keys, and the keys that the samples stand for.

    chances: the chance of each sampled key to be one of them.
    """
    if threshold < 1:  # nothing is sampled: one key alone has more entries than a sample may have
        return KeyNumber(least, least, most, least, most)
    probability = threshold / ALL
    low, _ = trials_interval(int((chances == 1).sum()), probability, 1 - delta)
    _, high = trials_interval(int((chances > 0).sum()), probability, 1 - delta)
    lo, hi = (min(max(known + round(end), least), most) for end in (low, high))
    count = known + round(float(chances.sum()) / probability)
    return KeyNumber(min(max(count, lo), hi), lo, hi, least, most)


def estimate_distinct(keys: WindowKeys, delta: float) -> KeyNumber:
    """The number of keys of a window; the probable bounds hold with probability 1 - delta."""
    if keys.least == keys.most:
        return _known(keys.least)
    hashes, chances = _sampled(keys, keys.threshold)
    outside = ~np.isin(hashes, keys.base.hashes, assume_unique=True)
    known, second = keys.base.keys, keys.second
    if second is None or keys.threshold < 1:
        return _estimated(chances[outside], keys.threshold, delta, keys.least, keys.most, known=known)
    in_second = np.isin(hashes, second.hashes, assume_unique=True)
    share = delta / 2 if keys.has_others else delta
    added, low, high = _added(second, int(in_second.sum()), int((in_second & outside).sum()), keys, share)
    count, lo, hi = known + added, known + low, known + high
    if keys.has_others:
        rest = _estimated(chances[outside & ~in_second], keys.threshold, share, 0, keys.most)
        count, lo, hi = count + rest.count, lo + rest.lo, hi + rest.hi
    lo, hi = (min(max(end, keys.least), keys.most) for end in (lo, hi))
    return KeyNumber(min(max(count, lo), hi), lo, hi, keys.least, keys.most)


def _added(second: Base, sampled: int, new: int, keys: WindowKeys, delta: float) -> tuple[int, int, int]:
    """How many keys the second part adds to the base, and bounds with probability 1 - delta.

    sampled: how many of its keys are sampled. new: how many of these the base does not have.

    The bounds come from the keys that the part adds and those that it shares, with half of delta each.
    """
    low, high = trials_interval(new, keys.probability, 1 - delta / 2)
    shared_low, shared_high = trials_interval(sampled - new, keys.probability, 1 - delta / 2)
    lo = max(0, round(low), second.keys - round(shared_high))
    hi = max(lo, min(round(high), second.keys - round(shared_low)))
    return min(max(round(second.keys * new / max(1, sampled)), lo), hi), lo, hi


def estimate_overlap(a: WindowKeys, b: WindowKeys, delta: float) -> list[KeyNumber]:
    """The numbers of keys of both windows, of the first alone and of the second alone.

    The probable bounds of each hold with probability 1 - delta.
    """
    threshold = min(a.threshold, b.threshold)
    hashes_a, hashes_b = _sampled(a, threshold), _sampled(b, threshold)
    joined = union([hashes_a[0], hashes_b[0]])
    in_a, in_b = (_spread(joined, *sampled) for sampled in (hashes_a, hashes_b))
    both_least = len(np.intersect1d(a.certain, b.certain, assume_unique=True))
    both_most = min(a.most, b.most)
    if threshold == ALL:
        both_most = int(((in_a > 0) & (in_b > 0)).sum())
    both = _estimated(in_a * in_b, threshold, delta, both_least, both_most)
    return [
        both,
        _estimated(in_a * (1 - in_b), threshold, delta, *_only_bounds(a, in_a, in_b, both)),
        _estimated(in_b * (1 - in_a), threshold, delta, *_only_bounds(b, in_b, in_a, both)),
    ]


def _only_bounds(a: WindowKeys, in_a: Any, in_b: Any, both: KeyNumber) -> tuple[int, int]:
    """Certain bounds of the number of keys that only `a` has; the chances are those of sampled keys."""
    seen = int(((in_a == 1) & (in_b == 0)).sum())
    return max(seen, a.least - both.most), a.most - both.least


def _spread(joined: Hashes, hashes: Hashes, chances: Any) -> Any:
    """The chances of the joined hashes, 0 for those that are not among `hashes`."""
    result = np.zeros(len(joined))
    result[joined.searchsorted(hashes)] = chances
    return result
