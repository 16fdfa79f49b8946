"""A warehouse with private columns and its plain twin, through the same life; and the search for names."""

from __future__ import annotations

import base64
import contextlib
import io
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark import query, stream, warehouse
from tidemark.warehouse import TidemarkError
from tidemark.warehouse.private import secrets

NAMES = [f"Zoë-{place}-Ostrowski" for place in ("Ankh", "Bree", "Cair", "Dale", "Esgal", "Fornost", "Gondor")]
CARDS = [4_929_000_111_222_333 + 7 * i for i in range(5)]
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("user", pa.string()),
        ("card", pa.int64()),
        ("delay", pa.float64()),
        ("id", pa.int64()),
        ("time", pa.timestamp("us", tz="UTC")),
    ]
)
KEYS: list[Any] = ["user", "card", ["user", "card"]]


def rows(first: int, count: int, day: int = 0) -> pa.Table:
    """Rows with the ids from `first` on."""
    ids = range(first, first + count)
    columns: dict[str, list[Any]] = {
        "user": [None if i % 13 == 5 else NAMES[i * i % 7] for i in ids],
        "card": [CARDS[i % 5] for i in ids],
        "delay": [i * 0.5 for i in ids],
        "id": list(ids),
        "time": [FIRST + timedelta(days=day, minutes=i) for i in ids],
    }
    return pa.table(columns, SCHEMA)


@dataclass
class Life:
    """The places of the two warehouses, and what was said while they lived."""

    folder: Path
    said: list[str] = field(default_factory=list)

    @property
    def private(self) -> Path:
        """The warehouse with private columns."""
        return self.folder / "private"

    @property
    def plain(self) -> Path:
        """Its twin."""
        return self.folder / "plain"

    def both(self, call: Callable[[Path], Any]) -> list[Any]:
        """What a call returns of the private warehouse and of the twin."""
        return [call(self.private), call(self.plain)]

    def refused(self, call: Callable[[], Any]) -> str:
        """The texts of the error of a call, with those of its causes; it is among what was said."""
        try:
            call()
        except TidemarkError as error:
            one: BaseException | None = error
            texts: list[str] = []
            while one is not None:
                texts += [str(one), repr(one.args)]
                one = one.__cause__ or one.__context__
            self.said += texts
            return " ".join(texts)
        raise AssertionError("it was not refused")


def secret_in(path: Path) -> Path:
    """A file with a new secret."""
    path.write_text(f"{secrets.new_secret()}\n")
    return path


def created(folder: Path, **options: Any) -> Path:
    """A warehouse with private columns in the folder `w`."""
    given: dict[str, Any] = {"key": "user", "private": ["user", "card"], "time": "time", "schema": SCHEMA}
    secret = secret_in(folder / "s")
    warehouse.create(None, folder / "w", ["delay"], secret_file=secret, **{**given, **options})
    return folder / "w"


@contextlib.contextmanager
def logged(into: list[str]) -> Iterator[None]:
    """What the package logs goes into the list."""
    stream_ = io.StringIO()
    handler, logger = logging.StreamHandler(stream_), logging.getLogger("tidemark")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
        into.append(stream_.getvalue())


def load(given: Any, batch: str, uri: Path) -> Any:
    """Loads a batch."""
    return warehouse.load(None, uri, given, batch)


def append_twice(given: pa.Table, number: int, uri: Path) -> Any:
    """Appends a batch, and replays it."""
    return [stream.append(None, uri, given, source="s", batch=number) for _ in range(2)]


def lived(folder: Path) -> Life:
    """Loads, streams, merges, deletes, corrections, rejected records and errors."""
    life = Life(folder)
    secret = secret_in(folder / "secret")
    with logged(life.said):
        for uri, private in ((life.private, True), (life.plain, None)):
            warehouse.create(
                None,
                uri,
                ["delay"],
                keys=KEYS,
                groups=["user"],
                time="time",
                kappa=2,
                schema=SCHEMA,
                private=private,
                secret_file=secret if private else None,
            )
        for day in range(4):
            life.both(partial(load, rows(100 * day, 60, day), f"b{day}"))
        csv = folder / "in.csv"
        lines = [f"{NAMES[i % 7]},{CARDS[i % 5]},{i / 2},{i},2026-01-06T00:00:{i:02}Z" for i in range(20)]
        csv.write_text("user,card,delay,id,time\n" + "\n".join(lines) + "\n")
        life.both(lambda uri: warehouse.load(None, uri, csv, "csv"))
        for number in range(3):
            batch = rows(1000 + 100 * number, 50, 6 + number)
            late = rows(5000 + number, 1, 40_000)  # rejected: too far ahead
            given = pa.concat_tables([batch, late])
            life.both(partial(append_twice, given, number))
        life.both(lambda uri: warehouse.delete(None, uri, where=f"user = '{NAMES[2]}' AND id < 200"))
        gone = pa.table({"user": [NAMES[3]], "card": [CARDS[1]]}, SCHEMA.remove(4).remove(3).remove(2))
        life.both(lambda uri: warehouse.delete(None, uri, keys=gone))
        fixed = rows(301, 4, 3).set_column(0, "user", [[NAMES[0], NAMES[1], None, NAMES[6]]])
        life.both(lambda uri: warehouse.correct(None, uri, fixed, batch="fix", on=["id"]))
        few = life.both(lambda uri: warehouse.delete(None, uri, where=f"user = '{NAMES[5]}' AND id < 100"))
        assert all(one.rows and not one.runs_rewritten for one in few)  # they are kept, and subtracted
        broken = folder / "broken.csv"
        broken.write_text(f"user,card,delay,id,time\n{NAMES[4]},x{CARDS[0]},much,1,2026-01-06\n")
        life.refused(lambda: warehouse.load(None, life.private, broken, "broken"))
        broken.write_text(f"{NAMES[4]},{CARDS[0]},1.5,1,2026-01-06\n")  # no header
        life.refused(lambda: warehouse.load(None, life.private, broken, "broken"))
        life.refused(lambda: warehouse.load(None, life.private, rows(5, 1, 40_000), "ahead"))
        life.refused(lambda: warehouse.load(None, life.private, rows(5, 60), "b0"))
        wrong = rows(7, 1).set_column(1, "card", [[1.5]])
        life.refused(lambda: warehouse.load(None, life.private, wrong, "wrong"))
        life.refused(lambda: query.open(life.private).key_range(NAMES[0], NAMES[1], key="user"))
        life.refused(lambda: query.open(life.private).quantile(0.5, where=f"user > '{NAMES[0]}'"))
        life.refused(
            lambda: query.open(life.private).sql(f"SELECT 1 FROM events WHERE user || '' = '{NAMES[0]}'")
        )
    return life


def texts_of(name: str | int) -> list[bytes]:
    """The forms in which a file could have a value."""
    text = str(name)
    whole = text.encode()
    forms = [
        whole,
        text.encode("utf-16-le"),
        text.encode("utf-16-be"),
        whole.hex().encode(),
        whole.hex().upper().encode(),
    ]
    for shift in range(3):  # the characters of base64 that depend on the value alone
        padded = base64.b64encode(b"\0" * shift + whole).rstrip(b"=")
        forms.append(padded[(shift * 4 + 2) // 3 : -1])
    forms.append(text.encode("unicode_escape"))
    if isinstance(name, int):
        forms.append(name.to_bytes(8, "little"))
    return forms


def traces(folder: Path, said: list[str]) -> list[str]:
    """Where a name is found: files below a folder, also inside of compressed pages, and texts."""
    values: list[str | int] = [*NAMES, *CARDS]
    wanted = [form for name in values for form in texts_of(name)]
    found = [f"said: {text}" for text in said if any(form in text.encode() for form in wanted)]
    return found + has_bytes(folder, wanted)


def has_bytes(folder: Path, wanted: Sequence[bytes]) -> list[str]:
    """The files below a folder that have one of these, also inside of compressed pages."""

    def has(content: bytes) -> bool:
        return any(form in content for form in wanted)

    found = []
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        if has(path.read_bytes()):
            found.append(f"{path.relative_to(folder)}")
        elif path.suffix == ".parquet":
            columns = pq.read_table(path).combine_chunks().columns
            buffers = (buffer for one in columns for chunk in one.chunks for buffer in _buffers(chunk))
            if any(has(bytes(buffer)) for buffer in buffers):
                found.append(f"{path.relative_to(folder)}, inside")
    return found


def _buffers(array: pa.Array) -> Iterator[pa.Buffer]:
    if pa.types.is_dictionary(array.type):
        yield from _buffers(array.dictionary)
    yield from (one for one in array.buffers() if one is not None)
