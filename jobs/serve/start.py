"""`tidemark serve`, `mcp` and `token`: from the arguments to a server, and to a token."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark import query
from tidemark.jobs.ask.quantiles import parse_span
from tidemark.jobs.cli.exit_codes import DONE
from tidemark.jobs.cli.named_warehouses import is_local_address, named_warehouses
from tidemark.jobs.cli.options import parsed, shared
from tidemark.jobs.cli.stop_signals import stop_on_signals
from tidemark.jobs.serve.tokens import Grant, Tokens, all_rights, digest_of, line_of, new_token, parse_rights
from tidemark.query.reading.budgets import share_scans
from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.columns.ticks import width_us
from tidemark.warehouse.errors import InputError

if TYPE_CHECKING:
    import uvicorn

    from tidemark.jobs.serve.question_queue import QuestionQueue

_EXTRA = ("starlette", "uvicorn", "prometheus_client")
GRACE_SECONDS = 10  # for questions that are being answered when the server stops


def run(given: argparse.Namespace) -> int:
    """Serves until SIGTERM or Ctrl-C."""
    check_installed("serve", _EXTRA)
    from tidemark.jobs.serve.app import Served
    from tidemark.jobs.serve.hosts import LOCAL_NAMES
    from tidemark.jobs.serve.metrics import PHIS, Metrics

    secure = _check_door(given)
    printed, tokens = _tokens(given)
    queue, stopping = queue_of(given), threading.Event()
    warehouses = opened_warehouses(given)
    metrics = Metrics(warehouses, given.metrics_phi or PHIS, parse_span(given.metrics_last))
    served = Served(warehouses, tokens, queue, metrics)
    app = served.application([*LOCAL_NAMES, given.host, *given.allow_host], given.allow_origin)
    with listening(given.host, given.port) as door, stop_on_signals(stopping):
        server = server_of(app, stopping, given.certificate, given.private_key)
        port, host = door.getsockname()[1], f"[{given.host}]" if ":" in given.host else given.host
        address = f"{'https' if secure else 'http'}://{host}:{port}/"
        _say(given, address, list(warehouses), printed)
        asyncio.run(server.serve(sockets=[door]))
        queue.close()
        metrics.close()
    return DONE


def run_mcp(given: argparse.Namespace) -> int:
    """Answers an assistant until stdin ends."""
    check_installed("mcp", ("mcp",))
    from tidemark.jobs.serve.mcp_server import talk, tool_server
    from tidemark.jobs.serve.mcp_tools import Tools

    queue, warehouses = queue_of(given), opened_warehouses(given)
    if private := [name for name, wh in warehouses.items() if wh.options.private]:
        raise InputError(
            f"the warehouse {private[0]!r} has private columns, and assistants would be "
            "told names. Ask by query.open, where the secret is."
        )
    try:
        talk(tool_server(Tools(warehouses, given.tool), queue))
    finally:
        queue.close()
    return DONE


def check_installed(command: str, modules: Sequence[str]) -> None:
    """InputError if modules of the command's extra, which has its name, are not installed."""
    if missing := [name for name in modules if importlib.util.find_spec(name) is None]:
        raise InputError(
            f"`tidemark {command}` needs {', '.join(missing)}. Install the extra: "
            f"pip install 'tidemark[{command}]'."
        )


def queue_of(given: argparse.Namespace) -> QuestionQueue:
    """The queue that the arguments describe; InputError for numbers that are too small."""
    for name, least in (("parallel", 1), ("queue", 0)):
        if getattr(given, name) < least:
            raise InputError(f"--{name} must be at least {least}, got {getattr(given, name)}.")
    from tidemark.jobs.serve.question_queue import QuestionQueue

    share_scans(given.parallel)
    return QuestionQueue(given.parallel, given.queue, width_us(given.timeout) / 1e6)


def opened_warehouses(given: argparse.Namespace) -> dict[str, query.Warehouse]:
    """The warehouses by name, opened; that of the environment variable if none is named."""
    texts = list(given.warehouse or filter(None, [os.environ.get(shared.VARIABLE)]))
    if not texts:
        raise InputError("no warehouse was named. Give --warehouse NAME=PATH.")
    options = parsed.storage_options_of(given)
    return {
        name: query.open(uri, options, memory=given.memory, max_staleness=given.max_staleness)
        for name, uri in named_warehouses(texts).items()
    }


def _tokens(given: argparse.Namespace) -> tuple[str | None, Tokens]:
    """The tokens of the file; without a file one token with all rights, which is printed."""
    if given.tokens:
        return None, Tokens(file=Path(given.tokens))
    token = new_token()
    return token, Tokens([all_rights("printed", token)])


def _check_door(given: argparse.Namespace) -> bool:
    """Whether the server speaks TLS itself; InputError where it has to and cannot."""
    if bool(given.certificate) != bool(given.private_key):
        raise InputError("--certificate and --private-key belong together. Give both, or none.")
    if given.certificate:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(given.certificate, given.private_key)
        except (OSError, ssl.SSLError) as error:
            raise InputError(
                f"--certificate {given.certificate} with its key cannot be used: {error}."
            ) from error
    elif not given.behind_proxy and not is_local_address(given.host):
        raise InputError(
            f"{given.host or 'every address'} can be reached from outside, and tokens would cross the "
            "network in the clear. Give --certificate and --private-key, or --behind-proxy if a proxy in "
            "front speaks TLS."
        )
    return bool(given.certificate)


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens on the address until the end of the block; InputError where that is refused."""
    from tidemark.jobs.serve.connections import Door

    if not 0 <= port < 2**16:
        raise InputError(f"--port must be a number from 0 to 65,535, got {port}.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        door = socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        told = error.strerror or error
        raise InputError(f"cannot listen on {host}:{port}: {told}. Give another address.") from error
    with Door(fileno=door.detach()) as opened:
        # Head and body of an answer are two packets. asyncio sets this only where a socket names TCP, so the
        # body would wait 40 ms for the acknowledgement of the head. Connections inherit it.
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield opened


def server_of(
    app: Any, stopping: threading.Event, certificate: str | None = None, private_key: str | None = None
) -> uvicorn.Server:
    """The server of an application; it ends once `stopping` is set. With a certificate it speaks TLS."""
    import uvicorn

    from tidemark.jobs.serve.connections import HEAD_BYTES, KEEP_SECONDS, GuardedProtocol

    class Server(uvicorn.Server):
        """Whoever runs it handles the signals."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

        async def on_tick(self, counter: int) -> bool:
            return await super().on_tick(counter) or stopping.is_set()

    return Server(
        uvicorn.Config(
            app,
            http=GuardedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",  # not a line for each request that is no HTTP
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
            h11_max_incomplete_event_size=HEAD_BYTES,
            ssl_certfile=certificate,
            ssl_keyfile=private_key,
        )
    )


def _say(given: argparse.Namespace, address: str, names: list[str], token: str | None) -> None:
    if given.json:
        facts = {"url": address, "warehouses": names, **({} if token is None else {"token": token})}
        print(json_text(facts), flush=True)
        return
    print(f"serving {', '.join(names)} at {address}", flush=True)
    if token is not None:
        print(f"token: {token}", flush=True)


def run_token(given: argparse.Namespace) -> int:
    """Makes a token, adds its line to the file, and prints the token, which is stored nowhere."""
    if not given.name.strip() or len(given.name.split()) > 1 or given.name.startswith("#"):
        raise InputError(f"the name of a token is one word, got {given.name!r}.")
    token = new_token()
    line = line_of(Grant(given.name, digest_of(token), parse_rights(given.grant)))
    try:
        descriptor = os.open(given.tokens, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as file:
            file.write(line)
    except OSError as error:
        raise InputError(f"--tokens {given.tokens} cannot be written: {error.strerror}.") from error
    print(json_text({"name": given.name, "token": token}) if given.json else token)
    return DONE
