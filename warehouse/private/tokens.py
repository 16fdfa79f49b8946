"""Tokens: they stand for the values of a private column in the tables.

A token is a keyed hash (BLAKE2b, 16 bytes) of the value's text, or the text itself, sealed. A whole number
and its decimal digits as text have the same token, whatever the type: CSV, the command line and SQL do not
tell 5 from '5'. Equal values have equal tokens; nothing else can be compared.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from tidemark.warehouse.errors import InputError
from tidemark.warehouse.private.secrets import (
    REVEAL,
    TOKEN_BYTES,
    asking_secret,
    named_fingerprint,
    secret_of,
)

_TEXT = re.compile(rf"((?:token|sealed)(?:[2-9]|[1-9][0-9]+)?:)((?:[0-9a-f]{{2}}){{{TOKEN_BYTES},}})")
_HASHED, _SEALED = "token", "sealed"


class Token(bytes):
    """A token. As text it is its `prefix` and hexadecimal digits, and is taken in this form, too.

    The prefix is 'token:' of a keyed hash, of 16 bytes, and 'sealed:' of a value that can be revealed. If
    several secrets made it, one after the other, because the secret was rotated, it is 'token2:' or
    'sealed2:', 'token3:' ...
    """

    prefix: str

    def __new__(cls, value: bytes, prefix: str = f"{_HASHED}:") -> Token:
        """The token of these bytes."""
        found = super().__new__(cls, value)
        found.prefix = prefix
        return found

    def __str__(self) -> str:
        return f"{self.prefix}{self.hex()}"

    def __repr__(self) -> str:
        return repr(str(self))


@lru_cache(maxsize=1024)
def text_prefix(fingerprint: str) -> str:
    """The beginning of the text of tokens made by the secret with this fingerprint."""
    number = fingerprint.count("-") + 1
    return f"{_SEALED if fingerprint.startswith(REVEAL) else _HASHED}{number if number > 1 else ''}:"


def made_by(token: Token, fingerprint: str) -> str:
    """The fingerprint of the secrets, among these that wrap each other, that made a sealed token."""
    number = int(token.prefix[len(_SEALED) : -1] or 1)
    return REVEAL + "-".join(fingerprint.removeprefix(REVEAL).split("-")[:number])


def utf8_of(value: Any) -> bytes | None:
    """The bytes of a text; None for any other value, and for text that no row can have."""
    try:
        return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else None
    except UnicodeEncodeError:  # half of a character, which no row can have
        return None


def canonical(value: Any) -> bytes | None:
    """The bytes of which the token of a value is made; None for a value that a private column cannot have."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return str(value).encode()
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else utf8_of(value)


def token_of(value: Any) -> Token | None:
    """The token that a value is, or is the text form of; None for another value."""
    if isinstance(value, str) and (match := _TEXT.fullmatch(value)):
        return Token(bytes.fromhex(match[2]), match[1])
    return value if isinstance(value, Token) else None


def asked_token(fingerprint: str, value: Any) -> Token:
    """The token that a question means by a value: a token as it is, else that of the value.

    InputError for a value of another type, for a token of before a rotation, and for a value that is no token
    if this process has no secret. The errors do not show the value.
    """
    prefix = text_prefix(fingerprint)
    if (found := token_of(value)) is not None:
        if found.prefix != prefix:
            raise InputError(
                f"a token that begins with {found.prefix} was given, and those of the warehouse begin with "
                f"{prefix} instead. If the secret was rotated, make it again: query.token(value, "
                "wh.options.fingerprint)."
            )
        return found
    name = canonical(value)
    if name is None:
        raise InputError(
            f"a private column has text, bytes and whole numbers, got a value of the type "
            f"{type(value).__name__}. Give one of these, or a token."
        )
    return Token(asking_secret(fingerprint).token(name), prefix)


def token(value: Any, fingerprint: str | None = None, *, reveal: bool = False) -> Token:
    """The token of a value of a private column, which questions and SQL take in its place. O(length).

    value         text, bytes or a whole number; text that looks like a token is a value here, too
    fingerprint   that of the secret, as the options of the warehouse have it; None: this process has one
                  alone
    reveal        without a fingerprint: whether the warehouse was created with `reveal`

    InputError for a value of another type, and if this process does not have the secret (`use_secret`).
    """
    name = canonical(value)
    if name is None:
        raise InputError(
            "a token is made of text, bytes or a whole number, got a value of the type "
            f"{type(value).__name__}."
        )
    if fingerprint is None:
        fingerprint = f"{REVEAL if reveal else ''}{named_fingerprint()}"
    return Token(secret_of(fingerprint).token(name), text_prefix(fingerprint))


def reveal(value: Any, fingerprint: str | None = None) -> str:
    """The text of which a token was made, in a warehouse that was created with `reveal`. O(length).

    value         a token, such as the value of an answer, or its text; a record of the table `rejected`, too
    fingerprint   as in `token`

    InputError if it is no such token, or if this process does not have the secret that made it.
    """
    found = token_of(value)
    if found is None or not found.prefix.startswith(_SEALED):
        what = "no token" if found is None else "the hash of a value"
        raise InputError(
            f"what was given is {what}, which is not revealed. Expected a token of a warehouse that was "
            "created with reveal=True: its text begins with 'sealed'."
        )
    own = named_fingerprint() if fingerprint is None else fingerprint.removeprefix(REVEAL)
    try:
        made = secret_of(made_by(found, own)).revealed(found)
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{error}. Give the fingerprint of its own: wh.options.fingerprint.") from None
    return made.decode("utf-8", "surrogateescape")
