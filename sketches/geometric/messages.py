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

import numpy as np
from numpy.typing import NDArray

from tidemark.sketches.encoding.envelope import unpacked
from tidemark.sketches.encoding.varints import decode_varints, encode_varints
from tidemark.sketches.errors import CorruptSketch
from tidemark.sketches.sites.envelope import COORDINATOR
from tidemark.sketches.sites.machine import Message

Floats = NDArray[np.float64]

VIOLATED, ASK, VALUE, SHIFT, COLLECT, VECTOR, RESTART = range(1, 8)
_VALUE, _NUMBER = struct.Struct("<Id"), struct.Struct("<I")
_SHIFT, _VECTOR = struct.Struct("<IdB"), struct.Struct("<Iq")


def violated(condition: int, value: float) -> Message:
    """The message of a site that is outside of a zone."""
    return Message(COORDINATOR, VIOLATED, _VALUE.pack(condition, value))


def value(condition: int, found: float) -> Message:
    """The answer to `ask`."""
    return Message(COORDINATOR, VALUE, _VALUE.pack(condition, found))


def value_of(payload: bytes) -> tuple[int, float]:
    """(condition, value) of VIOLATED and VALUE."""
    condition, found = unpacked(_VALUE, payload)
    return int(condition), float(found)


def ask(site: int, condition: int) -> Message:
    """Asks a site for the value of a condition."""
    return Message(site, ASK, _NUMBER.pack(condition))


def collect(site: int, number: int) -> Message:
    """Asks a site for its vector."""
    return Message(site, COLLECT, _NUMBER.pack(number))


def number_of(payload: bytes) -> int:
    """The number of ASK and COLLECT."""
    return int(unpacked(_NUMBER, payload)[0])


def shift(site: int, condition: int, amount: float, state: int) -> Message:
    """Lends a site room, or takes it."""
    return Message(site, SHIFT, _SHIFT.pack(condition, amount, state))


def shift_of(payload: bytes) -> tuple[int, float, int]:
    """(condition, amount, state) of SHIFT."""
    condition, amount, state = unpacked(_SHIFT, payload)
    return int(condition), float(amount), int(state)


def vector(number: int, now: int, values: Floats) -> Message:
    """The answer to `collect`."""
    return Message(COORDINATOR, VECTOR, _VECTOR.pack(number, now) + _doubled(values))


def vector_of(payload: bytes, shape: tuple[int, ...]) -> tuple[int, int, Floats]:
    """(number, time, estimates) of VECTOR."""
    number, now = unpacked(_VECTOR, payload[: _VECTOR.size])
    return int(number), int(now), _halves(payload[_VECTOR.size :], shape)


def restart(site: int, total: Floats) -> Message:
    """Begins anew with the sum of all vectors."""
    return Message(site, RESTART, _doubled(total))


def total_of(payload: bytes, shape: tuple[int, ...]) -> Floats:
    """The sum of RESTART."""
    return _halves(payload, shape)


def checked_condition(condition: int, conditions: int) -> int:
    """The number of a condition, of so many. CorruptSketch for another one."""
    if condition >= conditions:
        raise CorruptSketch(
            f"got the condition {condition}, expected one of {conditions}: one layout at all places"
        )
    return condition


def _doubled(values: Floats) -> bytes:
    return encode_varints((2 * values).astype(np.uint64).ravel())


def _halves(data: bytes, shape: tuple[int, ...]) -> Floats:
    numbers = decode_varints(data)
    if len(numbers) != np.prod(shape):
        raise CorruptSketch(
            f"got {len(numbers)} estimates; expected the shape {shape}: one layout at all places"
        )
    return numbers.astype(np.float64).reshape(shape) / 2
