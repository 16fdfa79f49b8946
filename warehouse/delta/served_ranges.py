"""The messages by which a client of `tidemark serve` reads the files of a warehouse.

    POST files/ranges   {"warehouse": NAME, "ranges": [[path, start, stop], ...]}, stop null: to the end
                        answered by a part for each range, in order: a byte (`Part`), the length in 8 bytes,
                        little-endian, and the bytes of the file
    POST files/names    {"warehouse": NAME, "folder": path}
                        answered by {"files": [[path, bytes, changed], ...]}, of all files below the folder;
                        changed is in nanoseconds since 1970, or null

An answer has the header VERSION_HEADER. It has at most ANSWER_BYTES of files: where the ranges have more, it
is cut at exactly so many, and the client asks for the rest. So each of several requests brings bytes, and
both sides know how much memory an answer takes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum

from tidemark.warehouse.delta.round_trips import ByteRange

VERSION_HEADER, VERSION = "tidemark-files", "1"
ANSWER_BYTES = 2**23
MOST_RANGES = 1_000  # of a request
NAMES_BYTES = 2**26  # of a list of files
_HEAD = struct.Struct("<BQ")


class Part(IntEnum):
    """What an answer has of a range: nothing (there is no such file), all of it, or only its begin."""

    ABSENT = 0
    WHOLE = 1
    CUT = 2


Answered = tuple[Part, bytes]


def most_bytes(ranges: int) -> int:
    """The bytes of the longest answer to so many ranges."""
    return ANSWER_BYTES + ranges * _HEAD.size


def encode(parts: Iterable[Answered]) -> bytes:
    """The answer with these parts."""
    return b"".join(piece for kind, content in parts for piece in (_HEAD.pack(kind, len(content)), content))


def decode(answer: bytes, wanted: Sequence[ByteRange]) -> list[Answered]:
    """The parts of an answer to these ranges; ValueError for bytes that are no such answer."""
    view, place, parts = memoryview(answer), 0, list[Answered]()
    for one in wanted:
        if place + _HEAD.size > len(view):
            raise ValueError(f"it ends before the part of {one.path!r}")
        number, length = _HEAD.unpack_from(view, place)
        place += _HEAD.size
        kind = Part(number)  # ValueError for another number
        if length > len(view) - place:
            raise ValueError(f"it has {len(view) - place:,} of {length:,} bytes of {one.path!r}")
        if (kind is Part.ABSENT and length) or (one.stop is not None and length > one.size):
            raise ValueError(f"it has {length:,} bytes of {one.path!r}, more than were asked for")
        parts.append((kind, bytes(view[place : place + length])))
        place += length
    if place != len(view):
        raise ValueError(f"it has {len(view) - place:,} bytes after its end")
    if (
        any(kind is Part.CUT for kind, _ in parts)
        and sum(len(content) for _, content in parts) != ANSWER_BYTES
    ):
        raise ValueError("it is cut before its limit")
    return parts
