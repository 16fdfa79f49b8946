"""The result of `info()`: facts about a warehouse as a mapping that prints as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tidemark.query.answers.rendering import html_table, text_of
from tidemark.warehouse.columns.json_values import json_text


class Info(Mapping[str, Any]):
    """A read-only mapping of facts by name; some values are mappings themselves."""

    __slots__ = ("_facts",)

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = dict(facts)

    def __getitem__(self, name: str) -> Any:
        return self._facts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)

    def to_json(self) -> str:
        """The facts as one JSON document."""
        return json_text(self._facts)

    def __repr__(self) -> str:
        rows = [(text_of(name), value) for name, value in _flattened("", self._facts)]
        width = max((len(name) for name, _ in rows), default=0)
        return "\n".join(f"{name.ljust(width)}  {text_of(value)}" for name, value in rows)

    def _repr_html_(self) -> str:
        return html_table(("", ""), list(_flattened("", self._facts)), "tidemark warehouse")


def _flattened(prefix: str, facts: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of each fact that is not a mapping."""
    for name, value in facts.items():
        if isinstance(value, Mapping):
            yield from _flattened(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value
