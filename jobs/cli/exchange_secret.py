"""The secret of an exchange, from its file."""

from __future__ import annotations

from pathlib import Path


def secret_of(path: str) -> bytes:
    """The bytes of the file without white space around them. InputError for fewer than 16 or more than 64."""
    from tidemark.sketches.errors import InvalidInput
    from tidemark.sketches.sites.envelope import checked_secret
    from tidemark.warehouse.errors import InputError

    try:
        return checked_secret(Path(path).read_bytes().strip())
    except InvalidInput as error:
        raise InputError(
            f"the file {path}: {error}. It is the same at all places; `openssl rand -hex 32` makes one."
        ) from error
