"""The stored form of a GK sketch: kind b"GKQS", version 1, inside the envelope.

    offset  bytes  field (offsets inside the payload; add 20 for the stored bytes)
    0       8      eps, float64
    8       8      n, unsigned
    16      4      k, the number of tuples, unsigned
    20      1      dtype of the values: b"f" float64, b"i" int64
    21      1      g, width of a gap: 0, 1, 2, 4 or 8
    22      1      s, width of a spread: 0, 1, 2, 4 or 8
    23      8 * k  values, in order
    ...     g * k  gaps: rmin[j] - rmin[j - 1] - 1, with rmin[-1] = 0
    ...     s * k  spreads: rmax[j] - rmin[j]

All little endian. Gaps and spreads are unsigned, each at the narrowest width that holds the largest of them;
width 0 means that all are 0. Equal sketches have equal bytes.
"""

import struct

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.encoding.envelope import PAYLOAD_OFFSET, corrupt, unwrap, wrap
from tidemark.sketches.encoding.varints import exact_sum
from tidemark.sketches.errors import BrokenInvariant, CorruptSketch
from tidemark.sketches.gk.gk_summary import Summary, check
from tidemark.sketches.inputs import FLOAT64, INT64

KIND = b"GKQS"
VERSION = 1
_HEADER = struct.Struct("<dQIcBB")
_DTYPES = {b"f": np.dtype("<f8"), b"i": np.dtype("<i8")}
_WIDTHS = (0, 1, 2, 4, 8)


def encode(summary: Summary, eps: float) -> bytes:
    """The stored form of a summary that keeps `eps`."""
    code = b"f" if summary.values.dtype == FLOAT64 else b"i"
    gap_width, gaps = _narrow(np.diff(summary.rmin, prepend=0) - 1)
    spread_width, spreads = _narrow(summary.rmax - summary.rmin)
    header = _HEADER.pack(eps, summary.n, len(summary.values), code, gap_width, spread_width)
    return wrap(KIND, VERSION, header + summary.values.astype(_DTYPES[code]).tobytes() + gaps + spreads)


def decode(data: bytes) -> tuple[Summary, float]:
    """The summary and its eps; the inverse of `encode`.

    Raises CorruptSketch for any damage, also for whole bytes whose content no sketch can have; WrongKind and
    NewerVersion as `unwrap` does.
    """
    _, payload = unwrap(KIND, data, newest=VERSION)
    if len(payload) < _HEADER.size:
        raise _damage(
            len(payload), f"the payload ends after {len(payload)}, expected at least {_HEADER.size}"
        )
    eps, n, k, code, gap_width, spread_width = _HEADER.unpack_from(payload)
    if not 0 < eps < 0.5:
        raise _damage(0, f"got eps = {eps}, expected it between 0 and 0.5")
    if n >= 2**63 or k > n or (k == 0) != (n == 0):
        raise _damage(8, f"got n = {n} and {k} tuples, expected 1 to n tuples and n < 2**63, or neither")
    if code not in _DTYPES or gap_width not in _WIDTHS or spread_width not in _WIDTHS:
        raise _damage(
            20, f"got dtype {code!r}, widths {gap_width}, {spread_width}, expected f or i, and {_WIDTHS}"
        )
    gaps_at = _HEADER.size + 8 * k
    spreads_at = gaps_at + gap_width * k
    end = spreads_at + spread_width * k
    if len(payload) != end:
        raise _damage(16, f"got a payload of {len(payload)} bytes, expected {end} for {k} tuples")
    values = np.frombuffer(payload, _DTYPES[code], k, _HEADER.size)
    gaps = _widen(payload, k, gaps_at, gap_width)
    spreads = _widen(payload, k, spreads_at, spread_width)
    rmin, rmax = _ranks(gaps, spreads, n, gaps_at, spreads_at)
    summary = Summary(values.astype(FLOAT64 if code == b"f" else INT64), rmin, rmax)
    try:
        check(summary, eps)
    except BrokenInvariant as broken:
        raise _damage(_HEADER.size, str(broken)) from broken
    return summary, eps


def _ranks(
    gaps: NDArray[np.uint64], spreads: NDArray[np.uint64], n: int, gaps_at: int, spreads_at: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rmin and rmax of gaps and spreads, proved to fit before numpy adds: hostile gaps would wrap."""
    last = exact_sum(gaps) + len(gaps)
    if last != n:
        raise _damage(gaps_at, f"got gaps that end at rank {last}, expected n = {n}")
    rmin = np.cumsum(gaps.astype(np.int64) + 1)
    if np.any(spreads > (n - rmin).astype(np.uint64)):
        raise _damage(spreads_at, f"got a tuple above rank n = {n}, expected none")
    return rmin, rmin + spreads.astype(np.int64)


def _narrow(numbers: NDArray[np.int64]) -> tuple[int, bytes]:
    largest = int(numbers.max(initial=0))
    width = next(w for w in _WIDTHS if largest < 256**w)
    return width, numbers.astype(f"<u{width}").tobytes() if width else b""


def _widen(payload: bytes, k: int, offset: int, width: int) -> NDArray[np.uint64]:
    if width == 0:
        return np.zeros(k, np.uint64)
    return np.frombuffer(payload, f"<u{width}", k, offset).astype(np.uint64)


def _damage(offset: int, problem: str) -> CorruptSketch:
    return corrupt(PAYLOAD_OFFSET + offset, problem)
