"""What marks and ledger say of keys in windows, laid out once for many questions.

Listings are of the runs, which stay for days; the rest is of one view, which the next batch ends.
"""

from __future__ import annotations

from tidemark.query.keys.key_blocks import KeyHistory
from tidemark.query.keys.key_windows import KeyWindow
from tidemark.query.keys.listed_keys import Listed, listed_names
from tidemark.query.keys.live_keys import LiveSide, parts_of
from tidemark.query.reading.block_reader import BlockReader
from tidemark.query.reading.memory_cache import Recent
from tidemark.sketches import ECM
from tidemark.warehouse.columns.ticks import Window
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.ledger.key_summaries import KeyPromise
from tidemark.warehouse.ledger.live_summaries import LiveKeys, read_sketch
from tidemark.warehouse.snapshots.snapshot import KeysView

LAID_OUT = 32  # windows of which either side is kept
BUCKETS = 2**22  # of the sketches that are kept, 16 bytes each


class KeyMemory:
    """Remembers what was laid out for the newest runs, and for the newest view; threads may share it."""

    def __init__(self, store: Store, blocks: BlockReader) -> None:
        self._store, self._blocks = store, blocks
        self._histories: Recent[KeyHistory] = Recent(LAID_OUT)
        self._listings: Recent[Listed] = Recent(LAID_OUT)
        self._lives: Recent[LiveSide] = Recent(LAID_OUT)
        self._sketches: Recent[ECM] = Recent(BUCKETS, lambda one: len(one.counts.kept))

    def history(self, view: KeysView, window: Window) -> KeyHistory:
        """The view's history in a window of ticks."""
        return self._histories.get(window, lambda: KeyHistory(self._blocks, view, window), of=(view,))

    def listed(self, history: KeyHistory) -> Listed:
        """What the marks list of it."""
        return self._listings.get(history.window, lambda: listed_names(history), of=history.view.runs)

    def live(self, view: KeysView, window: KeyWindow, promise: KeyPromise) -> LiveSide:
        """The view's live side in a window."""

        def lay_out() -> LiveSide:
            return LiveSide.of(parts_of(view.live, window, promise, self._sketch), view.key)

        return self._lives.get((window.whole, window.cuts), lay_out, of=(view,))

    def _sketch(self, live: LiveKeys) -> ECM:
        """The sketch of a ledger row that a window cuts."""
        return self._sketches.get((live.batches, live.tick), lambda: read_sketch(self._store, live))
