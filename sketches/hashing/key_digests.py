"""Digests: from a column of keys to 64-bit numbers that are the same on every machine and in every version.

    integers, booleans, dates, times   the number itself (dates in days, times in their own unit, since 1970)
    text and bytes                     XXH3 with 64 bits of the UTF-8 text or of the bytes, with a seed

An integer needs no mixing: the row hashes take any two different numbers apart equally well. A key has one
digest whatever holds it: numpy, Arrow, a list; int8 or int64; text or dictionary. Python's hash() is
another in each process and is never used. Text and bytes of one content share a digest; so do -1 and 2**64
- 1.

NULL is no key and is refused: the caller counts it apart. So are floats, where 0.0, -0.0 and NaN leave open
what a key is.
"""

from datetime import date
from typing import Any

import numpy as np
import xxhash

from tidemark.sketches.errors import InvalidInput
from tidemark.sketches.hashing.row_hashes import Digests

_ARROW_TEXT = {"string", "large_string", "string_view", "binary", "large_binary", "binary_view"}


def digest(keys: Any, *, seed: int = 0) -> Digests:
    """The digests of a column of keys: a numpy array, an Arrow array or chunked array, or a sequence.

    Every sketch that is asked or merged together takes the same `seed`, below 2**64. A text that repeats is
    hashed once. InvalidInput for NULL, NaT, floats and types that are no keys.
    """
    if not 0 <= seed < 2**64:
        raise InvalidInput(f"got seed = {seed}; expected an integer from 0 to 2**64 - 1")
    if type(keys).__module__.partition(".")[0] == "pyarrow":
        return _of_arrow(keys, seed)
    given = keys if isinstance(keys, np.ndarray) else _as_array(keys)
    if isinstance(given, np.ma.MaskedArray):
        raise InvalidInput("got a masked array; expected keys only; pass array.compressed()")
    if given.ndim != 1:
        raise InvalidInput(f"got keys of shape {given.shape}; expected one dimension; ravel them")
    kind = given.dtype.kind
    if kind in "iub":
        return given.astype(np.uint64) if kind != "i" else given.astype(np.int64).view(np.uint64)
    if kind == "M":
        if np.isnat(given).any():
            raise _null("NaT")
        return given.astype(np.int64).view(np.uint64)
    if kind in "USTO":
        return _of_objects(given.tolist(), seed)
    raise InvalidInput(
        f"got keys of dtype {given.dtype}; expected integers, booleans, dates, times, text or bytes"
    )


def digest_one(key: Any, *, seed: int = 0) -> int:
    """The digest of one key, as `digest` gives it for a column."""
    return int(digest([key], seed=seed)[0])


def _of_arrow(keys: Any, seed: int) -> Digests:
    import pyarrow as pa

    if keys.null_count:
        raise _null(f"{keys.null_count} NULL")
    if isinstance(keys, pa.ChunkedArray):
        parts = [_of_arrow(chunk, seed) for chunk in keys.chunks]
        return np.concatenate([np.empty(0, np.uint64), *parts])
    kind = keys.type
    if pa.types.is_dictionary(kind):
        return _of_dictionary(keys, seed)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return digest(keys.to_numpy(zero_copy_only=False), seed=seed)
    if pa.types.is_temporal(kind) and kind.bit_width in (32, 64) and not pa.types.is_interval(kind):
        plain = keys.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
        return digest(plain.to_numpy(zero_copy_only=False), seed=seed)
    if str(kind) in _ARROW_TEXT or pa.types.is_fixed_size_binary(kind):
        return _of_entries(keys, seed)
    raise InvalidInput(
        f"got keys of type {kind}; expected integers, booleans, dates, times, text or bytes; cast them"
    )


def _of_dictionary(keys: Any, seed: int) -> Digests:
    used = keys.indices.to_numpy(zero_copy_only=False)
    if not len(used):
        return np.empty(0, np.uint64)
    # An entry that no row uses is no key, NULL among them: a slice keeps the whole dictionary.
    entries, at = np.unique(used, return_inverse=True)
    return digest(keys.dictionary.take(entries.tolist()), seed=seed)[at]


def _of_entries(keys: Any, seed: int) -> Digests:
    """Text and bytes of Arrow, each different one hashed once."""
    # Arrow does not encode views.
    plain = {"string_view": "large_string", "binary_view": "large_binary"}.get(str(keys.type))
    encoded = (keys.cast(plain) if plain else keys).dictionary_encode()
    entries = _of_objects(encoded.dictionary.to_pylist(), seed)
    # Not by to_numpy: it imports pandas, which no reader needs.
    used: Digests = entries[np.from_dlpack(encoded.indices)]
    return used


def _of_objects(keys: list[Any], seed: int) -> Digests:
    known: dict[str | bytes, int] = {}
    result = np.empty(len(keys), np.uint64)
    for i, key in enumerate(keys):
        found = known.get(key) if isinstance(key, str | bytes) else None
        if found is None:
            if key is None:
                raise _null("None")
            if not isinstance(key, str | bytes):
                raise InvalidInput(
                    f"got a key of type {type(key).__name__} at index {i}; expected a column of one type: "
                    "integers, booleans, dates, times, text or bytes"
                )
            # Seeded XXH3 of the UTF-8 bytes; a lone surrogate has none and is no text.
            try:
                data = key.encode() if isinstance(key, str) else key
            except UnicodeEncodeError as not_text:
                raise InvalidInput(
                    f"got {key!r} at index {i}; expected text that UTF-8 can hold"
                ) from not_text
            found = known[key] = xxhash.xxh3_64_intdigest(data, seed)
        result[i] = found
    return result


def _as_array(keys: Any) -> Any:
    """A sequence as an array of its own type; text and bytes stay objects: numpy cuts trailing zeros."""
    listed = list(keys)
    if any(key is None for key in listed):
        raise _null("None")
    if listed and isinstance(listed[0], str | bytes):
        return np.array(listed, object)
    if all(type(key) is date for key in listed):  # a datetime is one too, and its zone and unit are open
        return np.array(listed, "datetime64[D]")
    try:
        return np.array(listed) if listed else np.empty(0, np.uint64)
    except (ValueError, OverflowError) as mixed_types:
        raise InvalidInput(
            f"got keys that make no column; expected keys of one type ({mixed_types})"
        ) from None


def _null(what: str) -> InvalidInput:
    return InvalidInput(f"got {what} among the keys; expected keys only; the caller counts NULL apart")
