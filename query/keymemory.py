"""What marks and ledger say of keys in windows, laid out once for many questions.

Listings are of the runs, which stay for days; the rest is of one view, which the next batch ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from query.blocks import BlockReader
from query.keyblocks import KeyHistory
from query.keys import Listed, listed_names
from query.keywindows import KeyWindow
from query.livekeys import LiveSide, Sketches, parts_of
from warehouse.keysummaries import KeyPromise
from warehouse.snapshot import KeysView
from warehouse.storage import Store
from warehouse.ticks import Window

LAID_OUT = 32  # windows of which either side is kept

T = TypeVar("T")


class KeyMemory:
    """Remembers what was laid out for the newest runs, and for the newest view; threads may share it."""

    def __init__(self, store: Store, blocks: BlockReader) -> None:
        self._blocks, self._sketches = blocks, Sketches(store)
        self._histories, self._listings, self._lives = _Kept(), _Kept(), _Kept()

    def history(self, view: KeysView, window: Window) -> KeyHistory:
        """The view's history in a window of ticks."""
        return self._histories.get((view,), window, lambda: KeyHistory(self._blocks, view, window))

    def listed(self, history: KeyHistory) -> Listed:
        """What the marks list of it."""
        return self._listings.get(history.view.runs, history.window, lambda: listed_names(history))

    def live(self, view: KeysView, window: KeyWindow, promise: KeyPromise) -> LiveSide:
        """The view's live side in a window."""

        def lay_out() -> LiveSide:
            return LiveSide.of(parts_of(view.live, window, promise, self._sketches.of), view.key)

        return self._lives.get((view,), (window.whole, window.cuts), lay_out)


class _Kept:
    """What was made of some objects, by name, until others come."""

    def __init__(self) -> None:
        self._of: Sequence[object] = ()
        self._made: dict[Hashable, Any] = {}
        self._lock = threading.Lock()

    def get(self, of: Sequence[object], name: Hashable, make: Callable[[], T]) -> T:
        with self._lock:
            if len(of) != len(self._of) or any(a is not b for a, b in zip(of, self._of, strict=True)):
                self._of, self._made = of, {}
            made = self._made
        if name not in made:
            if len(made) >= LAID_OUT:
                made.clear()
            made[name] = make()
        found: T = made[name]
        return found
