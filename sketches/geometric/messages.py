"""What sites and the coordinator of a monitoring send each other, and the bytes of it.

    kind       payload                                              from, to                     bytes
    VIOLATED   a condition and its value, outside of the zone       a site                       12
    ASK        a condition                                          the coordinator to a site    4
    VALUE      the condition and its value                          the site, in answer          12
    SHIFT      what to add to the value, and the state of a cell    the coordinator to a site    13
    COLLECT    the number of the collection                         the coordinator to all       4
    VECTOR     that number, the site's time, and its estimates      every site, in answer        12 + varints
    RESTART    the sum of the estimates                             the coordinator to all       varints

Estimates are multiples of 1/2, and sent doubled, as varints (encoding/varints.py): 1 to 3 bytes for most.
A condition is named by a number: conditions on whole vectors come first, then those on cells, window by
window.
"""

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.encoding.envelope import unpacked
from tidemark.sketches.encoding.varints import decode_varints, encode_varints
from tidemark.sketches.errors import CorruptSketch
from tidemark.sketches.sites.machine import Message

Floats = NDArray[np.float64]

VIOLATED, ASK, VALUE, SHIFT, COLLECT, VECTOR, RESTART = range(1, 8)
_VALUE, _NUMBER = struct.Struct("<Id"), struct.Struct("<I")
# The numbers of each kind. The estimates of VECTOR and RESTART follow them.
_FORMS = {
    VIOLATED: _VALUE,
    ASK: _NUMBER,
    VALUE: _VALUE,
    SHIFT: struct.Struct("<IdB"),
    COLLECT: _NUMBER,
    VECTOR: struct.Struct("<Iq"),
    RESTART: struct.Struct(""),
}


def message(to: int, kind: int, *numbers: float, estimates: Floats | None = None) -> Message:
    """A message: the numbers of its kind, in the order of the table above, and its estimates."""
    body = b"" if estimates is None else encode_varints((2 * estimates).astype(np.uint64).ravel())
    return Message(to, kind, _FORMS[kind].pack(*numbers) + body)


def numbers_of(kind: int, payload: bytes) -> tuple[Any, ...]:
    """The numbers of a message. CorruptSketch for a payload of another size."""
    form = _FORMS[kind]
    return unpacked(form, payload[: form.size] if kind in {VECTOR, RESTART} else payload)


def estimates_of(kind: int, payload: bytes, shape: tuple[int, ...]) -> Floats:
    """The estimates of VECTOR and RESTART. CorruptSketch for others than of this shape."""
    numbers = decode_varints(payload[_FORMS[kind].size :])
    if len(numbers) != np.prod(shape):
        raise CorruptSketch(
            f"got {len(numbers)} estimates; expected the shape {shape}: one layout at all places"
        )
    return numbers.astype(np.float64).reshape(shape) / 2


def check_condition(condition: int, conditions: int) -> None:
    """CorruptSketch for a number that is none of so many conditions."""
    if condition >= conditions:
        raise CorruptSketch(
            f"got the condition {condition}, expected one of {conditions}: one layout at all places"
        )
