"""What Spark's Java process says while it starts: held back, and shown only where it does not start.

Spark's resolver prints a page at each start, even where all is fetched already, and Java and Spark warn of
what is no concern here. Once Java is up, what it says is passed on as it comes.

One thread alone reads Java's standard error. Whoever started Java tells it how that ended by a line in the
same pipe, so what Java said before is always read before.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

_STARTED, _FAILED = b"\0started\n", b"\0failed\n"
_STDERR = 2


@dataclass(frozen=True, slots=True)
class Said:
    """Java's standard error goes into `sink`; `lines` has what it said until it was up."""

    sink: int
    lines: list[bytes] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def drop(self) -> None:
        """Java is up: what it said is no concern, what it says from now on is passed on."""
        self._end(_STARTED)

    def show(self) -> str:
        """Java has failed: what it said is shown, and returned."""
        self._end(_FAILED)
        return b"".join(self.lines).decode(errors="replace")

    def _end(self, how: bytes) -> None:
        if not self.ended.is_set():
            os.write(self.sink, how)
            self.ended.wait()


@contextmanager
def held_back(hear: Callable[[str], None]) -> Iterator[Said]:
    """Holds Java's standard error while the work inside starts it; an error inside shows what it said.

    hear: is told each line while it is held.
    """
    source, sink = os.pipe()
    said = Said(sink)
    threading.Thread(target=_read, args=(source, said, hear), daemon=True).start()
    try:
        yield said
        said.drop()
    except Exception:
        said.show()
        raise
    finally:
        os.close(sink)


def _read(source: int, said: Said, hear: Callable[[str], None]) -> None:
    with os.fdopen(source, "rb") as stderr:
        for line in stderr:
            if said.ended.is_set():
                _pass_on(line)
            elif line.endswith((_STARTED, _FAILED)):  # below it may be a line that Java has not ended
                said.lines.append(line.removesuffix(_STARTED).removesuffix(_FAILED))
                if line.endswith(_FAILED):
                    _pass_on(b"".join(said.lines))
                said.ended.set()
            else:
                said.lines.append(line)
                hear(line.decode(errors="replace").rstrip())


def _pass_on(text: bytes) -> None:
    with suppress(OSError):  # where nobody reads, Java is not to wait
        os.write(_STDERR, text)
