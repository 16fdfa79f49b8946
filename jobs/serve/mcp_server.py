"""`tidemark mcp`: the tools of mcp_tools.py over stdin and stdout, for the assistant that started it.

The process ends when its stdin does. A question that the client takes back ends sooner.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import threading
from contextlib import suppress
from functools import partial
from typing import Any

from mcp import MCPError, types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from tidemark.jobs.serve.mcp_tools import INSTRUCTIONS, Tools
from tidemark.jobs.serve.openapi import own_version
from tidemark.jobs.serve.question_queue import QuestionQueue
from tidemark.jobs.serve.responses import as_refused
from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.errors import shortened

MESSAGE_BYTES = 2**21
_log = logging.getLogger("tidemark.serve")


def talk(server: Server[Any]) -> None:
    """Answers until stdin ends, or the client has gone."""
    try:
        asyncio.run(_talk(server))
    except* BrokenPipeError:
        _log.info("the client has gone")


async def _talk(server: Server[Any]) -> None:
    with Lines(asyncio.get_running_loop()) as lines:
        stdin: Any = lines
        async with stdio_server(stdin=stdin) as (reads, writes):
            await server.run(reads, writes, server.create_initialization_options())


def tool_server(tools: Tools, queue: QuestionQueue) -> Server[Any]:
    """The server of the tools; its questions go through the queue."""
    hints = types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
    listed = [
        types.Tool(
            name=tool.name,
            description=tool.description,
            input_schema=dict(tool.schema),
            annotations=hints,
        )
        for tool in tools.listed.values()
    ]

    async def tell(*_: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call(_: object, asked: types.CallToolRequestParams) -> types.CallToolResult:
        if asked.name not in tools.listed:
            raise MCPError(
                types.INVALID_PARAMS,
                f"there is no tool {shortened(asked.name)}. There are: {', '.join(tools.listed)}.",
            )
        try:
            document = await queue.answer(
                partial(tools.answer, asked.name, asked.arguments or {}), asyncio.Event().wait
            )
        except Exception as error:  # noqa: BLE001  each is told, and logged where it is not the client's
            refused = as_refused(error)
            told = {"error": refused.kind, "message": str(refused)}
            return _result(str(refused), told, is_error=True)
        return _result(json_text(document), document)

    return Server(
        "tidemark", version=own_version(), instructions=INSTRUCTIONS, on_list_tools=tell, on_call_tool=call
    )


def _result(text: str, document: dict[str, Any], *, is_error: bool = False) -> types.CallToolResult:
    content = [types.TextContent(type="text", text=text)]
    return types.CallToolResult(content=[*content], structured_content=document, is_error=is_error)


class Lines:
    """The lines of stdin, read by a thread of their own, so that the process can end while it waits for one.

    A message of more than MESSAGE_BYTES ends them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, stdin: int = 0) -> None:
        self._loop, self._stdin, self._queue = loop, stdin, asyncio.Queue[str | None]()
        self._ended, self._end = os.pipe()
        self._thread = threading.Thread(target=self._read, name="tidemark-stdin", daemon=True)

    def __enter__(self) -> Lines:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._end)
        self._thread.join()
        os.close(self._ended)

    def __aiter__(self) -> Lines:
        return self

    async def __anext__(self) -> str:
        line = await self._queue.get()
        if line is None:
            raise StopAsyncIteration
        return line

    def _read(self) -> None:
        rest = b""
        while len(rest) <= MESSAGE_BYTES and (chunk := self._chunk()):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._put(line.decode(errors="replace"))
        if len(rest) > MESSAGE_BYTES:
            _log.warning("a message of more than %s bytes came; the server ends", f"{MESSAGE_BYTES:,}")
        self._put(None)

    def _chunk(self) -> bytes:
        """The next bytes; none at the end of stdin, and once the lines are not read any more."""
        waiting = select.poll()
        for number in (self._stdin, self._ended):
            waiting.register(number, select.POLLIN)
        ready = {number for number, _ in waiting.poll()}
        return b"" if self._ended in ready else os.read(self._stdin, 2**16)

    def _put(self, line: str | None) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._queue.put_nowait, line)
