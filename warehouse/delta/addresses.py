"""What callers write for a warehouse's place, made into a path or an address that delta-rs understands.

    flights, ./flights, /data/flights, file:///data/flights    a folder of this machine
    ~/flights                                                  one in the home folder; ./~ is one of that name
    s3://bucket/flights, s3a://, s3n://                        S3 and its like
    gs://bucket/flights                                        Google Cloud Storage
    abfss://container@account.dfs.core.windows.net/flights     Azure; also abfs://, az://, azure://, adl://
    https://tidemark.example/flights                           a server; http:// on this machine alone
    main.sales.flights                                         a name in a catalog: see `use_catalog`

The options of a store are those that the caller passes, then those of a catalog, then the variables of the
environment that delta-rs reads. They are collected here, once, in the process of the caller: tasks on other
machines have other environments.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import unquote

from tidemark.warehouse.errors import InputError, shortened, without_secrets
from tidemark.warehouse.os_errors import in_home

# Returns the address of a catalog's table and the storage options for it.
Resolver = Callable[[str], tuple[str, Mapping[str, str]]]

_SAME_AS = {"s3a": "s3", "s3n": "s3"}
_STORES = {"s3", "gs", "az", "azure", "adl", "abfs", "abfss"}
_WITHOUT_USERS = {"s3", "gs"}  # Azure writes container@account
_WRITE_INSTEAD = {
    "gcs": "gs://bucket/folder",
    "wasb": "abfss://container@account.dfs.core.windows.net/folder",
    "wasbs": "abfss://container@account.dfs.core.windows.net/folder",
    "dbfs": "the address of the store below it, or the path /dbfs/... where it is mounted",
}
_SERVERS = {"http", "https"}
TOKENS = "TIDEMARK_TOKENS"  # the variable with tokens of servers, as ORIGIN=TOKEN ORIGIN=TOKEN
_ENVIRONMENT = ("AWS_", "AZURE_", "GOOGLE_")
_PORTS = {"http": ":80", "https": ":443"}
_ORIGIN = re.compile(r"(https?)://([^/?#@\s]+)", re.IGNORECASE)
_SERVED = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[(?P<bare>[0-9a-f:]+)\]|[\w.-]+)(?::(?P<port>\d{1,5}))?"
    r"(?P<path>(?:/[\w.~-]+)*/\w+(?:\.\w+)?)",  # the last part is the name of the warehouse
    re.IGNORECASE | re.ASCII,
)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_FILE = re.compile("file:(?://([^/]*))?(.*)", re.IGNORECASE | re.DOTALL)  # the host and the path
_CATALOG_NAME = re.compile(r"[^\W\d][\w-]*(?:\.[^\W\d][\w-]*){1,2}")
_PARTS_OF_A_TABLE = 3  # catalog.schema.table
# delta-rs decodes or refuses these in a local path.
_UNSUPPORTED = re.compile(r"%[0-9A-Fa-f]{2}|[\[\]^|\\\t\n\x00\ud800-\udfff]|/_delta_log(?=/|$)")

_resolver: list[Resolver] = []  # at most one


def use_catalog(resolve: Resolver | None) -> None:
    """Names such as main.sales.flights are from now on looked up by this function, in this process.

    resolve   gets a name of two or three parts; returns the address and the storage options of the store. It
              is called once for each opening or job, so credentials have to last as long as that. None: names
              of three parts are refused again. A folder of that name, if there is one, comes first
    """
    _resolver[:] = [] if resolve is None else [resolve]


def located(
    place: str | os.PathLike[str], storage_options: Mapping[str, str] | None
) -> tuple[str, dict[str, str]]:
    """The absolute path or the address of a place, and the storage options for it.

    Raises InputError for a place or options that are not understood; it never shows the value of an option.
    """
    given = _checked_options(storage_options)
    text = os.fspath(place) if isinstance(place, str | os.PathLike) else place
    if not isinstance(text, str):
        raise InputError(f"the place of a warehouse is text or a Path, got {type(place).__name__}.")
    if isinstance(place, str) and _CATALOG_NAME.fullmatch(text) and not os.path.exists(text):  # noqa: PTH110
        text, found = _looked_up(text)
        given = {**_checked_options(found), **given}
    scheme = _SCHEME.match(text)
    if scheme is None or scheme[1].lower() == "file":
        return _local_path(text), given
    if scheme[1].lower() in _SERVERS:
        return _served(text, given)
    address = _store_address(text, scheme[1].lower())
    return address, {**_from_environment(given), **given}


def _looked_up(name: str) -> tuple[str, Mapping[str, str]]:
    if _resolver:
        return _resolver[0](name)
    if name.count(".") + 1 < _PARTS_OF_A_TABLE:
        return name, {}
    raise InputError(
        f"{name!r} looks like a table of a catalog, and no catalog is known here. Give the address of the "
        f"warehouse, register a function that finds it (warehouse.use_catalog), or write ./{name} for a "
        "folder."
    )


def _local_path(text: str) -> str:
    file = _FILE.fullmatch(text)
    if file is not None:
        if (file[1] or "localhost") != "localhost" or re.search("[?#]", text):
            raise InputError(
                f"{without_secrets(text)!r} is no folder of this machine. Write file:///data/flights, with "
                "%3F for ? and %23 for #; or the path."
            )
        text = unquote(file[2])
    if not text:
        raise InputError("the place of a warehouse is an empty text. Name a folder; . is the current one.")
    try:
        path = str(Path(in_home(text) if file is None else text).absolute())
    except FileNotFoundError as error:
        raise InputError(
            f"the path {shortened(text)} begins at the current folder, which was deleted. Give the whole "
            "path."
        ) from error
    unsupported = _UNSUPPORTED.search(path)
    if unsupported:
        raise InputError(
            f"a local path cannot hold {unsupported[0]!r}, got {shortened(path)}. Choose another."
        )
    return path.rstrip("/") or "/"


def _store_address(text: str, scheme: str) -> str:
    scheme = _SAME_AS.get(scheme, scheme)
    shown = without_secrets(text)
    if scheme not in _STORES:
        instead = _WRITE_INSTEAD.get(scheme, f"one of {', '.join(f'{name}://' for name in sorted(_STORES))}")
        raise InputError(
            f"warehouses are not read at {scheme}:, got {shortened(shown)}. Write {instead}; or a path."
        )
    match = re.fullmatch(r"[^:]+://([^/?#]+)(/[^?#]*)?", text)
    if match is not None and (":" in match[1] or ("@" in match[1] and scheme in _WITHOUT_USERS)):
        raise InputError(  # without the address: what is before the first / may be half of a password
            f"an address {scheme}:// has a user or a password. Write {scheme}://, then the bucket, then the "
            "folder, and pass credentials in the storage options."
        )
    if match is None:
        raise InputError(
            f"{shortened(shown)} is no address of a store. Write {scheme}://, then the bucket, then the "
            "folder."
        )
    return f"{scheme}://{match[1]}{match[2] or ''}".rstrip("/")


def _served(text: str, given: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The address of a warehouse behind a server, and its options: among tokens only that of this origin."""
    match = _SERVED.fullmatch(text.rstrip("/"))
    host = (match["bare"] or match["host"]).lower() if match else ""
    if match is None or int(match["port"] or 1) not in range(1, 2**16):
        raise InputError(  # without the address: it may have a password
            "an address of a server is https://, then the host, with a port where it has one, then the name "
            "of the warehouse there: https://tidemark.example:8443/flights. A token goes into the storage "
            "options. An object store has the form s3://bucket/folder; its endpoint goes there, too."
        )
    if match["scheme"].lower() == "http" and not _is_this_machine(host):
        raise InputError(
            f"http://{match['host']} would get the token, and send the rows, in the clear. Write https://; "
            "http:// is for servers on this machine."
        )
    origin = origin_of(text) or ""
    token = {} if "token" in given else _token_of(origin)
    return f"{origin}{match['path']}", {**token, **given}


def origin_of(place: object) -> str | None:
    """The origin of the address of a server, without the usual port; None for other places."""
    match = _ORIGIN.match(place) if isinstance(place, str) else None
    if match is None:
        return None
    scheme, host = match[1].lower(), match[2].lower()
    return f"{scheme}://{host.removesuffix(_PORTS[scheme])}"


def _token_of(origin: str) -> dict[str, str]:
    for one in os.environ.get(TOKENS, "").split():
        place, equals, token = one.partition("=")
        if not equals or not _ORIGIN.fullmatch(place):
            raise InputError(
                f"the variable {TOKENS} must have ORIGIN=TOKEN, several with blanks between them, such as "
                "https://tidemark.example:8443=TOKEN."
            )
        if origin_of(place) == origin:
            return {"token": token}
    return {}


def _is_this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _checked_options(options: Mapping[str, str] | None) -> dict[str, str]:
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise InputError(
            f"storage_options must be a dict of names and values, got {type(options).__name__}. "
            "Example: {'AWS_REGION': 'eu-central-1'}."
        )
    for name, value in options.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InputError(
                f"storage_options must have text as names and values; the value of {name!r} is of type "
                f"{type(value).__name__}. Write it as text, such as 'true'."
            )
    return dict(options)


def _from_environment(given: Mapping[str, str]) -> dict[str, str]:
    """The variables that delta-rs reads, without those that the caller gives in any spelling."""
    spelled = {_plain(name) for name in given}
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_ENVIRONMENT) and _plain(name) not in spelled
    }


def _plain(name: str) -> str:
    return re.sub("^(aws|azure|google)_", "", name.lower())
