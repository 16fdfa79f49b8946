"""Tokens: what stands for the values of a private column in the tables.

A token is a keyed hash (BLAKE2b, 16 bytes) of the value's text. A whole number and its decimal digits as text
have the same token, whatever the type: CSV, the command line and SQL do not tell 5 from '5'. Equal values
have equal tokens; nothing else can be compared.
"""

from __future__ import annotations

import re
from typing import Any

from tidemark.warehouse.errors import InputError
from tidemark.warehouse.private.secrets import TOKEN_BYTES, asking_secret, named_fingerprint, secret_of

PREFIX = "token:"
_TEXT = re.compile(rf"{PREFIX}[0-9a-f]{{{2 * TOKEN_BYTES}}}")


class Token(bytes):
    """A token: 16 bytes. As text it is 'token:' and 32 hexadecimal digits, and is taken in this form, too."""

    __slots__ = ()

    def __str__(self) -> str:
        """The text form."""
        return f"{PREFIX}{self.hex()}"

    def __repr__(self) -> str:
        """The text form, in quotes."""
        return repr(str(self))


def canonical(value: Any) -> bytes | None:
    """The bytes of which the token of a value is made; None for a value that a private column cannot have."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return str(value).encode()
    if isinstance(value, str):
        try:
            return value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:  # half of a character, which no row can have
            return None
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None


def token_of(value: Any) -> Token | None:
    """The token that a value is, or is the text form of; None for another value."""
    if isinstance(value, str) and _TEXT.fullmatch(value):
        return Token(bytes.fromhex(value.removeprefix(PREFIX)))
    return value if isinstance(value, Token) else None


def asked_token(fingerprint: str, value: Any) -> Token:
    """The token that a question means by a value: a token as it is, else that of the value.

    InputError for a value of another type, and for one that is no token if this process has no secret. The
    errors do not show the value.
    """
    if (found := token_of(value)) is not None:
        return found
    name = canonical(value)
    if name is None:
        raise InputError(
            f"a private column has text, bytes and whole numbers, got a value of the type "
            f"{type(value).__name__}. Give one of these, or a token."
        )
    return Token(asking_secret(fingerprint).token(name))


def token(value: Any, fingerprint: str | None = None) -> Token:
    """The token of a value of a private column, which questions and SQL take in its place. O(length).

    value         text, bytes or a whole number; text that looks like a token is a value here, too
    fingerprint   that of the secret; None: this process has one alone

    InputError for a value of another type, and if this process does not have the secret (`use_secret`).
    """
    name = canonical(value)
    if name is None:
        raise InputError(
            "a token is made of text, bytes or a whole number, got a value of the type "
            f"{type(value).__name__}."
        )
    return Token(secret_of(named_fingerprint() if fingerprint is None else fingerprint).token(name))
