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

_TEXT = re.compile(rf"token([2-9]|[1-9][0-9]+)?:([0-9a-f]{{{2 * TOKEN_BYTES}}})")


class Token(bytes):
    """A token: 16 bytes. As text it is 'token:' and 32 hexadecimal digits, and is taken in this form, too.

    `secrets` is the number of the secrets that made it, one after the other: if there are several, because
    the secret was rotated, the text begins with 'token2:', 'token3:' ...
    """

    secrets: int

    def __new__(cls, value: bytes, secrets: int = 1) -> Token:
        """The token of these bytes."""
        found = super().__new__(cls, value)
        found.secrets = secrets
        return found

    def __str__(self) -> str:
        """The text form."""
        return f"{text_prefix(self.secrets)}{self.hex()}"

    def __repr__(self) -> str:
        """The text form, in quotes."""
        return repr(str(self))


def text_prefix(secrets: int) -> str:
    """With what the text of tokens of so many secrets begins."""
    return "token:" if secrets == 1 else f"token{secrets}:"


def secrets_of(fingerprint: str) -> int:
    """The number of the secrets with this fingerprint."""
    return fingerprint.count("-") + 1


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
    if isinstance(value, str) and (match := _TEXT.fullmatch(value)):
        return Token(bytes.fromhex(match[2]), int(match[1] or 1))
    return value if isinstance(value, Token) else None


def asked_token(fingerprint: str, value: Any) -> Token:
    """The token that a question means by a value: a token as it is, else that of the value.

    InputError for a value of another type, for a token of before a rotation, and for a value that is no token
    if this process has no secret. The errors do not show the value.
    """
    number = secrets_of(fingerprint)
    if (found := token_of(value)) is not None:
        if found.secrets != number:
            raise InputError(
                f"a token that begins with {text_prefix(found.secrets)!r} was given, and those of the "
                f"warehouse begin with {text_prefix(number)!r}: the secret was rotated. Make it again: "
                "query.token(value)."
            )
        return found
    name = canonical(value)
    if name is None:
        raise InputError(
            f"a private column has text, bytes and whole numbers, got a value of the type "
            f"{type(value).__name__}. Give one of these, or a token."
        )
    return Token(asking_secret(fingerprint).token(name), number)


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
    own = named_fingerprint() if fingerprint is None else fingerprint
    return Token(secret_of(own).token(name), secrets_of(own))
