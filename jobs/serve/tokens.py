"""Bearer tokens with rights by warehouse: stored as hashes, compared in constant time, read again if changed.

A line of the file is the name of who has the token, the SHA-256 of the token, and the rights by warehouse:

    grafana sha256:9f86d0... flights=aggregates,metrics
    ann     sha256:60303a... *=aggregates,rows,sql

    aggregates   all questions but those below
    rows         largest and smallest, which show values of single rows
    sql          conditions and expressions as text of SQL
    metrics      /metrics
    files        the files of the warehouse, which are all of its rows: for query.open("https://...")

`*` is every warehouse. A token has 256 random bits, so its hash needs no salt and no slow function.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidemark.warehouse.errors import InputError, SystemRefused

RIGHTS = ("aggregates", "rows", "sql", "metrics", "files")
EVERY = "*"
_LONGEST = 512  # characters of a token
_LINE = re.compile(r"(\S+)\s+sha256:([0-9a-f]{64})((?:\s+[\w*]+=[a-z,]+)+)")
_log = logging.getLogger("tidemark.serve")


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token allows. digest: the SHA-256 of the token. rights: by warehouse, `*` for every one."""

    name: str
    digest: str
    rights: Mapping[str, frozenset[str]]

    def may(self, right: str, warehouse: str) -> bool:
        """Whether the token has the right in the warehouse."""
        return right in self.rights.get(warehouse, self.rights.get(EVERY, frozenset()))


def new_token() -> str:
    """A token of 256 random bits."""
    return secrets.token_urlsafe(32)


def digest_of(token: str) -> str:
    """The stored form of a token: its hash."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def all_rights(name: str, token: str) -> Grant:
    """The grant of a token with all rights in every warehouse."""
    return Grant(name, digest_of(token), {EVERY: frozenset(RIGHTS)})


def parse_rights(texts: Iterable[str]) -> dict[str, frozenset[str]]:
    """The rights by warehouse of texts such as "flights=aggregates,metrics"; InputError for others."""
    rights: dict[str, frozenset[str]] = {}
    for text in texts:
        warehouse, equals, names = text.partition("=")
        found = frozenset(filter(None, names.split(",")))
        unknown = sorted(found - set(RIGHTS))
        if (
            not equals
            or not re.fullmatch(r"\w+|\*", warehouse)
            or not found
            or unknown
            or warehouse in rights
        ):
            raise InputError(
                f"not rights of a warehouse: {text!r}. Expected NAME=RIGHT,RIGHT, each name once, `*` for "
                f"every warehouse. There are: {', '.join(RIGHTS)}."
            )
        rights[warehouse] = found
    return rights


def line_of(grant: Grant) -> str:
    """The line of the file that has the grant."""
    rights = (f"{name}={','.join(sorted(own))}" for name, own in grant.rights.items())
    return f"{grant.name} sha256:{grant.digest} {' '.join(rights)}\n"


def parse_grants(text: str, place: str) -> tuple[Grant, ...]:
    """The grants of a file's text; InputError with the number of the first line that is no grant."""
    grants = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise InputError(
                f"{place}, line {number}: expected NAME sha256:HASH WAREHOUSE=RIGHTS ... Make one with: "
                "tidemark token NAME --grant WAREHOUSE=RIGHTS --tokens FILE"
            )
        grants.append(Grant(match[1], match[2], parse_rights(match[3].split())))
    return tuple(grants)


class Tokens:
    """The grants that count now: given ones, and those of a file, which is read again when it changes.

    Safe to share between threads.
    """

    def __init__(self, given: Iterable[Grant] = (), file: Path | None = None) -> None:
        """InputError for a file that cannot be read or has a line that is no grant."""
        self._given, self._file, self._lock = tuple(given), file, threading.Lock()
        self._seen: object = None
        self._grants: tuple[Grant, ...] = ()
        self._problem: str | None = None
        self._look()
        if self._problem is not None:
            raise InputError(self._problem)

    def find(self, token: str) -> Grant | None:
        """The grant of a token; None if nobody has it.

        SystemRefused while the file cannot be read or has a line that is no grant: then nobody comes in,
        because the token may be one that was taken out of the file.
        """
        self._look()
        if self._problem is not None:
            raise SystemRefused("the server cannot read its file of tokens; its log says why.")
        if len(token) > _LONGEST:
            return None
        digest, found = digest_of(token), None
        for grant in (*self._given, *self._grants):
            if hmac.compare_digest(grant.digest, digest):
                found = grant
        return found

    def _look(self) -> None:
        if self._file is None:
            return
        with self._lock:
            try:
                now = self._file.stat()
                seen = (now.st_mtime_ns, now.st_size, now.st_ino)
                if seen == self._seen:
                    return
                grants = parse_grants(self._file.read_text(encoding="utf-8"), f"the file {self._file}")
            except (OSError, ValueError) as error:  # InputError is a ValueError
                problem = str(error) if isinstance(error, InputError) else f"--tokens {self._file}: {error}."
                if problem != self._problem:
                    _log.warning("nobody comes in: %s", problem)
                self._problem, self._seen = problem, None
                return
            self._grants, self._problem, self._seen = grants, None, seen
