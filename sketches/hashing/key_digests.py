"""Digests: 64-bit numbers for the keys of a column, equal on every machine and in every version.

    integers, booleans, dates, times   the number itself (dates in days, times in their own unit, since 1970)
    text and bytes                     64-bit XXH3 of the UTF-8 text or of the bytes, with a seed

Integers are not mixed, because the row hashes separate any two different numbers equally well. The digest of
a key does not depend on its container: numpy, Arrow or a list; int8 or int64; text or dictionary. Python's
hash() differs between processes and is not used. Text and bytes with the same content have the same digest;
so have -1 and 2**64 - 1.

NULL keys raise InvalidInput: the caller counts them separately. Floats raise it too, because 0.0, -0.0 and
NaN make equality of keys ambiguous.

Cost: O(n) for numbers; for text and bytes O(n) plus the bytes of the different keys of a batch.
"""

from datetime import date
from typing import Any

import numpy as np
import xxhash

from tidemark.sketches.errors import InvalidInput
from tidemark.sketches.hashing.row_hashes import Digests

_ARROW_TEXT = {"string", "large_string", "string_view", "binary", "large_binary", "binary_view"}


def digest(keys: Any, *, seed: int = 0) -> Digests:
    """The digests of a column of keys: shape (n,), uint64.

    keys: a one-dimensional numpy array, an Arrow array or chunked array, or a sequence, of one type.
    seed: of the hash of text and bytes, below 2**64; use one seed for all sketches that are queried or merged
        together.

    Raises InvalidInput for NULL, NaT, floats and other types that cannot be keys. O(n) time; a repeated text
    is hashed once.
    """
    if not 0 <= seed < 2**64:
        raise InvalidInput(f"got seed = {seed}; expected an integer from 0 to 2**64 - 1")
    if type(keys).__module__.partition(".")[0] == "pyarrow":
        return _digest_arrow(keys, seed)
    key_array = keys if isinstance(keys, np.ndarray) else _as_array(keys)
    if isinstance(key_array, np.ma.MaskedArray):
        raise InvalidInput("got a masked array; expected keys only; pass array.compressed()")
    if key_array.ndim != 1:
        raise InvalidInput(f"got keys of shape {key_array.shape}; expected one dimension; ravel them")
    dtype_kind = key_array.dtype.kind
    if dtype_kind in "iub":
        return (
            key_array.astype(np.uint64) if dtype_kind != "i" else key_array.astype(np.int64).view(np.uint64)
        )
    if dtype_kind == "M":
        if np.isnat(key_array).any():
            raise _null_error("NaT")
        return key_array.astype(np.int64).view(np.uint64)
    if dtype_kind in "USTO":
        return _digest_objects(key_array.tolist(), seed)
    raise InvalidInput(
        f"got keys of dtype {key_array.dtype}; expected integers, booleans, dates, times, text or bytes"
    )


def digest_one(key: Any, *, seed: int = 0) -> int:
    """The digest of one key, as `digest` gives it for a column."""
    return int(digest([key], seed=seed)[0])


def _digest_arrow(keys: Any, seed: int) -> Digests:
    import pyarrow as pa

    if keys.null_count:
        raise _null_error(f"{keys.null_count} NULL")
    if isinstance(keys, pa.ChunkedArray):
        chunks = [_digest_arrow(chunk, seed) for chunk in keys.chunks]
        return np.concatenate([np.empty(0, np.uint64), *chunks])
    key_type = keys.type
    if pa.types.is_dictionary(key_type):
        return _digest_dictionary(keys, seed)
    if pa.types.is_boolean(key_type) or pa.types.is_integer(key_type):
        return digest(keys.to_numpy(zero_copy_only=False), seed=seed)
    is_interval = pa.types.is_interval(key_type)
    if pa.types.is_temporal(key_type) and key_type.bit_width in (32, 64) and not is_interval:
        integers = keys.cast(pa.int32() if key_type.bit_width == 32 else pa.int64())
        return digest(integers.to_numpy(zero_copy_only=False), seed=seed)
    if str(key_type) in _ARROW_TEXT or pa.types.is_fixed_size_binary(key_type):
        return _digest_arrow_text(keys, seed)
    raise InvalidInput(
        f"got keys of type {key_type}; expected integers, booleans, dates, times, text or bytes; cast them"
    )


def _digest_dictionary(keys: Any, seed: int) -> Digests:
    indices = keys.indices.to_numpy(zero_copy_only=False)
    if not len(indices):
        return np.empty(0, np.uint64)
    # A slice keeps the whole dictionary. Entries that no row uses, which may be NULL, are ignored.
    used_entries, inverse = np.unique(indices, return_inverse=True)
    return digest(keys.dictionary.take(used_entries.tolist()), seed=seed)[inverse]


def _digest_arrow_text(keys: Any, seed: int) -> Digests:
    """The digests of Arrow text or bytes, with one hash for each different key."""
    # Arrow cannot dictionary-encode view types.
    plain_type = {"string_view": "large_string", "binary_view": "large_binary"}.get(str(keys.type))
    encoded = (keys.cast(plain_type) if plain_type else keys).dictionary_encode()
    entries = [key.encode() if isinstance(key, str) else key for key in encoded.dictionary.to_pylist()]
    entry_digests = np.array([xxhash.xxh3_64_intdigest(entry, seed) for entry in entries], np.uint64)
    # to_numpy would import pandas, which costs time and memory and is not needed here.
    digests: Digests = entry_digests[np.from_dlpack(encoded.indices)]
    return digests


def _digest_objects(keys: list[Any], seed: int) -> Digests:
    known: dict[str | bytes, int] = {}
    result = np.empty(len(keys), np.uint64)
    for i, key in enumerate(keys):
        key_digest = known.get(key) if isinstance(key, str | bytes) else None
        if key_digest is None:
            if key is None:
                raise _null_error("None")
            if not isinstance(key, str | bytes):
                raise InvalidInput(
                    f"got a key of type {type(key).__name__} at index {i}; expected a column of one type: "
                    "integers, booleans, dates, times, text or bytes"
                )
            # A lone surrogate cannot be encoded as UTF-8.
            try:
                data = key.encode() if isinstance(key, str) else key
            except UnicodeEncodeError as lone_surrogate:
                raise InvalidInput(
                    f"got {key!r} at index {i}; expected text that can be encoded as UTF-8"
                ) from lone_surrogate
            key_digest = known[key] = xxhash.xxh3_64_intdigest(data, seed)
        result[i] = key_digest
    return result


def _as_array(keys: Any) -> Any:
    """A sequence as a numpy array; text and bytes stay objects, because numpy drops trailing zero bytes."""
    key_list = list(keys)
    if any(key is None for key in key_list):
        raise _null_error("None")
    if key_list and isinstance(key_list[0], str | bytes):
        return np.array(key_list, object)
    # Not isinstance: datetime is a subclass of date, and its time zone and unit would be ambiguous.
    if all(type(key) is date for key in key_list):
        return np.array(key_list, "datetime64[D]")
    try:
        return np.array(key_list) if key_list else np.empty(0, np.uint64)
    except (ValueError, OverflowError) as mixed_types:
        raise InvalidInput(
            f"got keys that do not form a column; expected keys of one type ({mixed_types})"
        ) from None


def _null_error(nulls: str) -> InvalidInput:
    return InvalidInput(
        f"got {nulls} among the keys; expected keys without NULL; filter them out and count them separately"
    )
