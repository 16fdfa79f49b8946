"""The page for people at `/`: files of this folder, read once, which have no data and need no token."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FOLDER = Path(__file__).parent / "page"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
}


def routes() -> Iterator[Route]:
    """The addresses of the files."""
    for file in sorted(FOLDER.iterdir()):
        if file.suffix in _TYPES:
            address = "/" if file.name == "index.html" else f"/page/{file.name}"
            yield Route(address, partial(_file, file.read_bytes(), _TYPES[file.suffix]), methods=["GET"])


async def _file(content: bytes, kind: str, _: Request) -> Response:
    return Response(content, headers={"content-type": kind})
