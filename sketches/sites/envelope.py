"""An envelope: a message between two places of an exchange, with a keyed hash over all of it.

    offset  bytes  field
    0       4      magic, b"TMSX"
    4       1      version of this format, 1
    5       1      kind: what the payload is, in the words of the algorithm
    6       2      length of the topic
    8       4      sender: the number of a site, or COORDINATOR
    12      4      receiver
    16      8      incarnation of the sender, from 1
    24      8      incarnation of the receiver that it is for; 0 if the sender does not know one
    32      8      round: the number of the message on this link, from 1; 0 if there is nothing to deliver
    40      8      the last round that the sender took from the receiver
    48      4      length of the payload
    52             topic in UTF-8, then the payload
    ...     16     BLAKE2b of every byte before it, with the secret of the exchange as its key

All numbers are unsigned and little endian. Nothing follows, so the header determines the length.

Guarantee: nobody without the secret can make or change an envelope, except with probability 2**-128 a try. A
place with the secret can speak for every place: a false count of an authentic site is outside of the promise.
That a message is new, and for whom, is what the endpoint checks.

Source: Aumasson, Neves, Wilcox-O'Hearn and Winnerlein, "BLAKE2: simpler, smaller, fast as MD5", ACNS 2013.
"""

import hmac
import struct
from dataclasses import dataclass
from hashlib import blake2b

from tidemark.sketches.errors import InvalidInput, RefusedMessage

COORDINATOR = 2**32 - 1
MOST_PAYLOAD = 2**30
_MAGIC = b"TMSX"
_HEADER = struct.Struct("<4sBBHIIQQQQI")
_HASH_BYTES = 16
_RECEIVER, _ROUND = slice(12, 16), slice(32, 40)
_PAYLOAD_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message and its addresses; the fields are those of the module docstring."""

    topic: str
    sender: int
    receiver: int
    incarnation: int
    receiver_incarnation: int
    round: int
    acknowledged: int
    kind: int
    payload: bytes

    def seal(self, secret: bytes) -> bytes:
        """Its bytes. O(bytes)."""
        topic = self.topic.encode()
        header = _HEADER.pack(
            _MAGIC,
            1,
            self.kind,
            len(topic),
            self.sender,
            self.receiver,
            self.incarnation,
            self.receiver_incarnation,
            self.round,
            self.acknowledged,
            len(self.payload),
        )
        body = header + topic + self.payload
        return body + _keyed_hash(secret, body)


def open_envelope(secret: bytes, data: bytes) -> Envelope:
    """The envelope of sealed bytes. O(bytes). RefusedMessage unless the secret's hash is right."""
    body, stored = data[:-_HASH_BYTES], data[-_HASH_BYTES:]
    if len(body) < _HEADER.size or not hmac.compare_digest(_keyed_hash(secret, body), stored):
        raise RefusedMessage(
            f"got {len(data)} bytes without the exchange's keyed hash; they are cut, changed, or not from a "
            "place that has the secret"
        )
    magic, version, kind, topic_bytes, *addresses = _HEADER.unpack_from(body)
    sender, receiver, incarnation, receiver_incarnation, number, acknowledged, payload_bytes = addresses
    payload_at = _HEADER.size + topic_bytes
    if magic != _MAGIC or version != 1 or len(body) != payload_at + payload_bytes:
        raise RefusedMessage(
            f"got an envelope {magic!r} of version {version}, expected version 1 of {_MAGIC!r}; "
            "run the same release of tidemark at all places"
        )
    return Envelope(
        body[_HEADER.size : payload_at].decode(),
        sender,
        receiver,
        incarnation,
        receiver_incarnation,
        number,
        acknowledged,
        kind,
        body[payload_at:],
    )


def envelope_size(topic: int, payload: int = 0) -> int:
    """The bytes of an envelope, by those of its topic and of its payload."""
    return _HEADER.size + topic + payload + _HASH_BYTES


def payload_size(data: bytes) -> int:
    """The bytes of the payload of sealed bytes, by the header, which is not checked. O(1)."""
    return int(_PAYLOAD_LENGTH.unpack_from(data, _HEADER.size - 4)[0])


def has_message(data: bytes) -> bool:
    """Whether sealed bytes have something to deliver, by the header, which is not checked. O(1)."""
    return any(data[_ROUND])


def receiver_of(data: bytes) -> int | None:
    """The number of the receiver, by the header, which is not checked; None if there is none. O(1)."""
    return int.from_bytes(data[_RECEIVER], "little") if len(data) >= _HEADER.size else None


def envelopes_of(data: bytes) -> list[bytes]:
    """The sealed envelopes that lie one after the other, none of them checked; a last incomplete one too."""
    found, at = [], 0
    while at < len(data):
        size = len(data) - at
        if size >= _HEADER.size:
            topic_bytes = int.from_bytes(data[at + 6 : at + 8], "little")
            size = envelope_size(topic_bytes, payload_size(data[at : at + _HEADER.size]))
        found.append(data[at : at + size])
        at += size
    return found


def checked_secret(secret: bytes) -> bytes:
    """`secret`; InvalidInput unless it is 16 to 64 bytes."""
    if not isinstance(secret, bytes) or not 16 <= len(secret) <= 64:
        given = f"{len(secret)} bytes" if isinstance(secret, bytes) else type(secret).__name__
        raise InvalidInput(
            f"got a secret of {given}; expected 16 to 64 random bytes, such as secrets.token_bytes(32)"
        )
    return secret


def _keyed_hash(secret: bytes, body: bytes) -> bytes:
    return blake2b(body, digest_size=_HASH_BYTES, key=secret).digest()
