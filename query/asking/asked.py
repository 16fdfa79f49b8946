"""The answers of one call, in the form that the caller gets them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from tidemark.query.answers.all_answers import Scope
from tidemark.query.answers.answer_columns import AnswerColumns
from tidemark.query.answers.measure_answers import Answers
from tidemark.query.answers.plan import Plan
from tidemark.query.groups.group_order import GroupOrder

S = TypeVar("S", bound=Scope)

# The facts of an answer that differ between groups and between windows.
_OWN_FACTS = ("N", "n", "m", "nans", "nulls", "group", "certain", "window")


@dataclass(frozen=True, slots=True)
class Asked(Generic[S]):
    """The answers of one call; the answers of each group and window stand together.

    parts: how many groups and windows there are.
    by: the columns of the groups; empty for one answer about all rows.
    windows: whether there are answers for each window.
    order: the order of the groups, if one was asked; the answers of a window then stand together.
    plan: how they were found; needed where there may be no answers, which would tell it.
    """

    items: Sequence[S]
    parts: int
    by: tuple[str, ...] = ()
    windows: bool = False
    order: GroupOrder | None = None
    plan: Plan | None = None

    def answers(self, kind: type[Any], *, one: bool) -> S | Answers[S]:
        """The answers as the caller gets them: `one` answer alone, unless there are groups or windows."""
        answers = self.items
        if not self.by and not self.windows:
            return answers[0] if one else answers_of(answers, kind)
        found = replace(answers_of(answers, kind), by=self.by, windows=self.windows)
        if not answers:
            return replace(found, plan=self.plan)
        first, last = answers[0].window, answers[-1].window
        window = (first[0], last[1]) if self.windows and first and last else first
        text = " ".join([answers[0].column, *([f"by {', '.join(self.by)}"] if self.by else [])])
        what = "windows" if not self.by else "groups and windows" if self.windows else "groups"
        facts = {name: fact for name, fact in found.facts.items() if name not in _OWN_FACTS}
        covered = replace(answers[0], window=window).shown_window
        ordered = f" {self.order.text}" if self.order and self.order.text else ""
        caption = f"{text}, {covered}: {self.parts:,} {what}{ordered}, {answers[0].method_text}"
        return replace(found, caption=caption, facts=facts)


def answers_of(answers: Sequence[Any], kind: type[Any], scope: Scope | None = None) -> Answers[Any]:
    """The answers of one call as a sequence; its scope is that of the first answer, if none is given."""
    shown = scope or next(iter(answers), None)
    if shown is None:
        return Answers((), kind, "nothing was asked")
    items = answers if isinstance(answers, AnswerColumns) else tuple(answers)
    return Answers(items, kind, shown.scope_text, shown.scope_facts, plan=shown.plan)
