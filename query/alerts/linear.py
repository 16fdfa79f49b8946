"""Conditions as sums over sites: each comparison becomes one of whole numbers that add up.

Of the rows of a window, `rows` at all sites together, `count` are at most x (or less than x), or have a key:

    quantile(phi) > x      count - phi rows <  0    count of rows <= x; with phi = 0, count < 1
    quantile(phi) >= x     count - phi rows <  0    count of rows <  x
    quantile(phi) < x      count - phi rows >= 0    count of rows <  x; with phi = 0, count >= 1
    quantile(phi) <= x     count - phi rows >= 0    count of rows <= x
    rank(x) > y            count > y
    cdf(x) > y             count - y rows > 0
    burn(x, o) > y         (1 - y (1 - o)) rows - count > 0
    frequency(k) > y       count > y
    count() > y            count > y

and so on for the other operators; in each case there must be `least_rows` rows, and one at least. Proof for
quantiles: the phi-quantile is the least value with at least max(1, ceil(phi rows)) rows up to it; so it is
above x if fewer than that are at most x, and count < ceil(phi rows) if and only if count < phi rows. NaN
ranks after all numbers, and is never counted.

Multiplied by the denominators, all numbers are whole: a count + b rows >= c. If a count is known only by
certain bounds, there is one sum of the least values and one of the greatest. With `by`, each group has sums
of its own.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

from tidemark.query.alerts.condition import Comparison
from tidemark.query.alerts.levels import Condition
from tidemark.query.alerts.reading import Limit, Reading, Verdict, modes_of, readings, shares
from tidemark.query.reader import Reader
from tidemark.query.scans.computed import asked_measure
from tidemark.warehouse.errors import InputError, TidemarkError, shortened

QUESTIONS = ("quantile", "rank", "cdf", "burn", "frequency", "count")


@dataclass(frozen=True, slots=True)
class Counted:
    """What a site counts: a question about a number of rows.

    point: for a quantile the x, exact. is_less: whether rows equal to x do not count.
    """

    asked: Comparison
    point: Any = None
    is_less: bool = False

    @property
    def has_groups(self) -> bool:
        """Whether there is a count for each group."""
        return bool(self.asked.given.get("by"))

    def readings(self, wh: Reader, end: datetime | None) -> Iterator[tuple[dict[str, Reading], bool]]:
        """The counts here, of groups by their names, in one mode after the other; whether it is the last."""
        asked, is_zero = self.asked, False
        if self.point is not None:
            measure = asked_measure(wh.options, asked.given.get("measure"))
            standing = measure.standing(self.point)
            stored = standing.below if self.is_less else standing.at
            is_zero = stored is None
            asked = replace(asked, given={**asked.given, "x": measure.decode(0 if is_zero else stored)})
        modes = modes_of(asked)
        for mode, counts in zip(modes, readings(wh, asked, end), strict=True):
            found = counts
            if any(one.now != "both" for one in found.values()):
                raise TidemarkError("a warehouse of this site does not answer, and may have other rows now")
            if is_zero:
                found = {
                    name: replace(one, low=0, high=0) if one.rows else one for name, one in found.items()
                }
            yield found, mode == modes[-1]


@dataclass(frozen=True, slots=True)
class Sum:
    """One number of a site, a count + b rows, and the least that it is over all sites if it holds.

    end: which end of the count; "both" where it is exact. If a is 0, it is the number of rows.
    none_is_one: whether no rows count as one of these, where the question has an answer about them.
    """

    counted: Counted
    a: int
    b: int
    least: int
    end: Literal["low", "high", "both"] = "both"
    none_is_one: bool = False

    def interval(self, reading: Reading, *, is_last: bool) -> tuple[int, int]:
        """The least and the greatest that it may be here. is_last: no mode is sharper."""
        if reading.low is None:
            return 0, 0
        low, high = reading.low, reading.high
        if self.a == 0:
            return (max(reading.rows, int(self.none_is_one)),) * 2
        if is_last and self.end != "both":
            low = high = low if self.end == "low" else high
        if is_last and low != high:
            raise TidemarkError(f"a count that must be exact is from {low} to {high}: {self.counted.asked}")
        if self.a < 0:
            low, high = high, low
        return self.a * low + self.b * reading.rows, self.a * high + self.b * reading.rows


@dataclass(frozen=True, slots=True)
class LinearPart:
    """A comparison over sites: the places of its sums among those of the condition.

    near, far: the sums by which the threshold, and the clear level, certainly or possibly holds. rows: the
        sum by which there are enough rows.
    """

    part: Comparison
    near: tuple[int, int]
    far: tuple[int, int]
    rows: int

    def reading(self, sums: Sequence[Sum], values: Sequence[int]) -> tuple[Reading, str]:
        """What the values of all sums say, and the same in words. The value of a quantile is not known."""
        rows, part = values[self.rows], self.part
        ends = []
        for place in (self.near[0], self.far[0]):
            one = sums[place]
            ends.append((values[place] - one.b * rows) // one.a)
        low, high = sorted(ends)
        if part.question == "quantile":
            relation = "at least" if sums[self.near[0]].counted.is_less else "above"
            words = f"{_between(rows - high, rows - low)} of {rows:,} rows were {relation} {part.threshold}"
            return Reading(rows=rows), words
        words = f"{_between(low, high)} of {rows:,} rows"
        if part.field not in ("share", "burn") or not rows:
            return Reading(low=low, value=(low + high) // 2, high=high, rows=rows), words
        least, most = shares(part, (low, high), rows)
        return Reading(low=least, value=(least + most) / 2, high=most, rows=rows), words

    def verdicts(self, reached: Sequence[bool], needed: Collection[int]) -> tuple[Verdict, Verdict]:
        """The verdicts of the threshold and the clear level, from whether each sum reaches its least value.

        needed: the places that are known; a limit of which nothing is known counts as clear.
        """
        reached = [one and place in needed for place, one in enumerate(reached)]
        if not reached[self.rows]:
            return Verdict.CLEAR, Verdict.CLEAR
        threshold, kept = (
            Verdict.CERTAIN if reached[near] else Verdict.POSSIBLE if reached[far] else Verdict.CLEAR
            for near, far in zip(self.near, self.far, strict=True)
        )
        return threshold, kept


@dataclass(frozen=True, slots=True)
class LinearCondition:
    """A condition over sites: its comparisons, and the sums of all of them, each once.

    there: with groups, the places of sums of which a group that has rows reaches one.
    """

    parts: tuple[LinearPart, ...]
    sums: tuple[Sum, ...]
    there: tuple[int, ...] = ()

    def needed(self, *, fires: bool) -> set[int]:
        """The places that decide about the next state.

        The clear levels count only while it fires. If all counts are exact, a state that fires is certain, so
        then they alone count.
        """
        is_exact = all(part.near == part.far for part in self.parts)
        which = (0,) if not fires else (1,) if is_exact else (0, 1)
        of_parts = (
            place for part in self.parts for i in which for place in (part.rows, part.near[i], part.far[i])
        )
        return {*self.there, *of_parts}

    @property
    def counts(self) -> list[tuple[Counted, list[int]]]:
        """What is counted, each once, with the places of the sums that have it."""
        found: list[tuple[Counted, list[int]]] = []
        for place, one in enumerate(self.sums):
            known = next((places for counted, places in found if counted == one.counted), None)
            if known is None:
                found.append((one.counted, [place]))
            else:
                known.append(place)
        return found


def linear(condition: Condition) -> LinearCondition:
    """The sums of a condition. InputError for one that is no sum over sites."""
    sums: list[Sum] = []

    def place(one: Sum) -> int:
        if one not in sums:
            sums.append(one)
        return sums.index(one)

    parts, there = [], []
    for part, limits in zip(condition.parts, condition.limits, strict=True):
        _check(part)
        threshold, level = (_sums(part, limit) for limit in limits)
        near = place(threshold[0]), place(level[0])
        far = place(threshold[-1]), place(level[-1])
        some = Sum(threshold[0].counted, a=0, b=1, least=1, none_is_one=True)
        least = max(1, part.least_rows)
        has_value = part.question == "quantile" or part.field in ("share", "burn")  # only of rows
        rows = place(replace(some, least=least, none_is_one=least == 1 and not has_value))
        parts.append(LinearPart(part, near, far, rows))
        if some.counted.has_groups:
            there.append(place(some))
    return LinearCondition(tuple(parts), tuple(sums), tuple(there))


def _check(part: Comparison) -> None:
    is_sum = part.question in ("quantile", "rank", "frequency") or part.field == "count"
    if not is_sum:
        raise InputError(
            f"{part.field or part.question} is no sum over sites, got {part.text}. With sites, a condition "
            f"asks {', '.join(QUESTIONS)}. For others open the warehouses as one: -w A -w B, without sites."
        )
    phi = part.given.get("phi", 0)
    if isinstance(phi, bool) or not isinstance(phi, int | float | Decimal) or not 0 <= phi <= 1:
        raise InputError(f"a quantile is a number from 0 to 1, got {shortened(phi)} in {part.text}.")
    last = part.given.get("last")
    if last is not None and part.window is None:
        raise InputError(f"steps of sites are not the same: last= is a span such as '1h', got {part.text}.")


def _sums(part: Comparison, limit: Limit) -> list[Sum]:
    """The sum that is reached if the comparison holds; where counts have bounds, certainly, and possibly."""
    counted, a, b, c, operator = _as_counts(part, limit)
    unit = math.lcm(a.denominator, b.denominator)
    whole_a, whole_b, bound = int(a * unit), int(b * unit), c * unit
    if operator in ("<", "<="):
        whole_a, whole_b, bound = -whole_a, -whole_b, -bound
    least = math.floor(bound) + 1 if operator in ("<", ">") else math.ceil(bound)
    given = part.given.get("mode")
    if part.field == "count" or (part.question != "frequency" and given in (None, "exact")):
        return [Sum(counted, whole_a, whole_b, least)]
    ends: tuple[Literal["low", "high"], ...] = ("low", "high") if whole_a > 0 else ("high", "low")
    return [Sum(counted, whole_a, whole_b, least, end) for end in ends]


def _as_counts(part: Comparison, limit: Limit) -> tuple[Counted, Fraction, Fraction, Fraction, str]:
    """The comparison as a count + b rows, an operator, and c."""
    zero, one, level = Fraction(0), Fraction(1), Fraction(limit.number)
    if part.question == "quantile":
        phi = Fraction(part.given["phi"])
        given = {name: value for name, value in part.given.items() if name != "phi"}
        asked = replace(part, question="rank", field=None, given=given)
        point = _moment(limit.given) if isinstance(limit.given, str | date) else level
        counted = Counted(_counting(asked), point, is_less=part.operator in (">=", "<"))
        operator = "<" if part.operator in (">", ">=") else ">="
        return (counted, one, -phi, zero, operator) if phi else (counted, one, zero, one, operator)
    counted = Counted(_counting(part))
    match part.field:
        case "share":
            return counted, one, -level, zero, part.operator
        case "burn":
            return counted, -one, 1 - level * (1 - Fraction(part.objective or 0)), zero, part.operator
    return counted, one, zero, level, part.operator


def _between(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _moment(given: Any) -> Any:
    return given.isoformat() if isinstance(given, date) else given


def _counting(part: Comparison) -> Comparison:
    """The question of a comparison alone, so that equal questions are asked once."""
    field = part.field if part.field == "count" else None
    return replace(
        part, text="", operator=">", threshold=0, field=field, objective=None, least_rows=0, lasting=0
    )
