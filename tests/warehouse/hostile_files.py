"""Random CSV and JSON files of hostile content, each with its truth: rows, or the line that is refused."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.warehouse.hostile_text import (
    BOOLEANS,
    GOOD,
    NESTED,
    NUMBERS,
    SCHEMA,
    TEXT_OF,
    TEXTS,
    TIMES,
    VALUE_OF,
    Bad,
    json_row,
)

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
HEADER = ",".join(SCHEMA.names) + "\r\n"
PACKED: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}

Truth = list[dict[str, Any]] | int  # the rows, or the number of the first line that is refused


@dataclass(frozen=True, slots=True)
class HostileFile:
    """A file, and what it means."""

    form: str
    name: str
    data: bytes
    truth: Truth

    def write(self, folder: Path) -> Path:
        """Writes it, packed if its name says so."""
        path = folder / self.name
        path.write_bytes(PACKED[path.suffix if path.suffix in PACKED else ""](self.data))
        return path


def hostile_file(seed: int, form: str | None = None) -> HostileFile:
    """The file of a seed; most of its records are good."""
    r = random.Random(seed)
    form = form or r.choice(["csv", "json"])
    data = (random_csv(r) if form == "csv" else random_json(r)).encode()
    if r.random() < 0.05 and len(data) > len(HEADER):
        place = r.randint(max(len(HEADER), data.find(b"\n") + 1), len(data))
        data = data[:place] + r.choice([b"\xe9", b"\xc3", b"\xed\xa0\x80", b"\x00"]) + data[place:]
    truth = csv_truth(data) if form == "csv" else json_truth(data)
    mark = r.random()
    if mark < 0.2:
        data = BYTE_ORDER_MARK + data
    elif mark < 0.22:
        data, truth = data.decode("utf-8", "replace").encode("utf-16"), 1
    return HostileFile(form, f"{seed}.{form}{r.choice(['', '', *PACKED])}", data, truth)


def json_truth(data: bytes) -> Truth:
    found = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip(b" \t\r"):
            continue
        try:
            found.append(json_row(line.decode()))
        except (Bad, ValueError):
            return number
    return found


def csv_truth(data: bytes) -> Truth:
    text = data.decode("utf-8", "surrogateescape")  # a byte that is no UTF-8 becomes a lone surrogate
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[dict[str, Any]] = []
    next(reader)
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader, None)
            if fields is None:
                return rows
            if fields:
                "".join(fields).encode()
                row = zip(SCHEMA.names, fields, strict=True)
                rows.append({name: VALUE_OF[name](field) if field else None for name, field in row})
        except (Bad, ValueError, csv.Error):
            return line


def random_csv(r: random.Random) -> str:
    """A file with a header; most of its records are good."""
    out = io.StringIO()
    writer = csv.writer(
        out, lineterminator=r.choice(["\n", "\r\n"]), quoting=r.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    )
    writer.writerow(SCHEMA.names)
    for _ in range(r.randint(0, 40)):
        row = dict(GOOD)
        if r.random() < 0.06:
            name = r.choice(SCHEMA.names)
            row[name] = r.choice(TEXT_OF[name])
        writer.writerow(row.values())
        if r.random() < 0.03:
            out.write(r.choice([',,,,,"a"b,\n', "1,2\n", '1,a"b,,,,,\n', "\n", '"', "1,,,,,,,,\n"]))
    text = out.getvalue()
    return text[: r.randint(30, len(text))] if r.random() < 0.1 and len(text) > 30 else text


def random_json(r: random.Random) -> str:
    """Lines of objects; most of them are good."""
    lines = []
    for _ in range(r.randint(1, 40)):
        record: dict[str, str] = {name: json.dumps(text) for name, text in GOOD.items() if r.random() < 0.8}
        record |= {name: GOOD[name] for name in "xfndb" if name in record}
        if r.random() < 0.02:
            record[r.choice(["k", "k", *SCHEMA.names])] = r.choice(NESTED)
        if r.random() < 0.06:
            name, text = r.choice(SCHEMA.names), r.choice(NUMBERS + TIMES + TEXTS + BOOLEANS)
            record[name] = json.dumps(text) if r.random() < 0.4 or len(text) > 300 else (text or "null")
        pairs = [f"{json.dumps(name)}: {text}" for name, text in record.items()]
        if r.random() < 0.02:
            pairs.append(r.choice(pairs or ['"x": 1']))
        line = "{" + ", ".join(pairs) + "}"
        lines.append(line + r.choice([" x", line, ",", "\x00"]) if r.random() < 0.02 else line)
    return "\n".join(lines) + r.choice(["\n", "", "\r\n", "\n\n"])
