"""An open warehouse for analysts: the questions of `Reader`, figures, and SQL through DuckDB."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from tidemark.query.reader import Reader

if TYPE_CHECKING:
    from tidemark.query.answers.plan import SqlPlan
    from tidemark.query.plots.plots import Plots
    from tidemark.query.sql.relations import Relation
    from tidemark.query.sql.statements import Statements


class Warehouse(Reader):  # noqa: D101  described once
    __doc__ = Reader.__doc__

    @cached_property
    def _statements(self) -> Statements:
        from tidemark.query.sql.statements import Statements

        return Statements({"": self})

    @property
    def plot(self) -> Plots:
        """Figures: `plot.cdf()`, `quantiles`, `histogram`, `top`, `distinct`, `persistence`.

        They need matplotlib.
        """
        from tidemark.query.plots.plots import Plots

        return Plots(self)

    def sql(self, statement: str, *, params: Any = None) -> Relation:
        """A SQL query over events, live, history, steps, runs and summary, with the questions as functions.

        >>> wh.sql("SELECT * FROM quantile(0.99, '7 days')").df()            # doctest: +SKIP

        Of several warehouses, the views have the rows of all, with the name of each one's warehouse in the
        column `_site`.

        statement: one query, such as SELECT or FROM; InputError otherwise, and for what DuckDB refuses.
        params: values for ? and $name.

        Returns a relation, with the methods of `duckdb.DuckDBPyRelation`. Its errors are those of all
        questions, each with DuckDB's as its cause. It is executed when its rows are fetched (df, pl, arrow,
        fetchall, show ...), on the data of that moment. DuckDB reads the files; the cost is that of its
        scans. Where the WHERE of a SELECT compares a column with an index with constants (=, <, <=, >, >=,
        BETWEEN, IN, LIKE 'prefix%', AND and OR of them), rows are found by the index if that is estimated to
        be faster; `explain` tells.
        """
        return self._statements.sql(statement, params)

    def explain(self, statement: str, *, params: Any = None) -> SqlPlan:
        """How `sql` would find the rows of a statement now: by indexes or by scans, and what is left to read.

        statement, params: as in `sql`.

        Nothing is run. The cost is that of looking the rows up, and of the footers of the files. `str` of the
        result has a line for each view of rows of whose columns with an index the statement's WHERE says
        something; `parts` has them as values.
        """
        return self._statements.explain(statement, params)

    def twin(self) -> Self:
        """A shallow copy, which shares the snapshot and caches but has its own DuckDB connections."""
        other = super().twin()
        vars(other).pop("_statements", None)
        return other
