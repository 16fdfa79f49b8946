"""The prefixes of keys that have a large share of the rows: hierarchical heavy hitters.

    text     a prefix ends with each separator, and the key itself is the last one:  /a/  /a/b/  /a/b/c.html
    times    year, month, day and for times of day hour, minute, second, in UTC:     2001  2001-03  2001-03-19

No prefix with at least phi of the rows is missed, and lo and hi are certain: they differ where the window
covers a tick only in part. Live rows are counted in `events`.

If the window covers its runs as a whole, and these have no removed rows, marks tell which prefixes may have
the share, and few blocks are read (prefix_ranges.py). Else DuckDB counts the prefixes in one scan of the rows
of the keys (key_scan.py).

Source of the notion: Cormode, Korn, Muthukrishnan and Srivastava, "Finding hierarchical heavy hitters in data
streams", VLDB 2003; `rest` is the count that they compare with the threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidemark.query.answers.key_answers import KeyScope, PrefixAnswer
from tidemark.query.keys.candidates import row_bounds
from tidemark.query.keys.frequencies import least_of_share
from tidemark.query.keys.key_question import KeyQuestion, WantedKeys, scope_fields
from tidemark.query.keys.key_scan import Prefix, prefixes
from tidemark.query.keys.prefix_ranges import prefixes_by_ranges
from tidemark.warehouse.columns.keys import Key
from tidemark.warehouse.columns.ticks import DAY_US
from tidemark.warehouse.errors import InputError, shortened
from tidemark.warehouse.settings.allowed_columns import is_unicode

_DATES = ("%Y", "%Y-%m", "%Y-%m-%d")
_TIMES = (*_DATES, "%Y-%m-%dT%H", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S")


@dataclass(frozen=True, slots=True)
class Hierarchy(WantedKeys[tuple[list[PrefixAnswer], KeyScope]]):
    """All prefixes that may have at least phi of the window's rows with a key, in the order of their text.

    separator: text that ends a prefix of a key that is text; None for dates and times.

    Raises InputError unless 0 < phi <= 1, and for a key that has no prefixes.
    """

    phi: Any
    separator: Any

    def answers(self, questions: Sequence[KeyQuestion]) -> tuple[list[PrefixAnswer], KeyScope]:
        """The prefixes, and the scope of the question, as there may be none."""
        (question,) = questions
        cuts = self._cuts(question.key)
        least, certain_least = (
            least_of_share(self.phi, rows, "phi", "0.01 for 1 % of the rows") for rows in row_bounds(question)
        )
        found, scanned = _found(question, cuts, least)
        scope = scope_fields(question, exact=True)
        answers = [
            PrefixAnswer(
                **scope,
                rows_scanned=scanned,
                prefix=one.text,
                level=one.level,
                count=min(max(round(one.estimate), one.least), one.most),
                lo=one.least,
                hi=one.most,
                in_history=one.whole,
                certain=one.least >= certain_least,
                rest=rest,
            )
            for one, rest in zip(found, _rests(found), strict=True)
        ]
        return answers, KeyScope(**scope, rows_scanned=scanned)

    def _cuts(self, key: Key) -> bytes | tuple[str, ...]:
        """The separator of text, or the formats of the levels of times."""
        kind = key.column_type if len(key.parts) == 1 else None
        if kind is not None and kind.unit_us is not None:
            if self.separator is not None:
                raise InputError(f"separator is for keys that are text; {key.name} is a time. Leave it out.")
            return _DATES if kind.unit_us == DAY_US else _TIMES
        if kind is not None and kind.is_token:
            raise InputError(f"{key.name} is a private column: its tokens have no prefixes.")
        if kind is None or not kind.is_text:
            raise InputError(
                f"prefixes need a key of one column of text, dates or times; {key.name} is none. Give "
                "another key=, or load the column as text."
            )
        if not isinstance(self.separator, str) or not self.separator or not is_unicode(self.separator):
            raise InputError(
                "separator must be text that ends a prefix, such as '.' or '/', got "
                f"{shortened(self.separator)}."
            )
        return self.separator.encode()


def _found(question: KeyQuestion, cuts: bytes | Sequence[str], least: int) -> tuple[list[Prefix], int]:
    """The prefixes that may have `least` rows, and how many rows of keys were read."""
    if not question.window.partial_ticks and not question.has_kept:
        history = question.history(question.window.overlapping)
        found = prefixes_by_ranges(history, question.all_live_rows(), cuts, least)
        if found is not None:
            return found
    rows = question.rows()
    return prefixes(rows, cuts, least), rows.stored_rows + question.live_totals.rows


def _rests(found: Sequence[Prefix]) -> list[int]:
    """The rows of each prefix that belong to no longer prefix in the list, by the estimates."""
    rests = [one.estimate for one in found]
    open_: list[int] = []  # the prefixes that the one in question may belong to, the shortest first
    for i, one in enumerate(found):
        while open_ and not one.belongs_to(found[open_[-1]]):
            open_.pop()
        if open_:
            rests[open_[-1]] -= one.estimate
        open_.append(i)
    return [max(0, round(rest)) for rest in rests]
