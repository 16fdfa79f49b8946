"""Hides the standard error of Spark's Java process while it starts; prints it only if the start fails.

Spark's resolver prints a page at each start, even if nothing is fetched, and Java and Spark print warnings
that do not matter here. After the start, all output of Java is passed on as it comes.

Only one thread reads the pipe. The caller reports the end of the start by a marker line in the same pipe, so
everything that Java wrote before is always read before the marker.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

_STARTED, _FAILED = b"\0started\n", b"\0failed\n"
_STDERR = 2


@dataclass(frozen=True, slots=True)
class StartOutput:
    """Java writes its standard error to the descriptor `sink`; `lines` are those written during the start."""

    sink: int
    lines: list[bytes] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def drop(self) -> None:
        """Call when Java has started: discards the lines so far, and passes on all later output."""
        self._end(_STARTED)

    def show(self) -> str:
        """Call when Java has failed: prints the lines so far to stderr and returns them."""
        self._end(_FAILED)
        return b"".join(self.lines).decode(errors="replace")

    def _end(self, marker: bytes) -> None:
        if not self.ended.is_set():
            os.write(self.sink, marker)
            self.ended.wait()


@contextmanager
def hold_back() -> Iterator[StartOutput]:
    """Holds back Java's standard error while the `with` block starts Java; an error there prints it."""
    source, sink = os.pipe()
    output = StartOutput(sink)
    threading.Thread(target=_read, args=(source, output), daemon=True).start()
    try:
        yield output
        output.drop()
    except Exception:
        output.show()
        raise
    finally:
        os.close(sink)


def _read(source: int, output: StartOutput) -> None:
    with os.fdopen(source, "rb") as stderr:
        for line in stderr:
            if output.ended.is_set():
                _pass_on(line)
            elif line.endswith((_STARTED, _FAILED)):  # the marker may follow an unfinished line of Java
                output.lines.append(line.removesuffix(_STARTED).removesuffix(_FAILED))
                if line.endswith(_FAILED):
                    _pass_on(b"".join(output.lines))
                output.ended.set()
            else:
                output.lines.append(line)


def _pass_on(text: bytes) -> None:
    with suppress(OSError):  # a closed stderr must not block Java
        os.write(_STDERR, text)
