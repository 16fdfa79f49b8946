"""A client of S3: one request reads a file, puts one, or puts one where there is none (a conditional put).

delta-rs puts a new file with three requests, one after the other, and the parts of a large one in turn. A
commit takes it five. Before a read it asks for the size of a file, unless it was told it when its client
was made. obstore needs one request for each, and one client, which keeps its connections. It is the same
library underneath (object_store) and takes the same options, but it does not know all ways in which delta-rs
finds credentials and locks. Where it does not, `s3_client_at` returns None, and delta-rs does the work.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tidemark.warehouse.delta.retries import repeated

PART_BYTES = 2**23  # of an object that is written in parts
PARTS_AT_ONCE = 4
_READS = 3
_STOPPED = "request or response body error"
# Options by their names without "aws_", as obstore takes them.
_NAMES = {
    "access_key_id",
    "checksum_algorithm",
    "conditional_put",
    "container_authorization_token_file",
    "container_credentials_full_uri",
    "container_credentials_relative_uri",
    "default_region",
    "disable_tagging",
    "endpoint",
    "imdsv1_fallback",
    "metadata_endpoint",
    "region",
    "request_payer",
    "role_arn",
    "role_session_name",
    "secret_access_key",
    "server_side_encryption",
    "session_token",
    "skip_signature",
    "sse_bucket_key_enabled",
    "sse_customer_key_base64",
    "sse_kms_key_id",
    "unsigned_payload",
    "virtual_hosted_style_request",
    "web_identity_token_file",
}
_OTHER_SPELLINGS = {"endpoint_url": "endpoint", "token": "session_token"}
_CLIENT_NAMES = {
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "http1_only",
    "http2_only",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "timeout",
    "user_agent",
}
# With these delta-rs finds the store or credentials, or keeps two commits apart, in a way of its own.
_ONLY_DELTA_RS = {
    "endpoint_url_s3",
    "force_credential_load",
    "iam_role_arn",
    "profile",
    "s3_allow_unsafe_rename",
    "s3_assume_role_arn",
    "s3_locking_provider",
}
_PROFILES = (
    ("AWS_CONFIG_FILE", "~/.aws/config"),
    ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
)
# Each group is a way to credentials that does not depend on profiles.
_CREDENTIALS = (
    {"access_key_id", "secret_access_key"},
    {"web_identity_token_file", "role_arn"},
    {"container_credentials_relative_uri"},
    {"container_credentials_full_uri"},
)


class S3Client:
    """The objects below one address. Safe to share between threads. Errors are OSError."""

    def __init__(self, uri: str, config: dict[str, str], client: dict[str, str]) -> None:
        from obstore.store import from_url

        with _as_os_errors():
            self._store: Any = from_url(uri, config=config, client_options=client)  # type: ignore[call-overload]

    def get(self, path: str, start: int = 0, stop: int | None = None) -> bytes | None:
        """The bytes start..stop (stop exclusive, None: to the end) of an object; None if there is none.

        The library retries a failed request, but not if the body of a 404 response is cut off.
        """
        return repeated(self._get, path, start, stop, passes=_is_cut_off, tries=_READS)

    def _get(self, path: str, start: int, stop: int | None) -> bytes | None:
        from obstore import get, get_range
        from obstore.exceptions import NotFoundError

        with _as_os_errors():
            try:
                if stop is not None:
                    return bytes(get_range(self._store, path, start=start, end=stop))
                options: Any = {"range": {"offset": start}} if start else None
                return bytes(get(self._store, path, options=options).bytes())
            except (FileNotFoundError, NotFoundError):
                return None

    def put(self, path: str, content: bytes) -> None:
        """Puts an object; replaces one that is there."""
        self._put(path, content, "overwrite")

    def put_new(self, path: str, content: bytes) -> None:
        """Puts an object if there is none; else FileExistsError.

        After any error the object may be there: an answer can be lost. It is not tried again.
        """
        self._put(path, content, "create")

    def names(self, folder: str) -> list[str]:
        """The names of the objects in a folder, in any order. One request for 1,000 of them."""
        from obstore import list as list_objects

        with _as_os_errors():
            batches = list_objects(self._store, folder)
            return [one["path"].rpartition("/")[2] for batch in batches for one in batch]

    def open_writer(self, path: str) -> S3Upload:
        """A new object that is written in parts: see `S3Upload`."""
        return S3Upload(self._store, path)

    def _put(self, path: str, content: bytes, mode: Any) -> None:
        from obstore import put

        with _as_os_errors():
            put(self._store, path, content, mode=mode, use_multipart=False)


class S3Upload:
    """An object that goes up in parts of PART_BYTES, several at once, and is there once it is closed.

    After an error it must not be used any more. Parts that went up before stay in the bucket.
    """

    def __init__(self, store: Any, path: str) -> None:
        from obstore import open_writer

        with _as_os_errors():
            self._file = open_writer(store, path, buffer_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)

    def write(self, content: bytes) -> None:
        """Takes the bytes; waits while all parts are on their way."""
        with _as_os_errors():
            self._file.write(content)

    def close(self) -> None:
        """Waits until the object is there."""
        with _as_os_errors():
            self._file.close()


def _is_cut_off(error: OSError) -> bool:
    return _STOPPED in str(error)


@contextmanager
def _as_os_errors() -> Iterator[None]:
    from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError

    kinds = {AlreadyExistsError: FileExistsError, NotFoundError: FileNotFoundError}
    try:
        yield
    except BaseError as error:
        text, _, debug = str(error).partition("\n\nDebug source")
        causes = re.findall(r'message: "([^"]+)"', debug)  # of the operating system
        kind = kinds.get(type(error), OSError)
        raise kind(": ".join([text, *causes[-1:]])) from None


def s3_client_at(uri: str, options: Mapping[str, str] | None) -> S3Client | None:
    """The objects at an address with delta-rs' storage options; None if only delta-rs knows the way there.

    The options have what the environment says, too (addresses.py).
    """
    found = _configured(uri, options or {})
    with suppress(OSError):  # obstore refuses a value: delta-rs takes it, or tells what is wrong
        return None if found is None else S3Client(uri, *found)
    return None


def _configured(uri: str, options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]] | None:
    """The configuration of obstore's store and of its client."""
    plain = {name.lower().removeprefix("aws_"): value for name, value in options.items() if value}
    plain = {_OTHER_SPELLINGS.get(name, name): value for name, value in plain.items()}
    config = {name: value for name, value in plain.items() if name in _NAMES}
    is_known = (
        uri.startswith("s3://")
        and find_spec("obstore") is not None  # a cluster may lack it
        and not plain.keys() & _ONLY_DELTA_RS
        and config.get("conditional_put", "etag").lower() == "etag"
        and (any(group <= config.keys() for group in _CREDENTIALS) or not _has_profiles(options))
        and config.keys() & {"endpoint", "region", "default_region"}  # delta-rs knows other ways to a region
    )
    return (config, {name: plain[name] for name in plain.keys() & _CLIENT_NAMES}) if is_known else None


def _has_profiles(options: Mapping[str, str]) -> bool:
    places = (options.get(variable) or path for variable, path in _PROFILES)
    return any(Path(place).expanduser().exists() for place in places)
