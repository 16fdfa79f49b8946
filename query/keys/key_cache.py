"""Caches of what marks and ledger contain about keys, by window.

The keys that marks list are cached as long as the runs stay the same, often for days. The rest is cached for
one view, until the next batch arrives.
"""

from __future__ import annotations

from tidemark.query.keys.key_blocks import KeyHistory
from tidemark.query.keys.key_windows import KeyWindow
from tidemark.query.keys.listed_keys import ListedKeys, Lists, listed_names
from tidemark.query.keys.live_keys import LivePart, LiveSide, LiveTotals, live_parts
from tidemark.query.reading.block_reader import BlockReader
from tidemark.sketches import ECM
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.ledger.key_summaries import KeyPromise
from tidemark.warehouse.ledger.live_summaries import LiveKeys, read_sketch
from tidemark.warehouse.memory_cache import LRUCache
from tidemark.warehouse.projections.key_marks import KeyMarks
from tidemark.warehouse.snapshots.snapshot import KeysView

CACHED_WINDOWS = 32  # windows per cache
CACHED_LISTS = 16  # runs whose lists are kept for further windows, a megabyte each at most
CACHED_BUCKETS = 2**22  # buckets of the cached sketches, 16 bytes each


class KeyCache:
    """Caches what is known of recently used windows; safe to share between threads."""

    def __init__(self, store: Store, blocks: BlockReader) -> None:
        self._store, self._blocks = store, blocks
        self._histories: LRUCache[KeyHistory] = LRUCache(CACHED_WINDOWS)
        self._listings: LRUCache[ListedKeys] = LRUCache(CACHED_WINDOWS)
        self._lists: LRUCache[Lists] = LRUCache(CACHED_LISTS)
        self._parts: LRUCache[list[LivePart]] = LRUCache(CACHED_WINDOWS)
        self._lives: LRUCache[LiveSide] = LRUCache(CACHED_WINDOWS)
        self._sketches: LRUCache[ECM] = LRUCache(CACHED_BUCKETS, lambda sketch: len(sketch.counts.kept))

    def history(self, view: KeysView, window: Window) -> KeyHistory:
        """The view's history in a window of ticks."""
        return self._histories.get(
            window, lambda: KeyHistory(self._blocks, view, window), topic=view.root, sources=(view,)
        )

    def listed(self, history: KeyHistory) -> ListedKeys:
        """The keys that the marks list in the window of the history."""
        return self._listings.get(
            history.window,
            lambda: listed_names(history, lambda marks: self._lists_of(history.view, marks)),
            topic=history.view.root,
            sources=history.view.runs,
        )

    def _lists_of(self, view: KeysView, marks: KeyMarks) -> Lists:
        return self._lists.get((view.root, marks.files[0].path), marks.heavy)

    def live(self, view: KeysView, window: KeyWindow, promise: KeyPromise) -> LiveSide:
        """The view's live side in a window."""
        key = window.whole, window.partial_ticks
        return self._lives.get(
            key,
            lambda: LiveSide.of(self._live_parts(view, window, promise), view.key),
            topic=view.root,
            sources=(view,),
        )

    def totals(self, view: KeysView, window: KeyWindow, promise: KeyPromise) -> LiveTotals:
        """How many live rows the view has in a window."""
        return LiveTotals.of(self._live_parts(view, window, promise))

    def _live_parts(self, view: KeysView, window: KeyWindow, promise: KeyPromise) -> list[LivePart]:
        key = window.whole, window.partial_ticks
        return self._parts.get(
            key,
            lambda: live_parts(view.live, window, promise, self._sketch),
            topic=view.root,
            sources=(view,),
        )

    def _sketch(self, live: LiveKeys) -> ECM:
        """The sketch of a ledger row whose tick the window covers only in part; read from the warehouse."""
        return self._sketches.get(
            (live.field, live.batches, live.tick), lambda: read_sketch(self._store, live)
        )
