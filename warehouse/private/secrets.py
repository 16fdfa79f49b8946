"""Secrets of private columns: where they come from, and which secret belongs to a warehouse.

A secret is a line of hexadecimal digits, of at least 32 random bytes (`tidemark secret new`), in a file or in
what a command prints. The secrets that a process has read are kept in memory, by their fingerprints. A
warehouse has the fingerprint alone: a hash keyed by the secret, from which nobody can find the secret.

A secret that is rotated is *wrapped*: the new token is made from the old token with the new secret. So a file
may have several secrets, one a line, the oldest first: each makes tokens from the tokens of the line above.
The fingerprint of such a file is the fingerprints of all its secrets, in this order.

Tokens are keyed hashes, or, where values are to be revealed, *sealed*: AES-SIV (RFC 5297), which encrypts
equal values equally. Then the fingerprint begins with 'reveal:'.

A secret is never part of an option, a log, an error text or a repr. It goes to the tasks that make tokens, in
their pickled form.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark.warehouse.errors import InputError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

LEAST_BYTES, MOST_BYTES = 32, 64  # of a secret; BLAKE2b takes no longer key
TOKEN_BYTES = 16
FILE_VARIABLE, COMMAND_VARIABLE = "TIDEMARK_SECRET_FILE", "TIDEMARK_SECRET_COMMAND"
_LEAST_DISTINCT = 16  # of 32 random bytes, fewer are distinct only once in 10**12 times
_COMMAND_SECONDS = 60
_MOST_READ = 4096
_FINGERPRINT = re.compile(r"(reveal:)?[0-9a-f]{32}(-[0-9a-f]{32})*")
REVEAL = "reveal:"
_MAKE = "Make one: `tidemark secret new --to FILE`."


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret, which may wrap an `older` one; `fingerprint` may be known to everybody.

    seals: whether its tokens are sealed values, and no hashes.
    """

    key: bytes = field(repr=False)
    older: Secret | None = None
    seals: bool = False

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits that belong to this secret alone, after those of the older ones and '-'."""
        own = blake2b(b"", key=self.key, digest_size=TOKEN_BYTES, person=b"tidemark-finger").hexdigest()
        if self.older is not None:
            return f"{self.older.fingerprint}-{own}"
        return f"{REVEAL}{own}" if self.seals else own

    @property
    def sealing(self) -> Secret:
        """The secret, and those that it wraps, with sealed tokens."""
        return Secret(self.key, self.older and self.older.sealing, seals=True)

    def token(self, name: bytes) -> bytes:
        """The token of a value, given as bytes: 16 bytes; if sealed, 17 more than the value. O(length)."""
        return self.wrapped(name if self.older is None else self.older.token(name))

    def wrapped(self, token: bytes) -> bytes:
        """The token that replaces one of the older secrets."""
        if self.seals:
            return _cipher(self.key).encrypt(_NOT_EMPTY + token, None)
        return blake2b(token, key=self.key, digest_size=TOKEN_BYTES, person=b"tidemark-token").digest()

    def revealed(self, token: bytes) -> bytes:
        """The value of a sealed token. ValueError if it was not made by these secrets."""
        from cryptography.exceptions import InvalidTag

        try:
            inside = _cipher(self.key).decrypt(token, None).removeprefix(_NOT_EMPTY)
        except InvalidTag as error:
            raise ValueError("the token was made by another secret") from error
        return inside if self.older is None else self.older.revealed(inside)

    def since(self, fingerprint: str) -> list[Secret]:
        """The secrets that wrap the tokens of this fingerprint, the oldest first, each without older ones.

        InputError if these secrets do not begin with the secrets of the fingerprint.
        """
        if self.fingerprint == fingerprint:
            return []
        if self.older is None:
            raise InputError(
                f"the warehouse has tokens of the secret with the fingerprint {fingerprint}, which is not "
                "the first one that was given. Give its file with a new secret in a further line: "
                "`tidemark secret new --after OLD --to NEW`. Nothing was changed."
            )
        return [*self.older.since(fingerprint), replace(self, older=None)]


_NOT_EMPTY = b"\0"  # before what is sealed: some versions of the cipher refuse to seal nothing


@lru_cache(maxsize=16)
def _cipher(key: bytes) -> AESSIV:
    """AES-SIV with a key of its own, made from the secret."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV
    except ImportError as error:
        raise InputError(
            "values of private columns that can be revealed need the package cryptography. Install it: "
            "pip install 'tidemark[reveal]'."
        ) from error
    return AESSIV(blake2b(b"", key=key, digest_size=64, person=b"tidemark-names").digest())


_known: dict[str, Secret] = {}  # of a file with several secrets, also the secrets without its last ones
_tokens_alone: ContextVar[bool] = ContextVar("tokens_alone", default=False)


def new_secret() -> str:
    """A new secret as text: 64 hexadecimal digits."""
    import secrets

    return secrets.token_hex(LEAST_BYTES)


def use_secret(*, file: str | os.PathLike[str] | None = None, command: str | None = None) -> str:
    """Reads a secret, so that this process can make and ask tokens with it; returns its fingerprint.

    file      a file with the secret: a line of at least 64 hexadecimal digits; or with several, which were
              rotated, the oldest first
    command   a command that prints it, such as 'pass show tidemark'. It is run without a shell

    Without a call, the file of TIDEMARK_SECRET_FILE or the command of TIDEMARK_SECRET_COMMAND is read when a
    warehouse needs a secret. Raises InputError unless one of them is given, and if it gives no secret.
    """
    if (file is None) == (command is None):
        raise InputError("a secret comes from a file or from a command. Give one of them.")
    given: Any = file if command is None else command
    if not isinstance(given, (str, os.PathLike) if command is None else str):
        got = type(given).__name__
        raise InputError(f"the file of a secret is text or a Path, and its command is text, got {got}.")
    secret = _parsed(_printed(command), "the command") if command is not None else _of_file(str(file))
    part: Secret | None = secret
    while part is not None:
        _known[part.fingerprint] = part
        part = part.older
    return secret.fingerprint


def secret_of(fingerprint: str) -> Secret:
    """The secret with this fingerprint. InputError if this process has none, or only others."""
    _read_variables()
    found = _known.get(fingerprint.removeprefix(REVEAL))
    if found is not None:
        return found.sealing if fingerprint.startswith(REVEAL) else found
    what = "another secret was given" if _known else "no secret was given"
    if any(fingerprint.removeprefix(REVEAL).startswith(f"{known}-") for known in _known):
        what = "its secret was rotated since the one that was given"
    raise InputError(
        f"the warehouse has private columns, and {what}. Expected the one with the fingerprint "
        f"{fingerprint}: set {FILE_VARIABLE} to its file, or call warehouse.use_secret(file=...). Nothing "
        "was changed."
    )


def asking_secret(fingerprint: str) -> Secret:
    """The secret by which this process makes tokens of the values in questions.

    InputError if it has none, and where only tokens may come (`tokens_alone`).
    """
    if not _tokens_alone.get():
        return secret_of(fingerprint)
    raise InputError(
        "a value of a private column was given where only its token may come. Send the token: "
        "query.token(value), where the secret is."
    )


def takes_tokens_alone() -> bool:
    """Whether `tokens_alone` is running."""
    return _tokens_alone.get()


@contextmanager
def tokens_alone() -> Iterator[None]:
    """Inside, questions of this thread may have tokens alone: their text is stored or sent on as it is."""
    before = _tokens_alone.set(True)
    try:
        yield
    finally:
        _tokens_alone.reset(before)


def is_fingerprint(text: object) -> bool:
    """Whether the value is the text of a fingerprint."""
    return isinstance(text, str) and _FINGERPRINT.fullmatch(text) is not None


def named_fingerprint() -> str:
    """The fingerprint of the secret that the environment names, or else of the only one of this process.

    InputError if there is none, or several.
    """
    found = _read_variables() or newest_fingerprints()
    if len(found) != 1:
        raise InputError(
            f"private columns need a secret, and this process has {len(found) or 'none'}. Give "
            f"secret_file=, or set {FILE_VARIABLE}. {_MAKE}"
        )
    return found[0]


def newest_secret(fingerprint: str) -> Secret:
    """The secret of this process that wraps the one with this fingerprint, or that one itself.

    InputError if there is none, or several.
    """
    _read_variables()
    wrapped = f"{fingerprint.removeprefix(REVEAL)}-"
    found = [one for one in newest_fingerprints() if f"{one}-".startswith(wrapped)]
    if len(found) != 1:
        secret_of(fingerprint)  # its error tells more
        raise InputError(
            f"{len(found)} secrets of this process wrap the one with the fingerprint {fingerprint}. Give the "
            "file of one. Nothing was changed."
        )
    return secret_of(f"{REVEAL}{found[0]}" if fingerprint.startswith(REVEAL) else found[0])


def newest_fingerprints() -> list[str]:
    """The fingerprints of the secrets of this process that no other secret of the process wraps."""
    wrapped = {one.older.fingerprint for one in _known.values() if one.older is not None}
    return [fingerprint for fingerprint in _known if fingerprint not in wrapped]


def _read_variables() -> list[str]:
    """The fingerprint of the secret that the environment names, which is read once; none if it names none."""
    found = []
    for variable, name in ((FILE_VARIABLE, "file"), (COMMAND_VARIABLE, "command")):
        if given := os.environ.get(variable):
            source = str(Path(os.path.expanduser(given)).absolute()) if name == "file" else given
            if _read.get(source) not in _known:
                _read[source] = use_secret(**{name: given})
            found.append(_read[source])
    return found[:1]


_read: dict[str, str] = {}  # fingerprints by what the environment named


def _of_file(path: str) -> Secret:
    try:
        with Path(os.path.expanduser(path)).open("rb") as file:
            return _parsed(file.read(_MOST_READ + 1), f"the file {path}")
    except OSError as error:
        raise InputError(f"the secret cannot be read: {error.strerror} ({path}). {_MAKE}") from None
    except ValueError as error:  # NUL, or half of a surrogate pair
        raise InputError(f"the secret cannot be read: no path of a file ({error}). {_MAKE}") from None


def _printed(command: str) -> bytes:
    import shlex
    import subprocess

    try:
        done = subprocess.run(  # noqa: S603  the caller's own command
            shlex.split(command), capture_output=True, timeout=_COMMAND_SECONDS, check=False
        )
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:  # IndexError: no word
        raise InputError(f"the command of the secret cannot be run ({type(error).__name__}).") from None
    if done.returncode:
        raise InputError(f"the command of the secret ended with the exit code {done.returncode}.")
    return done.stdout


def _parsed(text: bytes, where: str) -> Secret:
    """The secret of lines of digits. The error does not show what came."""
    try:
        keys = [bytes.fromhex(line.strip()) for line in text.decode("ascii").strip().splitlines()]
    except ValueError:
        keys = []
    if (
        not keys
        or len(text) > _MOST_READ
        or not all(LEAST_BYTES <= len(key) <= MOST_BYTES and len({*key}) >= _LEAST_DISTINCT for key in keys)
    ):
        raise InputError(
            f"{where} has no secret: expected a line of {2 * LEAST_BYTES} to {2 * MOST_BYTES} random "
            f"hexadecimal digits, or such a line for each secret, the oldest first. {_MAKE}"
        )
    first, *later = keys
    return reduce(lambda older, key: Secret(key, older), later, Secret(first))
