"""Everything that the files of a warehouse have: pages decompressed, values decoded, texts unescaped.

A Parquet file is searched as it lies there, page by page (dictionaries, bounds and entries that no row uses
are in pages or in the footer), and value by value, as encodings may divide a text. A log is searched as it
lies there, and by the texts of its JSON.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from tidemark.sketches.hashing.row_hashes import splitmix
from tidemark.warehouse.integrity.digests import name_words

_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(13)
_V2 = 3  # the type of a data page whose levels are not compressed


def forms_of_text(text: str) -> set[bytes]:
    """The text as files may have it: UTF-8, escaped as in JSON, and base64 at each of three places."""
    plain = text.encode()
    shifted = {base64.b64encode(b"\0" * pad + plain)[pad + 1 : -4] for pad in range(3)}
    return {plain, json.dumps(text)[1:-1].encode(), plain.hex().encode(), *shifted}


def forms_of_number(number: int) -> set[bytes]:
    """A 64-bit number as files may have it: its bytes, and decimal and hexadecimal text, signed or not."""
    signed = number - 2**64 if number >= 2**63 else number
    return {
        struct.pack("<Q", number % 2**64),
        struct.pack(">Q", number % 2**64),
        str(number % 2**64).encode(),
        str(signed).encode(),
        f"{number % 2**64:016x}".encode(),
    }


def forms_of_keys(names: pa.Array) -> set[bytes]:
    """The hashes of keys that are text or bytes, as samples of keys and listings of days have them."""
    return {form for one in splitmix(name_words(names)) for form in forms_of_number(int(one))}


def files_with(filesystem: fs.FileSystem, forms: set[bytes], root: str = "") -> set[str]:
    """The files below the root that have one of these bytes anywhere, decompressed and decoded."""
    found = set()
    for info in filesystem.get_file_info(fs.FileSelector(root, recursive=True)):
        if info.type == fs.FileType.File:
            with filesystem.open_input_stream(info.path) as file:
                content = file.read()
            if any(form in part for part in contents(content) for form in forms):
                found.add(info.path)
    return found


def contents(content: bytes) -> Iterator[bytes]:
    """The bytes of a file, and those of what is inside."""
    yield content
    if content[:4] == b"PAR1":
        yield from _pages(content)
        yield from _values(content)
    else:
        for line in content.splitlines():
            try:
                yield from _leaves(json.loads(line))
            except ValueError:
                continue


def _leaves(value: Any) -> Iterator[bytes]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield str(key).encode()
            yield from _leaves(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _leaves(one)
    elif isinstance(value, bytes):
        yield value
    elif isinstance(value, str):
        yield value.encode()
        try:
            inner = json.loads(value)
        except ValueError:
            return
        if isinstance(inner, dict | list):
            yield from _leaves(inner)
    elif value is not None:
        yield str(value).encode()


def _values(content: bytes) -> Iterator[bytes]:
    file = pq.ParquetFile(pa.BufferReader(content))
    for text in (file.schema_arrow.metadata or {}).values():
        yield text
    for text in (file.metadata.metadata or {}).values():
        yield from _leaves(text.decode(errors="replace"))
    for group in range(file.num_row_groups):
        for row in file.read_row_group(group).to_pylist():
            yield from _leaves(row)


def _pages(content: bytes) -> Iterator[bytes]:
    """Each page of each column, decompressed."""
    metadata = pq.ParquetFile(pa.BufferReader(content)).metadata
    for group in range(metadata.num_row_groups):
        for place in range(metadata.num_columns):
            column = metadata.row_group(group).column(place)
            # A page that is not there has the place 0: a column without values may have none at all.
            places = list(filter(None, (column.data_page_offset, column.dictionary_page_offset)))
            if not places:
                continue
            start = min(places)
            yield from _pages_of(content[start : start + column.total_compressed_size], column.compression)


def _pages_of(chunk: bytes, compression: str) -> Iterator[bytes]:
    at = 0
    while at < len(chunk):
        header, at = _struct(chunk, at)
        page, at = chunk[at : at + header[3]], at + header[3]
        levels = sum(header[8].get(field, 0) for field in (5, 6)) if header[1] == _V2 else 0
        yield page[:levels]
        if compression == "UNCOMPRESSED" or header.get(8, {}).get(7) is False:
            yield page[levels:]
        else:
            codec = {"LZ4": "lz4_raw"}.get(compression, compression.lower())
            size = header[2] - levels
            yield bytes(pa.decompress(page[levels:], size, codec)) if size else b""


def _struct(data: bytes, at: int) -> tuple[dict[int, Any], int]:
    """A struct of Thrift's compact protocol: its fields by number, and where it ends."""
    fields, number = dict[int, Any](), 0
    while True:
        head, at = data[at], at + 1
        if head & 15 == _STOP:
            return fields, at
        if head >> 4:
            number += head >> 4
        else:
            delta, at = _varint(data, at)
            number = _zigzag(delta)
        fields[number], at = _value(data, at, head & 15)


def _value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, at
    if kind == _BYTE:
        return data[at], at + 1
    if kind in (_I16, _I32, _I64):
        number, at = _varint(data, at)
        return _zigzag(number), at
    if kind == _DOUBLE:
        return None, at + 8
    if kind == _BINARY:
        size, at = _varint(data, at)
        return data[at : at + size], at + size
    if kind == _STRUCT:
        return _struct(data, at)
    raise AssertionError(f"a page header with a field of the kind {kind}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte, at = data[at], at + 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, at


def _zigzag(number: int) -> int:
    return (number >> 1) ^ -(number & 1)
