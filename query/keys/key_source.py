"""Where everything about keys is read from: marks, blocks, ledger and `events`, with caches by window.

What marks say about keys is cached as long as the runs stay the same, often for days. The rest is cached for
one view, until the next batch arrives. Any method raises DamagedWarehouse if what it reads is missing or
damaged.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from tidemark.query.keys.key_blocks import KeyHistory, rows_of_each
from tidemark.query.keys.key_samples import SampledRow, WindowKeys, combine
from tidemark.query.keys.key_windows import KeyWindow, PartialTick, overlapping_rows
from tidemark.query.keys.listed_keys import ListedKeys, Lists, listed_names
from tidemark.query.keys.listed_slots import RunListing, starts_of
from tidemark.query.keys.live_keys import LivePart, LiveSide, LiveTotals, is_cut
from tidemark.query.keys.run_keys import RunKeys, covers
from tidemark.query.keys.silent_keys import SilentKeys, UnreadHistory, UnreadRun
from tidemark.query.reading import spending
from tidemark.query.reading.block_reader import BlockReader
from tidemark.query.reading.costs import Costs
from tidemark.query.reading.live_cache import LiveCache
from tidemark.sketches import ECM
from tidemark.sketches.sampling import KeySample
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.ledger.key_summaries import KeyPromise
from tidemark.warehouse.ledger.live_summaries import LiveKeys, read_samples, read_sketch
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.projections.key_days import KeyDays
from tidemark.warehouse.projections.key_marks import KeyMarks
from tidemark.warehouse.projections.key_rows import KeyRows
from tidemark.warehouse.snapshots.live_rows import live_key_rows
from tidemark.warehouse.snapshots.sites import AnySnapshot
from tidemark.warehouse.snapshots.views import KeysView

CACHED_WINDOWS = 32  # windows per cache of lists and counters
CACHED_PARTS = 512  # windows per cache of small things: a chart of a year by day fits
CACHED_LISTS = 16  # runs whose lists are kept for further windows, a megabyte each at most
CACHED_BUCKETS = 2**22  # buckets of the cached sketches, 16 bytes each
CACHED_HASHES = 2**21  # hashes of the keys of windows, 8 bytes each


class KeySource:
    """Reads the facts about keys; safe to share between threads.

    is_far: whether a warehouse is in an object store.
    memory: a cache of decoded data whose weights are bytes. live: the live rows in it.
    costs: the costs of the ways to an answer.
    """

    def __init__(
        self, is_far: bool, blocks: BlockReader, memory: LRUCache[Any], live: LiveCache, costs: Costs
    ) -> None:
        self.is_far, self.blocks, self.costs = is_far, blocks, costs
        self._memory, self._live = memory, live
        self._histories: LRUCache[KeyHistory] = LRUCache(CACHED_PARTS)
        self._listed: LRUCache[ListedKeys] = LRUCache(CACHED_WINDOWS)
        self._lists: LRUCache[Lists] = LRUCache(CACHED_LISTS)
        self._parts: LRUCache[list[LivePart]] = LRUCache(CACHED_PARTS)
        self._totals: LRUCache[LiveTotals] = LRUCache(CACHED_PARTS)
        self._lives: LRUCache[LiveSide] = LRUCache(CACHED_WINDOWS)
        self._sketches: LRUCache[ECM] = LRUCache(CACHED_BUCKETS)
        self._runs: LRUCache[WindowKeys] = LRUCache(CACHED_HASHES)
        self._windows: LRUCache[WindowKeys] = LRUCache(CACHED_HASHES)
        self._silent: LRUCache[SilentKeys] = LRUCache(CACHED_WINDOWS)

    def scan_cost(self, history: KeyHistory) -> float:
        """The cost of a scan of the runs of a history."""
        return self.costs.key_scan([share.marks for share in history.shares], far=self.is_far)

    def history(self, view: KeysView, window: Window) -> KeyHistory:
        """The view's history in a window of ticks."""
        kept = self._histories.at(window, topic=view.root, sources=(view,))
        return kept.value or kept.keep(KeyHistory(self.blocks, view, window))

    def listed(self, history: KeyHistory) -> ListedKeys:
        """The keys that the marks list in the window of the history."""
        view = history.view
        kept = self._listed.at(history.window, topic=view.root, sources=view.sources)
        if kept.value is not None:
            return kept.value
        lists = [self._lists_of(view, share.marks) for share in history.shares]
        listed = listed_names(view.key, history.window, history.shares, lists)
        if history.kept is not None:
            listed = listed.without(rows_of_each(history.kept, listed.names))
        return kept.keep(listed)

    def _lists_of(self, view: KeysView, marks: KeyMarks) -> Lists:
        kept = self._lists.at((view.root, marks.files[0].path))
        return kept.value or kept.keep(marks.heavy())

    def live_side(self, view: KeysView, window: KeyWindow, promise: KeyPromise) -> LiveSide:
        """The view's live side in a window, from the ledger."""
        kept = self._lives.at((window.whole, window.partial_ticks), topic=view.root, sources=(view,))
        return kept.value or kept.keep(LiveSide.of(self.live_parts(view, window, promise), view.key))

    def live_parts(self, view: KeysView, window: KeyWindow, promise: KeyPromise) -> list[LivePart]:
        """The part in the window of each ledger row that overlaps it."""
        kept = self._parts.at((window.whole, window.partial_ticks), topic=view.root, sources=(view,))
        if kept.value is not None:
            return kept.value
        rows = overlapping_rows(view.live, window)
        return kept.keep([self._live_part(row, partial, promise) for row, partial in rows])

    def _live_part(
        self, row: LiveKeys, partial: PartialTick | None, promise: KeyPromise, *, may_read: bool = True
    ) -> LivePart:
        if partial is None or not is_cut(row, partial):
            return LivePart.entire(row, promise)
        sketch = self._sketch(row) if may_read else self._sketches.peek(_sketch_of(row))
        return (
            LivePart.unread(row, partial, promise) if sketch is None else LivePart.cut(row, partial, sketch)
        )

    def live_totals(self, view: KeysView, window: KeyWindow, promise: KeyPromise) -> LiveTotals:
        """How many live rows a window has."""
        kept = self._totals.at((window.whole, window.partial_ticks), topic=view.root, sources=(view,))
        return kept.value or kept.keep(LiveTotals.of(self.live_parts(view, window, promise)))

    def _sketch(self, live: LiveKeys) -> ECM:
        """The sketch of a ledger row of which the window covers only a part; read from the warehouse."""
        kept = self._sketches.at(_sketch_of(live))
        return kept.value or kept.keep(sketch := read_sketch(live), len(sketch.counts.kept))

    def live_rows(self, snapshot: AnySnapshot, view: KeysView, window: KeyWindow) -> Iterator[KeyRows]:
        """The live rows of the window, from `events`, in pieces that are read as they are taken."""
        if window.partial_ticks:  # decoded rows have ticks alone
            inside = {one for one, tick in view.live_counts if not window.overlapping.misses(tick, tick)}
            rows = sum(rows for (one, _), rows in view.live_counts.items() if one in inside)
            spending.read(None, rows=rows)
            return chain.from_iterable(
                live_key_rows(place, site, window.overlapping, window.since, window.until)
                for place, site in zip(snapshot.sites, view.sites, strict=True)
            )
        live = self._live.rows(snapshot, view.projection, view)
        return (part.rows.within(window.overlapping) for part in live)

    def sampled_keys(self, view: KeysView, window: KeyWindow) -> WindowKeys:
        """The keys of a window as far as samples tell them."""
        kept = self._windows.at((window.whole, window.partial_ticks), topic=view.root, sources=(view,))
        if kept.value is not None:
            return kept.value
        ticks = window.overlapping
        overlapping = [run for run in view.runs if run.totals.counts[ticks.slice_of(run.totals.ticks)].any()]
        runs = {_name_of(marks): (marks, self._run_keys(view, marks)) for marks in overlapping}
        covered = {name: run for name, (_, run) in runs.items() if covers(window, run)}
        together = self._together(view, covered, window)
        cut = [
            replace(run, days=self._days(view, marks))
            for name, (marks, run) in runs.items()
            if name not in covered
        ]
        rows = [(row, partial) for row, partial in overlapping_rows(view.live, window) if row.rows]
        samples = self.live_samples([row for row, _ in rows])
        live = [(*row, sample) for row, sample in zip(rows, samples, strict=True)]
        silent_runs, silent_live, unread = self._silent_samples(view, window)
        found = combine([*cut, *silent_runs], [*live, *silent_live], window, together=together, unread=unread)
        return kept.keep(found, found.weight)

    def _together(self, view: KeysView, covered: Mapping[str, RunKeys], window: KeyWindow) -> WindowKeys:
        """The keys of runs that the window covers; they stay the same when further batches arrive."""
        kept = self._runs.at(tuple(covered), topic=view.root, sources=view.runs)
        return kept.value or kept.keep(keys := combine([*covered.values()], [], window), keys.weight)

    def _run_keys(self, view: KeysView, marks: KeyMarks) -> RunKeys:
        """The keys of a run."""
        kept = self._memory.at(("keys of a run", view.root, marks.files[0].path))
        known: RunKeys | None = kept.value
        return known or kept.keep(new := RunKeys.of(marks.totals.ticks, marks.distinct()), new.nbytes)

    def _days(self, view: KeysView, marks: KeyMarks) -> KeyDays | None:
        """The days and weeks of a run, if its marks have them."""
        kept = self._memory.at(("days of the keys of a run", view.root, marks.files[0].path))
        known: KeyDays | None = kept.value
        if known is None and (known := marks.days()) is not None:
            kept.keep(known, known.nbytes)
        return known

    def live_samples(self, live: Sequence[LiveKeys]) -> list[KeySample]:
        """The sample of each ledger row."""
        keys = [_place_of(row) for row in live]
        known: list[Any] = [self._memory.peek(key) for key in keys]
        missing = [i for i, sample in enumerate(known) if sample is None]
        for i, sample in zip(missing, read_samples([live[i] for i in missing]), strict=True):
            known[i] = sample
            self._memory.put(keys[i], sample, sample.nbytes)
        return known

    def silent(self, view: KeysView, window: KeyWindow, promise: KeyPromise) -> SilentKeys | None:
        """The known facts about a window in the warehouses that do not answer; None if all answer.

        Nothing is read: only lists and sketches that are in memory count.
        """
        if not view.silent:
            return None
        kept = self._silent.at((window.whole, window.partial_ticks), topic=view.root, sources=(view,))
        return kept.value or kept.keep(self._of_silent(view, window, promise))

    def _of_silent(self, view: KeysView, window: KeyWindow, promise: KeyPromise) -> SilentKeys:
        views = [one.view for one in view.silent.values()]
        parts = [
            self._live_part(row, partial, promise, may_read=False)
            for one in views
            for row, partial in overlapping_rows(one.live, window)
        ]
        return SilentKeys(
            sites=tuple(view.silent),
            key=view.key,
            live=LiveSide.of(parts, view.key),
            totals=LiveTotals.of(parts),
            whole=[self._unread(one, window.whole) for one in views if window.whole is not None],
            partial=[
                (self._unread(one, Window(cut.tick, cut.tick + 1)), cut.share)
                for one in views
                for cut in window.partial_ticks
            ],
        )

    def _unread(self, view: KeysView, window: Window) -> UnreadHistory:
        """The history of a warehouse that does not answer."""
        history = KeyHistory(self.blocks, view, window)
        runs = []
        for share in history.shares:
            lists = self._lists.peek((view.root, share.marks.files[0].path))
            runs.append(
                UnreadRun(share, None if lists is None else listed_names(view.key, window, [share], [lists]))
            )
        return UnreadHistory(history, tuple(runs))

    def silent_keys(self, view: KeysView, window: KeyWindow) -> WindowKeys:
        """The keys of a window in the warehouses that do not answer, by the samples in memory."""
        runs, live, unread = self._silent_samples(view, window)
        return combine(runs, live, window, unread=unread)

    def _silent_samples(
        self, view: KeysView, window: KeyWindow
    ) -> tuple[list[RunKeys], list[SampledRow], int]:
        """The samples in memory of warehouses that do not answer, and the number of rows without a sample."""
        runs, live, unread, ticks = list[RunKeys](), list[SampledRow](), 0, window.overlapping
        for one in (part.view for part in view.silent.values()):
            has_kept = one.has_kept(ticks)  # then samples count keys that may be removed
            for share in KeyHistory(self.blocks, one, ticks).shares:
                keys = self._memory.peek(("keys of a run", view.root, _name_of(share.marks)))
                if keys is None or has_kept:
                    unread += share.rows
                else:
                    runs.append(keys)
            for row, partial in overlapping_rows(one.live, window):
                sample = self._memory.peek(_place_of(row))
                if sample is None:
                    unread += row.rows
                else:
                    live.append((row, partial, sample))
        return runs, live, unread

    def listing(self, view: KeysView, marks: KeyMarks) -> RunListing:
        """The persistent keys of a run."""
        kept = self._memory.at(("persistent keys of a run", view.root, marks.files[0].path))
        known: RunListing | None = kept.value
        if known is None:
            listed = marks.persistent()
            known = RunListing(listed, starts_of(listed.rows))
            kept.keep(known, known.nbytes)
        return known


def _name_of(marks: KeyMarks) -> str:
    """A name for a run among the runs of all warehouses: paths of files are unique."""
    return marks.files[0].path


def _sketch_of(live: LiveKeys) -> Hashable:
    """A name for the sketch of a ledger row."""
    return live.store, live.field, live.batches, live.tick


def _place_of(live: LiveKeys) -> Hashable:
    """A name for the sample of a ledger row in memory."""
    return "keys of a batch", live.store, live.field, live.batches, live.tick
