"""The fields of all answers: the rows that they cover (the scope); and their HTML and JSON.

To add a field to all answers, such as one about what was read: declare it in `Scope` and `SharedFields`, and
fill it in at query/reading/shared_fields.py. Named in `Scope.FACTS`, it is in JSON documents and a column of
the SQL functions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypedDict

from tidemark.query.answers.by_site import BySite, SiteFacts
from tidemark.query.answers.flat_rows import flat_rows
from tidemark.query.answers.plan import Plan
from tidemark.query.answers.rendering import group_text, html_table, interval_bar, text_of, window_text
from tidemark.warehouse.columns.json_values import json_text, json_type


class Renderable(ABC):
    """An answer, or several answers: rendered as JSON for programs and as a table for notebooks."""

    __slots__ = ()

    @property
    def plan(self) -> Plan | None:
        """How it was found; None for an object that is no answer."""
        return None

    @abstractmethod
    def table(self) -> tuple[Sequence[str], Sequence[Sequence[Any]], Sequence[Any], str]:
        """The column names, the cells of each row, the answer of each row, and the caption."""

    @abstractmethod
    def _document(self) -> Mapping[str, Any]:
        """All facts of the JSON document, by name."""

    def to_json(self, *, plan: bool = False) -> str:
        """The answer and its scope as one JSON document, see warehouse/columns/json_values.py.

        plan: add how it was found, as `plan`.

        The field `types` names the type of each of the answer's own fields: values that are no number of
        JSON, such as a time, a decimal, NaN or a whole number beyond 2**53, are text.
        """
        explained = {"plan": self.plan.document} if plan and self.plan is not None else {}
        return json_text({**self._document(), **self.json_types(), **explained})

    def to_rows(self) -> list[dict[str, Any]]:
        """Flat rows of numbers for charts: time, value, low, high and others.

        Times are milliseconds since 1970 in UTC. Where a number does not say all, such as NaN, a decimal or a
        whole number beyond 2**53, a field with `_text` behind its name has the text.
        """
        return flat_rows(self.with_scopes())

    def with_scopes(self) -> Iterable[tuple[Any, Any]]:
        """Each answer with the object that has its scope."""
        return [(self, self)]

    def json_types(self) -> Mapping[str, Any]:
        """The field `types` of the document; nothing without values."""
        named = {name: json_type(values) for name, values in self.values_by_field().items()}
        types = {name: kind for name, kind in named.items() if kind is not None}
        return {"types": types} if types else {}

    def values_by_field(self) -> Mapping[str, Iterable[Any]]:
        """The values of the fields of which the document tells the type, by name."""
        return {}

    def _repr_html_(self) -> str:
        """An HTML table; each row ends with a drawing of its certified interval, if its answer has one."""
        names, rows, items, caption = self.table()
        bars = [interval_bar(*field_values(answer, answer.INTERVAL)) for answer in items if answer.INTERVAL]
        return html_table(names, rows, caption, bars)


class SharedFields(TypedDict):
    """The fields of `Scope` by name that all answers to one question share."""

    as_of: Mapping[str, Any]
    widened: str | None
    plan: Plan | None
    sites: BySite | None


class ScopeFields(SharedFields):
    """The fields of `Scope` by name, from which an answer is made."""

    n: int
    m: int
    nulls: int
    window: tuple[Any, Any] | None


class PromisedFields(ScopeFields):
    """The fields of `PromisedScope` by name."""

    eps: float
    mode: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Scope(Renderable):
    """The rows that an answer covers; a part of every answer.

    n, m: rows of history and of the live side in the window, without the NULL rows.
    nulls: rows whose column is NULL.
    window: (start, end) as times or step numbers, the end exclusive, None for an open side. None for all
        rows.
    as_of: the versions of the tables that were read; of several warehouses those of each, by its name. It has
        `begun`, the newest step that a load has begun, if rows of begun steps were not read from runs.
    widened: None if the window is as it was asked and begins after what has expired. Else a text: the window
        that was asked, if it was widened to whole ticks; where it was counted back from, if later ticks lie
        in the future of the clock; the time before which rows have expired.
    plan: how it was found, which all answers of a call share. It does not count where answers are compared.
    sites: the rows of each of several warehouses, for `by_site`; None for one.
    """

    SUBJECT: ClassVar[str]  # the field with the column's name
    FACTS: ClassVar[tuple[str, ...]] = ("n", "m", "nulls")  # fields of every answer
    OWN_FACTS: ClassVar[
        Mapping[str, str]
    ] = {}  # further fields of a kind of answers, each with the one before it
    COLUMNS: ClassVar[tuple[str, ...]] = ()  # the answer's own fields
    READ_FACTS: ClassVar[tuple[str, ...]] = ("as_of",)  # what was read for the answer
    # The fields of the certified lower bound, the answer and the certified upper bound.
    INTERVAL: ClassVar[tuple[str, ...]] = ()

    n: int
    m: int
    nulls: int
    window: tuple[Any, Any] | None
    as_of: Mapping[str, Any]
    widened: str | None = None
    plan: Plan | None = field(default=None, compare=False)
    sites: BySite | None = field(default=None, compare=False)

    @property
    def N(self) -> int:  # noqa: N802 - the symbol of the papers
        """All rows of the window that have a rank, or a key: n + m."""
        return self.n + self.m

    def by_site(self) -> dict[str, SiteFacts]:
        """Facts about each of several warehouses in the window of the answer, by its name; empty for one."""
        return {} if self.sites is None else self.sites.of(self.window)

    @property
    def complete(self) -> bool | None:
        """Whether all of several warehouses are `complete` in the window, see `by_site`; None for one."""
        return None if self.sites is None else all(one.complete for one in self.by_site().values())

    @property
    def moment(self) -> dict[str, dict[str, int]]:
        """The read moment of several warehouses, for `query.open(..., at=answer.moment)`; else empty.

        For each warehouse the versions of tables by their names, and the number of its newest removal as
        `removed`, if it had one. The same question of what is opened then has the same answer, as long as
        the files of these versions are kept.
        """
        sites = {} if self.sites is None else self.sites.sites
        return {name: site.moment for name, site in sites.items()}

    @property
    def column(self) -> str:
        """The name of the measure or key column."""
        return str(getattr(self, self.SUBJECT))

    @property
    def scope_text(self) -> str:
        """The scope in one line."""
        rows = "; ".join([f"{self.n:,} history + {self.m:,} live", *self._scope_notes()[0]])
        subject = f"{text_of(self.column)}{self._restriction}, {self.shown_window}"
        return ", ".join([f"{subject}: N = {self.N:,} ({rows})", *self._scope_notes()[1]])

    @property
    def shown_window(self) -> str:
        """The window in words."""
        text = window_text(self.window)
        return text if self.widened is None else f"{text}, {self.widened}"

    @property
    def method_text(self) -> str:
        """The mode with its promise, and what was read."""
        return ", ".join(self._scope_notes()[1])

    @property
    def scope_facts(self) -> dict[str, Any]:
        """The scope by name, as in the JSON document."""
        window = None if self.window is None else dict(zip(("start", "end"), self.window, strict=True))
        first = {self.SUBJECT: self.column, "window": window, "N": self.N}
        facts = {"widened": self.widened, "complete": self.complete, **self._optional_facts()}
        optional = {name: value for name, value in facts.items() if value is not None}
        return {**first, **optional, **fields_by_name(self, (*self.fact_names(), *self.READ_FACTS))}

    @classmethod
    def fact_names(cls) -> tuple[str, ...]:
        """The fields that describe rows and promise, in the order of JSON documents and SQL columns."""
        names = list(cls.FACTS)
        for name, before in cls.OWN_FACTS.items():
            names.insert(names.index(before) + 1, name)
        return tuple(names)

    def _optional_facts(self) -> Mapping[str, Any]:
        """Further facts by name; facts that are None are left out."""
        return {}

    @property
    def _restriction(self) -> str:
        """Which rows of the window the answer covers, as text that follows the column; empty for all."""
        return ""

    @abstractmethod
    def _scope_notes(self) -> tuple[Sequence[str], Sequence[str]]:
        """The rows that are counted separately (NaN, NULL), and the mode with its promise, as texts."""

    @property
    def document(self) -> Mapping[str, Any]:
        """The answer and its scope, as in the JSON document."""
        return self._document()

    def table(self) -> tuple[Sequence[str], Sequence[Sequence[Any]], Sequence[Any], str]:
        """See `Renderable.table`."""
        return self.COLUMNS, [field_values(self, self.COLUMNS)], [self], self.scope_text

    def _document(self) -> Mapping[str, Any]:
        return {**fields_by_name(self, self.COLUMNS), **self.scope_facts}

    def values_by_field(self) -> Mapping[str, Iterable[Any]]:
        """See `Renderable.values_by_field`."""
        return {name: [value] for name, value in fields_by_name(self, self.COLUMNS).items()}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PromisedScope(Scope):
    """The rows that an answer covers, and what it promises.

    eps: the promised error as a fraction of the rows.
    mode: the mode of the answer.
    group: the values of the columns of `where` and `by` that the rows have, by column: a list where `where`
        gives several, a condition as text under "where". None for an answer about all rows.
    """

    FACTS: ClassVar[tuple[str, ...]] = (*Scope.FACTS, "eps", "mode")

    eps: float
    mode: str
    group: Mapping[str, Any] | None = None

    @property
    def _restriction(self) -> str:
        return "" if self.group is None else f" where {group_text(self.group)}"


def field_values(answer: Any, names: Sequence[str]) -> list[Any]:
    """The values of an answer's fields, in the order of the names."""
    return [getattr(answer, name) for name in names]


def fields_by_name(answer: Any, names: Sequence[str]) -> dict[str, Any]:
    """The values of an answer's fields, by name."""
    return dict(zip(names, field_values(answer, names), strict=True))


def nonzero_counts(**rows: int) -> list[str]:
    """Numbers of rows by kind as texts, such as "3 NaN"; kinds without rows are left out."""
    return [f"{count:,} {kind}" for kind, count in rows.items() if count]
