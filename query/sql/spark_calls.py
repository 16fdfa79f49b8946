"""Calls from Spark: planned when a query is analysed, before it runs.

A plan has the types of the call's arguments and of its columns, see shown_types.py. The types tell whether a
time without a zone, which Python sees, is UTC (TIMESTAMP_NTZ) or of the worker's zone, in which Spark hands
over an instant. A call whose arguments are all constants is checked, too: a refusal then is an error of the
analysis, one line, and not the failure of a task, which Spark logs with Java's stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from typing import Any

from tidemark.query.reader import Reader
from tidemark.query.sql import sql_rows
from tidemark.query.sql.calls import SIGNATURES, is_subject, resolve_arguments
from tidemark.query.sql.shown_types import NOT_GIVEN, Given
from tidemark.query.sql.sql_types import spark_field
from tidemark.warehouse.errors import InputError
from tidemark.warehouse.private.secrets import tokens_alone

# A plan is an attribute of the schema that the analysis returns: the result itself may have no further ones,
# unless its class is known where pyspark may be missing.
_PLAN = "tidemark_plan"


def analyzed(columns: Sequence[tuple[str, str]], plan: Any = None) -> Any:
    """What a function's `analyze` returns: the columns, and the plan for `plan_in`."""
    from pyspark.sql.types import StructType
    from pyspark.sql.udtf import AnalyzeResult

    fields = [spark_field(name, kind) for name, kind in columns]
    schema = StructType.fromJson({"type": "struct", "fields": fields})
    setattr(schema, _PLAN, plan)
    return AnalyzeResult(schema=schema)


def plan_call(
    wh: Reader, name: str, measure: str | None, args: Sequence[Any], named: Mapping[str, Any]
) -> Any:
    """The analysis of a call; TidemarkError if it is refused. `args` and `named` are AnalyzeArguments.

    Values of private columns are taken as tokens alone: Spark writes statements into its logs.
    """
    given = _given_points(wh, name, measure, args, named) if name in sql_rows.SHOWS_POINTS else NOT_GIVEN
    beyond = not given.several and sql_rows.rows_beyond_double(wh, name, measure)
    columns = sql_rows.columns(name, wh.options, measure, given, beyond_double=beyond)
    kinds = [arg.dataType for arg in args], {key: arg.dataType for key, arg in named.items()}
    if all(arg.isConstantExpression for arg in (*args, *named.values())):
        values = [arg.value for arg in args], {key: arg.value for key, arg in named.items()}
        args, named = _read_all(kinds, *values)
        with tokens_alone():
            _check_groups(wh, name, measure, args, named)
            sql_rows.check(wh, name, measure, args, named)
    return analyzed(columns, (kinds, columns))


def rows_of_plan(
    wh: Reader, name: str, measure: str | None, result: Any, args: Sequence[Any], named: Mapping[str, Any]
) -> Iterator[tuple[Any, ...]]:
    """The rows of a planned call; `result` is what `analyze` returned. Groups are without private columns."""
    kinds, columns = getattr(result.schema, _PLAN)
    given, private = _read_all(kinds, args, named), wh.options.private
    if not private:
        yield from sql_rows.rows(wh, name, measure, *given, columns)
        return
    with tokens_alone():
        _check_groups(wh, name, measure, *given)
        found = [*sql_rows.rows(wh, name, measure, *given, columns)]
    names = [column for column, _ in columns]
    for row in found:
        shown = dict(zip(names, row, strict=True))
        if group := shown.get("group"):
            shown["group"] = {one: value for one, value in group.items() if one not in private}
        yield tuple(shown.values())


def _check_groups(
    wh: Reader, name: str, measure: str | None, args: Sequence[Any], named: Mapping[str, Any]
) -> None:
    """InputError for groups by a private column: Spark would compare their tokens with text."""
    if not wh.options.private:
        return
    measures = [column.name for column in wh.measures] if measure is None else []
    by = (resolve_arguments(name, measures, args, named) or {}).get("by", ())
    if hidden := [column for column in by if column in wh.options.private]:
        raise InputError(
            f"by has the private column {hidden[0]!r}, whose tokens Spark SQL would compare with text. Ask "
            "for the groups by query.open(...), where the secret is."
        )


def _read_all(kinds: Any, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    positional, by_name = kinds
    return (
        [_read(value, kind) for value, kind in zip(args, positional, strict=True)],
        {key: _read(value, by_name[key]) for key, value in named.items()},
    )


def _read(value: Any, kind: Any) -> Any:
    """A value of Spark, of this type, as Python has it."""
    name = kind.typeName()
    if value is None:
        return None
    if name == "timestamp":
        return value.astimezone(UTC)
    if name == "timestamp_ntz":
        return value.replace(tzinfo=UTC)
    if name == "array":
        return [_read(item, kind.elementType) for item in value]
    if name == "map":
        return {_read(key, kind.keyType): _read(item, kind.valueType) for key, item in value.items()}
    if name == "struct":
        return {
            field.name: _read(item, field.dataType) for field, item in zip(kind.fields, value, strict=True)
        }
    return value


def _given_points(
    wh: Reader, name: str, measure: str | None, args: Sequence[Any], named: Mapping[str, Any]
) -> Given:
    """What the types of the arguments tell of the points or edges."""
    subject = SIGNATURES[name].subjects[0]
    measures = [column.name for column in wh.measures] if measure is None else []
    positional = (
        arg for arg in args if is_subject(name, measures, arg.value, is_null=_type_name(arg) == "void")
    )
    found = named.get(subject) or next(positional, None)
    if found is None:
        return NOT_GIVEN
    several = _type_name(found) == "array"
    kind = found.dataType.elementType if several else found.dataType
    return Given(_SQL_NAMES.get(kind.typeName(), kind.simpleString()), several)


_SQL_NAMES = {"timestamp_ntz": "timestamp", "void": None, "string": "string"}  # a string may name a collation


def _type_name(argument: Any) -> str:
    name: str = argument.dataType.typeName()
    return name
