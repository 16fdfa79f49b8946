"""Skylines of objects whose attributes are spread over sites: who dominates whom, with few messages.

Model. Each of n sites holds a part of every attribute of every object, an integer; X, the sum of the parts,
is what counts, and more is better. Object a dominates b if X[a] >= X[b] in every attribute and > in some; the
skyline S is the objects that none dominates. Let T be the sum of what the sites reported last, and U_i the
change of a site's part since. From T alone every place derives conditions X[p, j] - X[m, j] >= least:

    b not in S                a witness a in S: every attribute with least = 0, the widest with least = 1
    a, b in S                 the attribute in which b is above a by the most, with least = 1
    a, b in S, equal in all   every attribute, both ways, with least = 0

A site is in the safe zone of a condition while n (U_i[p, j] - U_i[m, j]) + T[p, j] - T[m, j] - least >= 0. It
complains once it is not; then all sites report the objects of the condition, and all get their sums.

Guarantee. While no message is under way, `skyline` is that of X.
Proof. The mean over the sites of the left side is X[p, j] - X[m, j] - least, so while all are in the zones,
all conditions hold. Then no object of S dominates another one of S, and each object outside has a witness. If
one outside dominated a in S, so would its witness, by transitivity, and that is in S.
It comes to rest: a zone that is left has an object with U_i other than 0, and the report makes it 0.

Cost: a report takes O(n) messages of O(attributes) bytes an object. Conditions: at most |S| squared, and one
an attribute for each object outside, O(objects |S|) time after each report; an update looks at all of them.

Source: Papapetrou and Garofalakis, "Continuous fragmented skylines over distributed streams", ICDE 2014,
named in LEADS deliverable D3.4; zones as in geometric/zones.py, of one linear function each.
"""

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tidemark.sketches.encoding.envelope import corrupt
from tidemark.sketches.encoding.varints import decode_varints, encode_varints
from tidemark.sketches.errors import InvalidInput, Undelivered
from tidemark.sketches.inputs import INT64, as_column
from tidemark.sketches.sites.envelope import COORDINATOR
from tidemark.sketches.sites.machine import Message

Ints = NDArray[np.int64]
OUTSIDE, COLLECT, TOLD, ZONES = 1, 2, 3, 4
_HEADER = struct.Struct("<II")  # the number of the collection, and how many objects follow
MOST = 2**43  # of a value; n times a difference of two changes is then below 2**63
MOST_SITES = 2**16


@dataclass(frozen=True, slots=True, eq=False)
class Conditions:
    """X[above, attributes] - X[below, attributes] >= 0 or 1; room: by how much the sums exceed that."""

    above: Ints
    below: Ints
    attributes: Ints
    room: Ints


def skyline_of(values: Ints) -> Ints:
    """The objects that none dominates, ascending. values: shape (objects, attributes). O(objects |S|)."""
    found: list[int] = []
    for one in np.argsort(-values.sum(axis=1), kind="stable").tolist():  # none is dominated by a later one
        better = values[found]
        dominated = (better >= values[one]).all(axis=1) & (better > values[one]).any(axis=1)
        if not dominated.any():
            found.append(one)
    return np.sort(np.array(found, np.int64))


def conditions_of(values: Ints) -> Conditions:
    """The conditions of the sums of what was reported; see the module docstring."""
    objects, width = values.shape
    inside, found = skyline_of(values), []
    every = np.arange(width)
    for b in range(objects):
        others = inside[inside != b]
        ahead = values[others] - values[b]
        if b not in inside:
            witness = int(np.lexsort([ahead.sum(axis=1), ahead.min(axis=1)])[-1])
            a, widest = int(others[witness]), int(ahead[witness].argmax())
            found += [(a, b, j, int(j == widest)) for j in range(width)]
            continue
        by = -ahead  # b stays above each other one somewhere
        widest_of = by.argmax(axis=1)
        is_above = by[np.arange(len(others)), widest_of] > 0
        found += [(b, int(a), int(j), 1) for a, j in zip(others[is_above], widest_of[is_above], strict=True)]
        found += [(b, int(a), int(j), 0) for a in others[~is_above] for j in every]
    above, below, attributes, least = np.array(found, np.int64).reshape(-1, 4).T
    return Conditions(above, below, attributes, values[above, attributes] - values[below, attributes] - least)


class SkylineSite:
    """A site, a `Machine`; see the module docstring.

    values: integers, shape (objects, attributes), the site's part of each, also after it was started again.
    sites: their number, at most 2**16.

    Raises InvalidInput for other values, and for parts of 2**43 or more.
    """

    def __init__(self, values: ArrayLike, sites: int) -> None:
        self.values = _checked(values, sites).copy()
        self._sites = sites
        self._reported, self._totals = np.zeros_like(self.values), np.zeros_like(self.values)
        self._conditions: Conditions | None = None
        self._asked: dict[int, Ints] = {}  # what was told for a collection
        self._complained: set[int] = set()

    def update(self, objects: ArrayLike, attributes: ArrayLike, amounts: ArrayLike) -> list[Message]:
        """Adds amounts to parts, integers, shape (k,) each; returns what to send. O(k + conditions).

        Raises InvalidInput for objects and attributes that there are not, and where a part would be 2**43 or
        more; then nothing changes.
        """
        rows, columns = as_column(objects, INT64), as_column(attributes, INT64)
        after = self.values.copy()
        added = as_column(amounts, INT64)
        if (
            not rows.shape == columns.shape == added.shape
            or rows.ndim != 1
            or not ((rows >= 0) & (rows < len(after)) & (columns >= 0) & (columns < after.shape[1])).all()
        ):
            raise InvalidInput(
                f"got {rows.shape} objects, {columns.shape} attributes, {added.shape} amounts; expected one "
                f"of each for a change, of the {after.shape[0]} objects and {after.shape[1]} attributes"
            )
        if len(added) and np.abs(added.astype(np.float64)).sum() >= MOST:
            raise InvalidInput(f"got changes of 2**43 or more; expected parts below that: {_REMEDY}")
        np.add.at(after, (rows, columns), added)
        self.values = _checked(after, self._sites)
        return self._complaints()

    def receive(self, sender: int, kind: int, payload: bytes) -> list[Message]:
        """Takes a message of the coordinator; see `Machine`. CorruptSketch for a payload that is none."""
        del sender
        number, objects, totals = _opened(payload, self.values.shape, has_values=kind == ZONES)
        if kind == COLLECT:
            self._asked = {number: self.values[objects]}
            return [Message(COORDINATOR, TOLD, _payload(number, objects, self.values[objects]))]
        if number not in self._asked:
            return []
        self._reported[objects] = self._asked.pop(number)
        self._totals[objects] = totals
        self._conditions = conditions_of(self._totals)
        self._complained.clear()
        return self._complaints()

    def joined(self, peer: int, *, again: bool) -> list[Message]:
        """A coordinator asks by itself for what it needs; see `Machine`."""
        del peer, again
        return []

    def _complaints(self) -> list[Message]:
        """The objects of conditions whose zone the site has left, and of which it has not complained."""
        found = self._conditions
        if found is None:
            return []
        change = self.values - self._reported
        drift = change[found.above, found.attributes] - change[found.below, found.attributes]
        outside = self._sites * drift + found.room < 0
        objects = {*found.above[outside].tolist(), *found.below[outside].tolist()} - self._complained
        self._complained |= objects
        ascending = np.array(sorted(objects), np.int64)
        return [Message(COORDINATOR, OUTSIDE, _payload(0, ascending, None))] if objects else []


class SkylineCoordinator:
    """The coordinator, a `Machine`; see the module docstring.

    shape: (objects, attributes). sites: their number, at most 2**16. Raises InvalidInput for other numbers.
    """

    def __init__(self, shape: tuple[int, int], sites: int) -> None:
        self._totals = _checked(np.zeros(shape, np.int64), sites)
        self._parts = np.zeros((sites, *shape), np.int64)
        self._sites, self._number, self.collections = sites, 0, 0
        self._joined: set[int] = set()
        self._objects: Ints | None = None  # what is being collected
        self._told: set[int] = set()

    def skyline(self) -> Ints:
        """The objects that none dominates, ascending. O(objects |S|).

        Raises Undelivered if a site has not been heard of, or while sites report.
        """
        if self._objects is not None or not self.collections:
            raise Undelivered("got no report of all sites yet; expected one of each; ask again")
        return skyline_of(self._totals)

    def receive(self, sender: int, kind: int, payload: bytes) -> list[Message]:
        """Takes a message of a site; see `Machine`. CorruptSketch for a payload that is none."""
        number, objects, values = _opened(payload, self._totals.shape, has_values=kind == TOLD)
        if kind == OUTSIDE:  # while sites report it is of old zones: they look again at the new ones
            return self._collect(objects) if self._objects is None and self.collections else []
        if number != self._number or self._objects is None:
            return []
        self._parts[sender, objects] = values
        self._told.add(sender)
        if len(self._told) < self._sites:
            return []
        self._totals[objects] = self._parts[:, objects].sum(axis=0)
        self._objects = None
        self.collections += 1
        sums = _payload(number, objects, self._totals[objects])
        return [Message(site, ZONES, sums) for site in range(self._sites)]

    def joined(self, peer: int, *, again: bool) -> list[Message]:
        """Once all sites are there, and when one was started again, all report all; see `Machine`."""
        del again
        self._joined.add(peer)
        return self._collect(np.arange(len(self._totals))) if len(self._joined) == self._sites else []

    def _collect(self, objects: Ints) -> list[Message]:
        self._number, self._objects = self._number + 1, objects
        self._told.clear()
        return [Message(s, COLLECT, _payload(self._number, objects, None)) for s in range(self._sites)]


_REMEDY = "give smaller units"


def _checked(values: ArrayLike, sites: int) -> Ints:
    parts = as_column(values, INT64)
    if parts.ndim != 2 or not parts.size or not 1 <= sites <= MOST_SITES:
        raise InvalidInput(
            f"got values of shape {parts.shape} and {sites} sites; expected at least one object and "
            f"attribute, and 1 to {MOST_SITES} sites"
        )
    if parts.min() <= -MOST or parts.max() >= MOST:
        raise InvalidInput(f"got {parts.min()} to {parts.max()}; expected parts below 2**43: {_REMEDY}")
    return parts


def _payload(number: int, objects: Ints, values: Ints | None) -> bytes:
    """The number of the collection, how many objects, the objects, and their values, zigzag, as varints."""
    numbers = (
        objects if values is None else np.concatenate([objects, values.ravel() << 1 ^ values.ravel() >> 63])
    )
    return _HEADER.pack(number, len(objects)) + encode_varints(numbers.astype(np.uint64))


def _opened(payload: bytes, shape: tuple[int, ...], *, has_values: bool) -> tuple[int, Ints, Ints]:
    """(number, objects, values) of `_payload`; CorruptSketch for bytes that it does not make."""
    if len(payload) < _HEADER.size:
        raise corrupt(len(payload), f"got {len(payload)} bytes, expected those of a skyline")
    number, count = _HEADER.unpack_from(payload)
    numbers = decode_varints(payload[_HEADER.size :])
    objects, zigzag = numbers[:count].astype(np.int64), numbers[count:]
    ascending = (np.diff(objects, prepend=-1) > 0) & (objects < shape[0])
    if len(objects) != count or len(zigzag) != has_values * count * shape[1] or not ascending.all():
        raise corrupt(0, f"got {len(numbers)} numbers for {count} objects, expected some of {shape}")
    values = (zigzag >> np.uint64(1)).astype(np.int64) ^ -(zigzag & np.uint64(1)).astype(np.int64)
    return int(number), objects, values.reshape(-1, shape[1]) if has_values else values
