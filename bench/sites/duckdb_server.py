"""The peer of the server: DuckDB behind the same HTTP server, `python -m bench.sites.duckdb_server FILE ...`.

It has the server's queue, threads and connections, and answers GET /quantile?phi= with DuckDB's exact
quantile over the files. It prints its port. It ends with SIGTERM.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from typing import Any

import duckdb
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tidemark.jobs.serve.question_queue import Deadline, QuestionQueue
from tidemark.jobs.serve.responses import document
from tidemark.jobs.serve.start import listening, server_of
from tidemark.query.reading.sql_text import parquet_rows

PARALLEL, WAITING, SECONDS = 4, 128, 600.0  # those with which the bench starts tidemark's


def main(files: list[str]) -> None:
    """Serves until it is stopped."""
    connection, own = duckdb.connect(), threading.local()
    connection.execute("SET TimeZone = 'UTC'; SET parquet_metadata_cache = true; SET threads = 1")
    connection.execute(f"CREATE VIEW s AS FROM {parquet_rows(files)}")
    queue = QuestionQueue(PARALLEL, WAITING, SECONDS)

    def ask(phi: float, _: Deadline) -> str:
        if not hasattr(own, "cursor"):
            own.cursor = connection.cursor()
        found = own.cursor.execute("SELECT quantile_disc(value, ?) FROM s", [phi]).fetchone()
        return json.dumps({"answers": [{"phi": phi, "value": found[0]}]})

    async def quantile(request: Request) -> Response:
        phi = float(request.query_params["phi"])

        async def leaves() -> Any:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        return document(await queue.answer(lambda deadline: ask(phi, deadline), leaves))

    app = Starlette(routes=[Route("/quantile", quantile)])
    with listening("127.0.0.1", 0) as door:
        print(json.dumps({"url": f"http://127.0.0.1:{door.getsockname()[1]}/", "token": "none"}), flush=True)
        asyncio.run(server_of(app, threading.Event()).serve(sockets=[door]))


if __name__ == "__main__":
    main(sys.argv[1:])
