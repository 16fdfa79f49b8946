"""The short way to moto's store answers as moto itself does."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

Ask = Callable[..., tuple[int, dict[str, str], str]]

SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=WRITER/20240101/eu-central-1/s3/aws4_request"}
KEYS = ["a/b c=1/x.json", "a/y.json", "a/é.json", "a/z/1", "a/z/2", "b", "a&<b>/x"]
VALUE = bytes(range(128))
RANGES = ["0-0", "2-4", "120-900", "-4", "-900", "7-", "128-", "9-3", "0-1,4-5", "x"]
LISTS = [
    "",
    "&delimiter=/",
    "&prefix=a/",
    "&prefix=a/&delimiter=/",
    "&prefix=a%2Fz&delimiter=%2F&start-after=a/z",
    "&prefix=a/&start-after=a/y.json",
    "&prefix=a/&delimiter=/&max-keys=2",
    "&prefix=a%26&max-keys=100",
    "&prefix=nothing/",
    "&prefix=a/&encoding-type=url",
    "&prefix=a/&delimiter=/&start-after=a/b",
]
UNTOLD = ("x-amzn-requestid", "last-modified", "date")
OF_ONE = re.compile("<(RequestId|HostId|LastModified)>.*?</\\1>")


@pytest.fixture(scope="module")
def ways() -> tuple[Ask, Ask]:
    """How the short way and moto's are asked; each has its own bucket, whose name is not told."""
    from moto.moto_server.werkzeug_app import create_backend_app  # noqa: PLC0415  moto takes a second
    from werkzeug.test import Client  # noqa: PLC0415

    from tests.stores.short_way import ShortWay  # noqa: PLC0415

    moto = create_backend_app("s3")

    def way(app: Any, bucket: str) -> Ask:
        client = Client(app)
        assert client.put(f"/{bucket}").status_code == 200

        def ask(method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b"") -> Any:
            given = {**SIGNED, **(headers or {})}
            answer = client.open(f"/{bucket}{path}", method=method, headers=given, data=body)
            told = {name.lower(): value for name, value in answer.headers.items()}
            text = OF_ONE.sub("", answer.text).replace(f"<Name>{bucket}</Name>", "")
            if answer.mimetype == "application/xml":
                del told["content-length"]
            return answer.status_code, {k: v for k, v in told.items() if k not in UNTOLD}, text

        return ask

    return way(ShortWay(moto), "short"), way(moto, "long")


def compare(ways: tuple[Ask, Ask]) -> list[str]:
    """The requests that the two ways answer differently, after the same writes."""
    different = []

    def both(*request: Any) -> None:
        ours, motos = (ask(*request) for ask in ways)
        if ours != motos:
            different.append(f"{request[:3]}: {ours} instead of {motos}")

    paths = [f"/{quote(key)}" for key in KEYS]
    for path in paths:
        both("PUT", path, {"Content-Type": "text/plain"} if path == "/b" else {}, VALUE)
    both("PUT", "/new", {"If-None-Match": "*"}, b"1")
    both("PUT", "/new", {"If-None-Match": "*"}, b"2")
    both("PUT", "/b", {}, b"")
    both("PUT", "/own", {"x-amz-meta-own": "kept"}, VALUE)
    for path in (*paths, "/new", "/own", "/missing", "/<&>"):
        both("GET", path)
        both("HEAD", path)
    for part in RANGES:
        both("GET", "/a/y.json", {"Range": f"bytes={part}"})
    both("GET", "/missing", {"Range": "bytes=0-1"})
    both("GET", "/a/y.json", {"If-Match": '"another"'})
    both("GET", "/a/y.json", {"x-amz-checksum-mode": "ENABLED"})
    both("GET", "/a/y.json?tagging")
    for parameters in LISTS:
        both("GET", f"?list-type=2{parameters}")
    for path in (paths[0], paths[0], "/missing"):
        both("DELETE", path)
        both("GET", path)
    both("GET", "?list-type=2&prefix=a/&delimiter=/")
    return different


@pytest.mark.slow
def test_both_ways_answer_alike(ways: tuple[Ask, Ask]) -> None:
    assert compare(ways) == []


@pytest.mark.parametrize("part", ["_part", "_missing", "_listed", "_HEADERS"])
def test_mistakes_of_the_short_way_are_caught(
    ways: tuple[Ask, Ask], monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    from tests.stores import short_way  # noqa: PLC0415

    right: Any = getattr(short_way, part)
    wrong: dict[str, Any] = {
        "_part": lambda value, headers, asked: right(value[:-1], headers, asked),
        "_missing": lambda key: right(key.upper()),
        "_listed": lambda bucket, query: right(bucket, query.replace("start-after", "prefix")),
        "_HEADERS": {*short_way._HEADERS, "HTTP_X_AMZ_META_OWN"},
    }
    monkeypatch.setattr(short_way, part, wrong[part])
    assert compare(ways)
