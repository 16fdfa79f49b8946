"""The whole against a plain list: any order of ingest, load, merge, replay and maintenance, and every answer.

Tables, commits, files and queries are the real ones. Only Spark's part is played in this process:
rows are appended to `events` by delta-rs, and tasks are called one after the other, so that
hypothesis can draw hundreds of histories. Blocks, slices and files are made tiny, so that a few
dozen rows fill many.
"""

from __future__ import annotations

import math
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.query.answers import several
from tests.soak import DRAWS, draws
from tests.warehouse.keyworld import plain
from tidemark import query, warehouse
from tidemark.sketches import target_rank
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.events.reader import BatchRange
from tidemark.warehouse.execution.executors import LocalExecutor
from tidemark.warehouse.ledger import ledger_table
from tidemark.warehouse.loads.missing_summaries import summarise
from tidemark.warehouse.projections import key_counts, key_rows, span_marks, spans
from tidemark.warehouse.settings.options import read_options
from tidemark.warehouse.sizes import Tuning
from tidemark.warehouse.work import Work

pytestmark = pytest.mark.slow

# The packages give these names to their functions.

PHIS = (0, 0.07, 0.25, 0.5, 0.9, 1)
TICKS = 4
WINDOWS: tuple[tuple[int, int] | None, ...] = (None, (0, 1), (1, 3))  # of ticks
# Blocks of 8 rows, chunks of 24, slices of 16, a cascade of threes.
TINY = Tuning(
    block_rows=8, span_cells=16, key_block_rows=3, sort_rows=24, slice_rows=16, file_rows=(32, 64), fan=3
)
KINDS = {"double": pa.float64(), "bigint": pa.int64()}
TEMPLATES = [("double", 2, 0.3), ("double", 3, 0.02), ("bigint", 2, 0.1), ("bigint", 3, 0.01)]
Row = tuple[Any, int]  # the value and its tick

doubles = st.one_of(
    st.floats(allow_nan=True, width=64),
    st.sampled_from([0.0, -0.0, 1.0, 2.0, math.inf, -math.inf, math.nan, None]),
    st.integers(-3, 3).map(float),
)
longs = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.integers(-2, 2), st.sampled_from([2**53, 2**53 + 1, None])
)
ticks = st.integers(0, TICKS - 1)


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Path]:
    """Empty warehouses, made once and copied for each history."""
    made = {}
    for kind, kappa, eps in TEMPLATES:
        path = tmp_path_factory.mktemp("template") / "warehouse"
        schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("value", KINDS[kind])])
        options: dict[str, Any] = {"key": "value", "time": "at", "eps": eps, "kappa": kappa, "grace": "0 s"}
        warehouse.create(None, path, "value", schema=schema, **options)
        made[kind, kappa, eps] = path
    return made


class Whole(RuleBasedStateMachine):
    """A warehouse beside the list of all its rows."""

    templates: dict[Any, Path]
    folder: Path
    histories = 0

    @initialize(template=st.sampled_from(TEMPLATES))
    def create(self, template: Any) -> None:
        Whole.histories += 1
        self.path = self.folder / f"{Whole.histories}"
        shutil.copytree(self.templates[template], self.path)
        self.store = Store.from_uri(self.path, tuning=TINY)
        self.kind = template[0]
        self.rows: list[Row] = []
        self.batches: list[list[Row]] = []
        self.live = 0
        self.loaded = 0  # how many rows are in history
        self.looks = 0
        self.reader = query.open(self.path)

    def teardown(self) -> None:
        if hasattr(self, "path"):
            shutil.rmtree(self.path)

    @rule(data=st.data(), size=st.integers(0, 60))
    def ingest(self, data: Any, size: int) -> None:
        """A batch of a stream: events, then its ledger rows."""
        sorted_values = doubles if self.kind == "double" else longs
        few = data.draw(st.lists(sorted_values, min_size=1, max_size=12))
        self.bring(data.draw(st.lists(st.tuples(st.sampled_from(few), ticks), min_size=size, max_size=size)))

    def bring(self, rows: list[Row]) -> None:
        """One more batch."""
        self._append(len(self.batches), rows)
        self.batches.append(rows)
        self.rows += rows
        self.live += len(rows)

    @precondition(lambda self: self.batches)
    @rule(data=st.data())
    def replay(self, data: Any) -> None:
        """A batch that comes again is skipped."""
        batch = data.draw(st.integers(0, len(self.batches) - 1))
        assert ledger_table.append_batch(self.store, read_options(self.store).eps, "s", batch, []) is False

    @rule()
    def load(self) -> None:
        """Everything live becomes a step; again, and nothing is left to do."""
        warehouse.load(None, self.path, tuning=TINY)
        assert warehouse.load(None, self.path, tuning=TINY).outcome == "empty"
        self.live, self.loaded = 0, len(self.rows)

    @rule()
    def maintain(self) -> None:
        """With no grace at all: all that is not needed now goes."""
        warehouse.maintain(None, self.path, tuning=TINY)

    @invariant()
    def every_invariant_holds(self) -> None:
        if hasattr(self, "path"):
            report = warehouse.verify(self.path)
            assert report.ok, str(report)

    @invariant()
    def every_answer_keeps_its_promise(self) -> None:
        """In a window that is another one after each step; a soak takes all of them after each."""
        if hasattr(self, "path"):
            self.looks += 1
            for window in WINDOWS if DRAWS > 1 else WINDOWS[self.looks % 3 :][:1]:
                self._check(window)
                self._check_keys(window)

    def _check_keys(self, window: tuple[int, int] | None) -> None:
        """The measure is the key as well, so any number is one, NaN too."""
        inside = [value for value, tick in self.rows if window is None or window[0] <= tick < window[1]]
        true = Counter(plain(value) for value in inside if value is not None)
        between = None if window is None else tuple(f"1970-01-{1 + day:02}" for day in window)
        keys = [math.nan if key == "NaN" else key for key in true]
        for mode in ("approximate", "exact"):
            for answer in several(self.reader.frequency(keys, between=between, mode=mode)):
                # Few keys and wide sketches: nothing collides, so the likely bound is certain here.
                assert answer.lo <= true[plain(answer.value)] <= answer.hi
                assert (answer.N, answer.nulls) == (true.total(), inside.count(None))
                assert mode == "approximate" or answer.lo == answer.hi
            found = self.reader.heavy_hitters(0.3, between=between, mode=mode)
            heavy = {plain(one.value): one for one in found}
            assert {key for key, count in true.items() if 10 * count >= 3 * true.total()} <= set(heavy)
            assert all(10 * true[key] >= 3 * true.total() for key, one in heavy.items() if one.certain)
            distinct = self.reader.distinct(between=between, mode=mode)
            assert (distinct.least, distinct.most, distinct.N) == (len(true), len(true), true.total())
            for slots in self.reader.persistence(keys, between=between, mode=mode):
                days = {
                    tick
                    for value, tick in self.rows
                    if plain(value) == plain(slots.value)
                    and (window is None or window[0] <= tick < window[1])
                }
                assert slots.lo == slots.slots == slots.hi == len(days)
        joined = self.reader.self_join(between=between).count
        assert joined == sum(count * count for count in true.values())

    def _append(self, batch: int, rows: list[Row]) -> None:
        day = 86_400_000_000
        table = pa.table(
            {
                "_source": pa.array(["s"] * len(rows), pa.string()),
                "_batch": pa.array([batch] * len(rows), pa.int64()),
                "_tick": pa.array([tick for _, tick in rows], pa.int64()),
                "at": pa.array([tick * day for _, tick in rows], pa.timestamp("us", tz="UTC")),
                "value": pa.array([value for value, _ in rows], KINDS[self.kind]),
            }
        )
        once = CommitProperties(app_transactions=[Transaction("s", batch)])
        write_deltalake(self.store.table("events"), table, mode="append", commit_properties=once)
        options = read_options(self.store)
        summaries = summarise(Work(LocalExecutor(), self.store, options), BatchRange("s", batch, batch))
        assert ledger_table.append_batch(self.store, options.eps, "s", batch, summaries)

    def _check(self, window: tuple[int, int] | None) -> None:
        inside = [value for value, tick in self.rows if window is None or window[0] <= tick < window[1]]
        known = sorted((v for v in inside if v is not None), key=lambda v: (is_nan(v), v))
        between = None if window is None else tuple(f"1970-01-{1 + day:02}" for day in window)
        if not known:
            with pytest.raises(warehouse.EmptyWindow):
                self.reader.quantile(0.5, between=between)
            return
        for mode in ("quick", "accurate", "exact"):
            for answer in self.reader.quantile(PHIS, between=between, mode=mode):
                self._holds(answer, known, mode)
                assert answer.nulls == len(inside) - len(known)

    def _holds(self, answer: Any, known: list[Any], mode: str) -> None:
        n = len(known)
        rank = target_rank(answer.phi, n)
        exact, value = known[rank - 1], answer.value
        numbers = [v for v in known if not is_nan(v)]
        le = n if is_nan(value) else sum(v <= value for v in numbers)
        lt = len(numbers) if is_nan(value) else sum(v < value for v in numbers)
        error = max(0, rank - le, lt + 1 - rank)
        promise = {"quick": answer.eps * n, "accurate": answer.eps * answer.m, "exact": 0}[mode]
        assert n == answer.N
        assert error <= answer.error_bound <= promise
        assert answer.rank_lo <= le <= answer.rank_hi
        if not is_nan(exact):
            assert answer.low <= exact <= answer.high
        if mode == "exact" or (answer.m == 0 and mode == "accurate"):
            assert value == exact or (is_nan(value) and is_nan(exact))


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


LONG = settings(
    max_examples=draws(4), stateful_step_count=8, deadline=None, suppress_health_check=list(HealthCheck)
)


def run(machine: type[Whole], templates: dict[Any, Path], folder: Path, how: settings) -> None:
    named = type(machine.__name__, (machine,), {"templates": templates, "folder": folder})
    run_state_machine_as_test(named, settings=how)


def test_any_history_of_a_warehouse_answers_as_a_plain_list_would(
    templates: dict[Any, Path], tmp_path: Path
) -> None:
    run(Whole, templates, tmp_path, LONG)


@pytest.mark.parametrize("broken", ["ticks", "late ledger", "keys"])
def test_a_broken_warehouse_is_caught(
    broken: str, templates: dict[Any, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one history: a span that forgets a row, loaded rows that stay live, keys without their ticks.

    Random histories find each of them too, after up to twenty; this one shows each within its four steps.
    """
    if broken == "ticks":
        count = spans.count_cells

        def forgets(*args: Any) -> Any:
            spans, ticks, counts = count(*args)
            return spans, ticks, counts // 2 * 2

        monkeypatch.setattr(span_marks, "count_cells", forgets)
    elif broken == "keys":
        monkeypatch.setattr(
            key_counts, "count_pairs", lambda column, ticks: key_rows.count_pairs(column, ticks * 0)
        )
    else:
        monkeypatch.setattr(ledger_table, "live_ranges", lambda known, _: sorted(known))
    with pytest.raises(AssertionError):
        one_history(templates, tmp_path)


def one_history(templates: dict[Any, Path], folder: Path) -> None:
    """Batches and loads in turn, with all checks in all windows after each."""
    machine = type("OneHistory", (Whole,), {"templates": templates, "folder": folder})()
    machine.create(("double", 2, 0.3))
    for step in range(4):
        machine.bring([(float(i * i % 7), i % TICKS) for i in range(20 + step)])
        if step % 2:
            machine.load()
        machine.every_invariant_holds()
        for window in WINDOWS:
            machine._check(window)
            machine._check_keys(window)
    machine.teardown()


def test_the_right_variant_is_right(templates: dict[Any, Path], tmp_path: Path) -> None:
    one_history(templates, tmp_path)
