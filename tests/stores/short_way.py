"""A short way to moto's store for the requests that tests make by the thousand.

moto takes a request through Flask, its rules for 200 services and templates of XML, a millisecond of the
processor each and several for a list. Here the plain ones act on moto's own buckets and objects directly: get
(also of a range), head, put and delete of an object, and a list. Whatever has a header or a parameter that is
not named here goes moto's way; so does all that a bucket with a policy, versions or the like is asked.
tests/stores/test_short_way.py compares the answers of both ways.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import FakeBucket, FakeKey, s3_backends
from moto.s3.utils import metadata_from_headers

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
Answer = tuple[str, dict[str, str], bytes]

_BODILESS = {"Content-Type": "text/html; charset=utf-8"}
_EMPTY = {**_BODILESS, "Content-Length": "0"}
_XML = {"Content-Type": "application/xml", "server": "amazon.com"}
_HEAD = '<?xml version="1.0" encoding="utf-8"?>\n'
_HEADERS = {
    "HTTP_ACCEPT",
    "HTTP_ACCEPT_ENCODING",
    "HTTP_AUTHORIZATION",
    "HTTP_CONNECTION",
    "HTTP_HOST",
    "HTTP_USER_AGENT",
    "HTTP_X_AMZ_CONTENT_SHA256",
    "HTTP_X_AMZ_DATE",
}
_OWN_HEADERS = {"GET": {"HTTP_RANGE"}, "PUT": {"HTTP_IF_NONE_MATCH"}}
_LIST_PARAMETERS = {"list-type", "prefix", "delimiter", "start-after", "max-keys"}
_MOST_KEYS = 1000  # of a list that names no other number
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


class ShortWay:
    """The WSGI application: the short way for what is plain, and moto's application for the rest."""

    def __init__(self, moto: App) -> None:
        self._moto, self._backend = moto, s3_backends[DEFAULT_ACCOUNT_ID]["aws"]

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        answer = self.answer(environ)
        if answer is None:
            return self._moto(environ, start_response)
        status, headers, body = answer
        start_response(status, [*headers.items(), ("Access-Control-Allow-Origin", "*")])
        return [body]

    def answer(self, environ: dict[str, Any]) -> Answer | None:
        """The status, headers and body; None for what takes moto's way. Nothing is changed then."""
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        name, slash, key = path[1:].partition("/")
        bucket = self._backend.buckets.get(name)
        given = {header for header in environ if header.startswith("HTTP_")}
        if (
            "HTTP_AUTHORIZATION" not in given
            or not given <= _HEADERS | _OWN_HEADERS.get(method, set())
            or environ.get("HTTP_X_AMZ_CONTENT_SHA256", "").startswith("STREAMING")
            or not path.isascii()
            or bucket is None
            or not _is_plain(bucket)
        ):
            return None
        if key:
            return None if environ["QUERY_STRING"] else self._of_key(method, bucket, key, environ)
        return _listed(bucket, environ["QUERY_STRING"]) if method == "GET" and not slash else None

    def copy(self, bucket: str, old: str, new: str) -> None:
        """Puts each object below a folder below another one, too."""
        for name, found in list(self._backend.buckets[bucket].keys.items()):
            if name.startswith(f"{old}/"):
                self._put_object(self._backend.buckets[bucket], new + name[len(old) :], found.value)

    def _of_key(self, method: str, bucket: FakeBucket, key: str, environ: dict[str, Any]) -> Answer | None:
        if method == "PUT":
            return self._put(bucket, key, environ)
        if method == "DELETE":
            self._backend.delete_object(bucket.name, key)
            return "204 NO CONTENT", _BODILESS, b""
        if method not in ("GET", "HEAD"):
            return None
        found = bucket.keys.get(key)
        if found is None:
            return _missing(key) if method == "GET" else ("404 NOT FOUND", _EMPTY, b"")
        if not isinstance(found, FakeKey):
            return None
        headers = {**found.response_dict, **found.metadata, "Accept-Ranges": "bytes"}
        if method == "HEAD":
            return "200 OK", headers, b""
        return (
            _part(found.value, headers, environ["HTTP_RANGE"])
            if "HTTP_RANGE" in environ
            else (
                "200 OK",
                headers,
                found.value,
            )
        )

    def _put(self, bucket: FakeBucket, key: str, environ: dict[str, Any]) -> Answer | None:
        if "HTTP_IF_NONE_MATCH" in environ and (environ["HTTP_IF_NONE_MATCH"] != "*" or key in bucket.keys):
            return None
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        made = self._put_object(bucket, key, body)
        if kind := environ.get("CONTENT_TYPE"):
            made.set_metadata(metadata_from_headers({"Content-Type": kind}))
        headers = {name: value for name, value in made.response_dict.items() if name != "content-length"}
        return "200 OK", {**headers, **_EMPTY}, b""

    def _put_object(self, bucket: FakeBucket, key: str, body: bytes) -> FakeKey:
        made = self._backend.put_object(bucket.name, key, body, storage="STANDARD")
        made.set_acl(bucket.acl)
        self._backend.put_object_tagging(made, {})
        return made


def _is_plain(bucket: Any) -> bool:
    """Whether a bucket is there, and has nothing that decides about requests."""
    return isinstance(bucket, FakeBucket) and not (
        bucket.is_versioned
        or bucket.policy
        or bucket.encryption
        or bucket.object_lock_enabled
        or bucket.logging
        or bucket.cors
        or bucket.notification_configuration
    )


def _missing(key: str) -> Answer:
    body = (
        f"{_HEAD}<Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message>"
        f"<Key>{escape(key)}</Key></Error>"
    ).encode()
    return "404 NOT FOUND", {**_XML, "Content-Length": str(len(body))}, body


def _part(value: bytes, headers: dict[str, str], asked: str) -> Answer | None:
    """A range of the object; None for one that is not within it."""
    matched, last = _RANGE.fullmatch(asked), len(value) - 1
    if matched is None or not any(matched.groups()):
        return None
    begin, end = (int(text) if text else None for text in matched.groups())
    if begin is None:  # the last bytes
        begin, end = len(value) - min(end or 0, len(value)), last
    end = last if end is None else min(end, last)
    if begin > end:
        return None
    part = value[begin : end + 1]
    told = {"content-range": f"bytes {begin}-{end}/{len(value)}", "content-length": str(len(part))}
    return "206 PARTIAL CONTENT", {**headers, **told}, part


def _listed(bucket: FakeBucket, query: str) -> Answer | None:
    """A list in one answer; None for one that is continued, or asks for anything else."""
    given = {name: values[0] for name, values in parse_qs(query, keep_blank_values=True).items()}
    if given.get("list-type") != "2" or not given.keys() <= _LIST_PARAMETERS:
        return None
    prefix, delimiter = given.get("prefix", ""), given.get("delimiter", "")
    most = int(given.get("max-keys", _MOST_KEYS))
    folders, keys = set(), []
    for name in list(bucket.keys):  # one step: other threads put and delete
        if name.startswith(prefix):
            head, found, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
            if found:
                folders.add(f"{prefix}{head}{delimiter}")
            else:
                keys.append(name)
    after = given.get("start-after", "")
    shown = sorted(name for name in (*keys, *folders) if name > after)
    objects = [bucket.keys.get(name) for name in shown if name not in folders]
    if len(shown) > most or not all(isinstance(one, FakeKey) for one in objects):
        return None
    body = _list_text(bucket.name, given, most, objects, [name for name in shown if name in folders])
    return "200 OK", {**_XML, "Content-Length": str(len(body))}, body


def _list_text(
    name: str, given: dict[str, str], most: int, objects: list[FakeKey], folders: list[str]
) -> bytes:
    contents = "".join(
        f"<Contents><Key>{escape(one.name)}</Key><LastModified>{one.last_modified_ISO8601}</LastModified>"
        f"<ETag>{one.etag}</ETag><Size>{one.size}</Size><StorageClass>{one.storage_class}</StorageClass>"
        "</Contents>"
        for one in objects
    )
    common = "".join(f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in folders)
    prefix, delimiter, after = (given.get(one) for one in ("prefix", "delimiter", "start-after"))
    text = (
        f'{_HEAD}<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<IsTruncated>false</IsTruncated>{contents}<Name>{name}</Name>"
        f"{f'<Prefix>{escape(prefix)}</Prefix>' if prefix else '<Prefix/>'}"
        f"{f'<Delimiter>{escape(delimiter)}</Delimiter>' if delimiter else ''}<MaxKeys>{most}</MaxKeys>"
        f"{common}<KeyCount>{len(objects) + len(folders)}</KeyCount>"
        f"{f'<StartAfter>{escape(after)}</StartAfter>' if after else ''}</ListBucketResult>"
    )
    return text.encode()
