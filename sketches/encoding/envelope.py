"""The byte format around every stored sketch: it names the content and detects damage.

    offset  bytes  field
    0       4      magic, b"TMSK"
    4       4      kind, four ASCII bytes that name the sketch
    8       4      version of this kind's payload, unsigned, from 1
    12      8      length of the payload, unsigned
    20      length payload
    20 + length 4  CRC-32 (zlib) of every byte before it

All numbers are little endian. The envelope has no padding and nothing follows it, so its header determines
the total length. The checksum is verified before kind and version are used: a flipped bit is reported as
damage, never as a newer version. CRC-32 detects every change of a single byte. It does not protect against
forged bytes, so the decoder of each payload still checks every field.
"""

import struct
import zlib
from typing import Any

from tidemark.sketches.errors import CorruptSketch, InvalidInput, NewerVersion, WrongKind

MAGIC = b"TMSK"
_ENVELOPE_HEADER = struct.Struct("<4s4sIQ")
_CHECKSUM = struct.Struct("<I")
PAYLOAD_OFFSET = _ENVELOPE_HEADER.size


def wrap(kind: bytes, version: int, payload: bytes) -> bytes:
    """The stored form of one payload. O(len(payload)).

    kind: four bytes. version: of the payload's format, from 1 to 2**32 - 1.

    Raises InvalidInput for another kind or version.
    """
    if len(kind) != 4 or not 1 <= version < 2**32:
        raise InvalidInput(f"got kind {kind!r} and version {version}; expected 4 bytes, and 1 to 2**32 - 1")
    body = _ENVELOPE_HEADER.pack(MAGIC, kind, version, len(payload)) + payload
    return body + _CHECKSUM.pack(zlib.crc32(body))


def unwrap(kind: bytes, data: bytes | bytearray | memoryview, *, newest: int = 1) -> tuple[int, bytes]:
    """(version, payload) of stored bytes; the inverse of `wrap`. O(len(data)).

    kind: the kind that is expected. newest: the highest payload version that the caller can read.

    Raises CorruptSketch if a byte is missing, changed or added, WrongKind if the bytes contain a sketch of
    another kind, NewerVersion if the version is above `newest`, InvalidInput if `data` is not bytes.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidInput(f"got {type(data).__name__}; expected the bytes that to_bytes() returned")
    data = bytes(data)
    stored_kind, version = _checked_header(data)
    if stored_kind != kind:
        raise WrongKind(
            f"got a sketch of kind {stored_kind!r}, expected {kind!r}; read it with the class of its kind"
        )
    if version > newest:
        raise NewerVersion(
            f"got format version {version} of kind {kind!r}, expected at most {newest}; "
            "a newer release of tidemark wrote it: upgrade tidemark on this machine"
        )
    return version, data[PAYLOAD_OFFSET : -_CHECKSUM.size]


def _checked_header(data: bytes) -> tuple[bytes, int]:
    """(kind, version) of stored bytes; CorruptSketch unless length, magic and checksum are right."""
    smallest = PAYLOAD_OFFSET + _CHECKSUM.size
    if len(data) < smallest:
        raise corrupt(len(data), f"got {len(data)} bytes, expected at least {smallest}")
    magic, kind, version, length = _ENVELOPE_HEADER.unpack_from(data)
    if magic != MAGIC:
        raise corrupt(0, f"got {magic!r}, expected the magic {MAGIC!r}")
    end = PAYLOAD_OFFSET + length
    if len(data) != end + _CHECKSUM.size:
        raise corrupt(
            min(len(data), end + _CHECKSUM.size),
            f"got {len(data)} bytes, expected {end + _CHECKSUM.size} by the length field at byte 12",
        )
    (stored,) = _CHECKSUM.unpack_from(data, end)
    computed = zlib.crc32(data[:end])
    if stored != computed:
        raise corrupt(end, f"got the checksum {stored:#010x}, expected {computed:#010x}")
    if version < 1:
        raise corrupt(8, "got version 0, expected 1 or more")
    return kind, version


def corrupt(offset: int, problem: str) -> CorruptSketch:
    """The error for damage found at `offset` of the stored bytes."""
    return CorruptSketch(f"damaged at byte {offset}: {problem}; restore these bytes or rebuild the sketch")


def corrupt_payload(offset: int, problem: str) -> CorruptSketch:
    """The error for damage found at `offset` of the payload."""
    return corrupt(PAYLOAD_OFFSET + offset, problem)


def unpacked(form: struct.Struct, payload: bytes) -> tuple[Any, ...]:
    """The numbers of a payload of fixed size. CorruptSketch for another size."""
    if len(payload) != form.size:
        raise corrupt(min(len(payload), form.size), f"got {len(payload)} bytes, expected {form.size}")
    return form.unpack(payload)
