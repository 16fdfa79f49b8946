"""Warehouses with groups, loaded and streamed in this process, with every row kept in a list: the oracle."""

from __future__ import annotations

import itertools
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
from hypothesis import strategies as st

from tidemark import query, stream, warehouse
from tidemark.warehouse import Tuning

TINY = Tuning(
    sort_rows=60, slice_rows=40, file_rows=(40, 80), block_rows=16, span_cells=24, fan=3, kept_rows=0
)
KEEPS = replace(TINY, kept_rows=2**20)  # few rows that leave are kept for readers to subtract
START = datetime(2024, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
SCHEMA = pa.schema(
    [
        ("time", pa.timestamp("us", "UTC")),
        ("origin", pa.string()),
        ("number", pa.int64()),
        ("value", pa.float64()),  # the name of a stored column, too
        ("price", pa.decimal128(9, 2)),
    ]
)
EPS = 0.4
BOTH = ("value", "price")
ONE = ("value",)
# Of tests that ask about keys: their tables alone, and of one measure.
KEYED: dict[str, Any] = {"measures": ONE, "groups": [], "keys": ["origin", ["number", "origin"]]}
Row = tuple[Any, ...]
_numbers = itertools.count()

ROWS = st.tuples(
    st.none() | st.integers(0, 47),
    st.sampled_from(["a"] * 6 + ["b", "", "\U0010ffff", "é" * 30, None]),
    st.sampled_from([1] * 6 + [-(2**63), 2**63 - 1, None]),
    st.one_of(
        st.none(), st.just(math.nan), st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 1.0, 1.0, math.inf])
    ),
    st.none() | st.integers(-999, 999).map(lambda cents: Decimal(cents) / 100),
).map(lambda row: (None if row[0] is None else START + row[0] * HOUR / 2, *row[1:]))
BATCHES = st.lists(st.tuples(st.booleans(), st.lists(ROWS, min_size=1, max_size=60)), min_size=1, max_size=4)
PHIS = [0, 0.1, 0.5, 0.9, 0.999, 1]
MEMORY = st.sampled_from([0, 1500, 2**28])  # a reader's: large slices are read by block, some, or none
MEASURES = st.sampled_from(["value", "price"])
WINDOWS = st.none() | st.tuples(st.integers(0, 24), st.integers(1, 12)).map(
    lambda ticks: (START + ticks[0] * HOUR, START + (ticks[0] + ticks[1]) * HOUR)
)


@dataclass
class GroupWorld:
    """A warehouse with the groups (origin) and (number, origin), and all of its rows.

    Each measure has tables of its own, for each group too: most tests need one.
    """

    path: Path
    rows: list[Row]
    batches: int = 0
    measures: Sequence[str] = BOTH
    _truths: dict[tuple[Any, ...], Truth] = field(default_factory=dict, repr=False)

    @classmethod
    def create(cls, folder: Path, measures: Sequence[str] = BOTH, **options: Any) -> GroupWorld:
        path = folder / f"world-{next(_numbers)}"
        given = {"groups": ["origin", ["number", "origin"]], "time": "time", "tick": "1h", "kappa": 2}
        warehouse.create(None, path, list(measures), eps=EPS, schema=SCHEMA, **{**given, **options})
        return cls(path, [], measures=measures)

    @classmethod
    def of(cls, folder: Path, batches: Sequence[tuple[bool, list[Row]]], **options: Any) -> GroupWorld:
        """Each batch is (whether it is loaded, its rows); the others are streamed and stay live."""
        world = cls.create(folder, **options)
        for is_loaded, rows in batches:
            world.add(rows, load=is_loaded)
        return world

    def copy(self, folder: Path) -> Self:
        """One to be changed, where this one is kept for the next test."""
        path = folder / self.path.name
        shutil.copytree(self.path, path)
        return replace(self, path=path, rows=list(self.rows), _truths={})

    def add(self, rows: list[Row], *, load: bool, progress: Callable[[str], None] | None = None) -> None:
        table = pa.table(
            {
                name: pa.array([row[i] for row in rows], SCHEMA.types[i])
                for i, name in enumerate(SCHEMA.names)
            },
            schema=SCHEMA,
        )
        if load:
            warehouse.load(None, self.path, table, f"batch {self.batches}", tuning=TINY, progress=progress)
        else:
            stream.append(None, self.path, table, source="s", batch=self.batches, tuning=TINY)
        self.batches += 1
        self.rows += rows

    def load_live(self) -> None:
        warehouse.load(None, self.path, tuning=TINY)

    def open(self, **options: Any) -> query.Warehouse:
        return query.open(self.path, **options)

    def truth(self, measure: str, group: dict[str, Any], window: tuple[datetime, datetime] | None) -> Truth:
        """The rows of a group: for each column a value or a list of values. Rows are only ever added."""
        asked = (measure, repr(group), window, len(self.rows))
        if asked not in self._truths:
            allowed = [
                (SCHEMA.names.index(name), values if isinstance(values, list) else [values])
                for name, values in group.items()
            ]
            found = self.rows
            if window is not None:
                found = [row for row in found if row[0] is not None and window[0] <= row[0] < window[1]]
            for place, values in allowed:
                found = [row for row in found if row[place] in values]
            place = SCHEMA.names.index(measure)
            self._truths[asked] = Truth.of([row[place] for row in found])
        return self._truths[asked]

    def groups(
        self, columns: Sequence[str], window: tuple[datetime, datetime] | None
    ) -> list[tuple[Any, ...]]:
        """The values of the columns that rows of the window have, without NULL, ascending."""
        places = [SCHEMA.names.index(name) for name in columns]
        inside = [row for row in self.rows if window is None or (row[0] and window[0] <= row[0] < window[1])]
        found = {tuple(row[i] for i in places) for row in inside}
        ordered = [group for group in found if None not in group]
        return sorted(ordered, key=lambda group: [v.encode() if isinstance(v, str) else v for v in group])


@dataclass(frozen=True)
class Truth:
    """The numbers of some rows, sorted, and how many rows are NaN and NULL."""

    numbers: list[Any]
    nans: int
    nulls: int

    @classmethod
    def of(cls, values: list[Any]) -> Truth:
        nans = sum(isinstance(v, float) and math.isnan(v) for v in values)
        numbers = sorted(v for v in values if v is not None and not (isinstance(v, float) and math.isnan(v)))
        return cls(numbers, nans, sum(v is None for v in values))

    @property
    def n(self) -> int:
        return len(self.numbers) + self.nans

    def quantile(self, phi: Any) -> Any:
        rank = max(1, math.ceil(Fraction(str(phi)) * self.n))
        return self.numbers[rank - 1] if rank <= len(self.numbers) else math.nan

    def rank(self, x: Any) -> int:
        return sum(v <= x for v in self.numbers)


def check_quantile(answer: Any, truth: Truth, mode: str) -> None:
    """Everything that an answer says is true, and the promise is kept."""
    assert (answer.N, answer.nans, answer.nulls) == (truth.n, truth.nans, truth.nulls)
    assert answer.mode == mode
    if not truth.n:
        assert (answer.value, answer.error_bound) == (None, 0)
        return
    exact = truth.quantile(answer.phi)
    if isinstance(exact, float) and math.isnan(exact):
        assert math.isnan(answer.value)
        return
    if mode != "quick":
        assert answer.value == exact
    assert answer.low <= exact <= answer.high
    rank, below = truth.rank(answer.value), sum(v < answer.value for v in truth.numbers)
    assert answer.rank_lo <= rank <= answer.rank_hi
    wanted = max(1, math.ceil(Fraction(str(answer.phi)) * truth.n))
    assert max(0, wanted - rank, below + 1 - wanted) <= answer.error_bound
    assert answer.error_bound <= (Fraction(str(EPS)) * truth.n if mode == "quick" else 0)


def group_of(answer: Any) -> dict[str, Any]:
    """The group of an answer about one."""
    assert answer.group is not None, answer
    return dict(answer.group)
