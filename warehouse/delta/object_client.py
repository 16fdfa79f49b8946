"""A client of an object store: one request reads an object, writes it, or writes it only if it is new.

delta-rs puts a new file with three requests, one after the other, and the parts of a large file in turn. Its
commit takes five requests. Before a read it asks for the size of the file, unless its client was made with
the size. obstore needs one request for a small new file, a commit or a read, and its client keeps its
connections. Both use the same library (object_store). obstore also takes a folder of this machine as a store.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from tidemark.warehouse.delta import retries

PART_BYTES = 2**23  # of an object that is written in parts
PARTS_AT_ONCE = 4
_READS = 3
_STOPPED = "request or response body error"


class ObjectClient:
    """The objects below one address. Safe to share between threads. Errors are OSError."""

    def __init__(self, uri: str, config: dict[str, str], client: dict[str, str]) -> None:
        from obstore.store import from_url

        with _as_os_errors():
            self._store: Any = from_url(uri, config=config, client_options=client)  # type: ignore[call-overload]

    def get(self, path: str, start: int = 0, stop: int | None = None) -> bytes | None:
        """The bytes start..stop (stop exclusive, None: to the end) of an object; None if there is none.

        The library retries a failed request, but not if the body of a 404 response is cut off.
        """
        from obstore import get, get_range

        options: Any = {"range": {"offset": start}} if start else None
        tries = retries.PATIENCE.begin(_READS)
        while True:
            try:
                with _as_os_errors():
                    if stop is not None:
                        return bytes(get_range(self._store, path, start=start, end=stop))
                    return bytes(get(self._store, path, options=options).bytes())
            except FileNotFoundError:
                return None
            except OSError as error:
                if _STOPPED not in str(error) or not tries.again():
                    raise

    def put(self, path: str, content: bytes) -> None:
        """Puts an object; replaces one that is there."""
        self._put(path, content, "overwrite")

    def put_new(self, path: str, content: bytes) -> None:
        """Puts an object if there is none; else FileExistsError.

        After another error it may be there, too: answers get lost. It is not put again.
        """
        self._put(path, content, "create")

    def delete(self, paths: Sequence[str]) -> None:
        """Deletes objects; those that are not there are no error. One request for 1,000 of them."""
        from obstore import delete

        with suppress(FileNotFoundError), _as_os_errors():
            delete(self._store, paths)

    def names(self, folder: str) -> list[str]:
        """The names of the objects in a folder, in any order. One request for 1,000 of them."""
        from obstore import list as list_objects

        with _as_os_errors():
            batches = list_objects(self._store, folder)
            return [one["path"].rpartition("/")[2] for batch in batches for one in batch]

    def open_writer(self, path: str) -> Upload:
        """A new object that is written in parts: see `Upload`."""
        return Upload(self._store, path)

    def _put(self, path: str, content: bytes, mode: Any) -> None:
        from obstore import put

        with _as_os_errors():
            put(self._store, path, content, mode=mode, use_multipart=False)


class Upload:
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
