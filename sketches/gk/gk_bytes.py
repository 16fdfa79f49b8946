"""The stored form of a GK sketch: kind b"GKQS", version 1, inside the envelope.

    offset  bytes  field (offsets in the payload; in stored bytes 20 more)
    0       8      eps, float64
    8       8      n, unsigned
    16      4      k, the number of tuples, unsigned
    20      1      dtype of the values: b"f" float64, b"i" int64
    21      1      g, width of a gap: 0, 1, 2, 4 or 8
    22      1      s, width of a spread: 0, 1, 2, 4 or 8
    23      8 * k  values, in order
    ...     g * k  gaps: rmin[j] - rmin[j - 1] - 1, with rmin[-1] = 0
    ...     s * k  spreads: rmax[j] - rmin[j]

All numbers are little endian. Gaps and spreads are unsigned, each at the narrowest width that holds the
largest of them; width 0 means that all are 0. Equal sketches have equal bytes.

Size: 23 + (8 + g + s) * k bytes of payload. Encoding and decoding take O(k) time.
"""

import struct

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.encoding.envelope import corrupt_payload, unwrap, wrap
from tidemark.sketches.encoding.varints import exact_sum
from tidemark.sketches.errors import BrokenInvariant
from tidemark.sketches.gk.gk_summary import GKSummary, check_summary
from tidemark.sketches.inputs import FLOAT64, INT64

GK_KIND = b"GKQS"
GK_VERSION = 1
_GK_HEADER = struct.Struct("<dQIcBB")
_DTYPES = {b"f": np.dtype("<f8"), b"i": np.dtype("<i8")}
_WIDTHS = (0, 1, 2, 4, 8)


def encode(summary: GKSummary, eps: float) -> bytes:
    """The stored form of a summary that keeps `eps`; the inverse of `decode`. O(k)."""
    dtype_code = b"f" if summary.values.dtype == FLOAT64 else b"i"
    gap_width, gaps = _narrow(np.diff(summary.rmin, prepend=0) - 1)
    spread_width, spreads = _narrow(summary.rmax - summary.rmin)
    header = _GK_HEADER.pack(eps, summary.n, len(summary.values), dtype_code, gap_width, spread_width)
    values = summary.values.astype(_DTYPES[dtype_code]).tobytes()
    return wrap(GK_KIND, GK_VERSION, header + values + gaps + spreads)


def decode(data: bytes) -> tuple[GKSummary, float]:
    """The summary and its eps; the inverse of `encode`. O(len(data)) time and memory.

    Raises CorruptSketch for damaged bytes and for intact bytes that break an invariant of the summary;
    WrongKind and NewerVersion as `unwrap` does.
    """
    _, payload = unwrap(GK_KIND, data, newest=GK_VERSION)
    if len(payload) < _GK_HEADER.size:
        raise corrupt_payload(
            len(payload), f"got a payload of {len(payload)} bytes, expected at least {_GK_HEADER.size}"
        )
    eps, n, k, dtype_code, gap_width, spread_width = _GK_HEADER.unpack_from(payload)
    if not 0 < eps < 0.5:
        raise corrupt_payload(0, f"got eps = {eps}, expected 0 < eps < 0.5")
    if n >= 2**63 or k > n or (k == 0) != (n == 0):
        raise corrupt_payload(
            8, f"got n = {n} and {k} tuples, expected n < 2**63 and 1 to n tuples, or n = 0 without tuples"
        )
    if dtype_code not in _DTYPES or gap_width not in _WIDTHS or spread_width not in _WIDTHS:
        raise corrupt_payload(
            20,
            f"got dtype {dtype_code!r}, widths {gap_width} and {spread_width}, "
            f"expected dtype f or i and widths of {_WIDTHS}",
        )
    gaps_offset = _GK_HEADER.size + 8 * k
    spreads_offset = gaps_offset + gap_width * k
    end = spreads_offset + spread_width * k
    if len(payload) != end:
        raise corrupt_payload(16, f"got a payload of {len(payload)} bytes, expected {end} for {k} tuples")
    values = np.frombuffer(payload, _DTYPES[dtype_code], k, _GK_HEADER.size)
    gaps = _widen(payload, k, gaps_offset, gap_width)
    spreads = _widen(payload, k, spreads_offset, spread_width)
    rmin, rmax = _positions(gaps, spreads, n, gaps_offset, spreads_offset)
    summary = GKSummary(values.astype(FLOAT64 if dtype_code == b"f" else INT64), rmin, rmax)
    try:
        check_summary(summary, eps)
    except BrokenInvariant as broken:
        raise corrupt_payload(_GK_HEADER.size, str(broken)) from broken
    return summary, eps


def _positions(
    gaps: NDArray[np.uint64], spreads: NDArray[np.uint64], n: int, gaps_offset: int, spreads_offset: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rmin and rmax of gaps and spreads.

    Their ranges are checked before numpy adds them, because sums of forged gaps would overflow.
    """
    last = exact_sum(gaps) + len(gaps)
    if last != n:
        raise corrupt_payload(gaps_offset, f"got gaps that end at rank {last}, expected n = {n}")
    rmin = np.cumsum(gaps.astype(np.int64) + 1)
    if np.any(spreads > (n - rmin).astype(np.uint64)):
        raise corrupt_payload(spreads_offset, f"got a tuple above rank n = {n}, expected none")
    return rmin, rmin + spreads.astype(np.int64)


def _narrow(numbers: NDArray[np.int64]) -> tuple[int, bytes]:
    """The smallest width that holds all numbers, and the numbers at that width."""
    largest = int(numbers.max(initial=0))
    width = next(w for w in _WIDTHS if largest < 256**w)
    return width, numbers.astype(f"<u{width}").tobytes() if width else b""


def _widen(payload: bytes, k: int, offset: int, width: int) -> NDArray[np.uint64]:
    """The k numbers of `width` bytes at `offset`; the inverse of `_narrow`."""
    if width == 0:
        return np.zeros(k, np.uint64)
    return np.frombuffer(payload, f"<u{width}", k, offset).astype(np.uint64)
