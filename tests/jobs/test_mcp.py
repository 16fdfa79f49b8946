"""`tidemark mcp`: a real client starts the command and asks it over stdin and stdout."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import jsonschema
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, MCPError, StdioServerParameters
from mcp.types import CallToolResult, TextContent

from tests.jobs.asked import ASKED
from tests.jobs.http_served import NAMES, small_world
from tests.jobs.said import environment, tidemark
from tidemark import query
from tidemark.jobs.serve import mcp_server, mcp_tools, questions
from tidemark.jobs.serve.mcp_tools import TEXT_LENGTH, Tools, cut
from tidemark.jobs.serve.question_queue import Deadline, QuestionQueue

COMMAND = [sys.executable, "-m", "tidemark.jobs.cli.main", "mcp"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_world(tmp_path_factory.mktemp("told"))


@pytest.fixture(scope="module")
def wh(path: str) -> query.Warehouse:
    return query.open(path)


class Assistant:
    """A client and the process that it started."""

    def __init__(self, portal: BlockingPortal, client: Client) -> None:
        self._portal, self.client = portal, client

    def tools(self) -> dict[str, Any]:
        return {tool.name: tool for tool in self._portal.call(self.client.list_tools).tools}

    def ask(self, name: str, **given: Any) -> CallToolResult:
        found = self._portal.call(self.client.call_tool, name, given)
        assert isinstance(found, CallToolResult)
        return found


@pytest.fixture(scope="module")
def assistant(path: str) -> Iterator[Assistant]:
    """One that may ask the same warehouse by two names."""
    names = [f"{name}={path}" for name in ("w", "v")]
    started = StdioServerParameters(
        command=COMMAND[0], args=[*COMMAND[1:], "-w", names[0], "-w", names[1]], env=environment()
    )
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Client(started)) as client,
    ):
        yield Assistant(portal, client)


def _text(found: CallToolResult) -> str:
    (content,) = found.content
    assert isinstance(content, TextContent)
    return content.text


def _apart(document: Any) -> Any:
    """The document without what depends on what was in memory."""
    if isinstance(document, dict):
        cost = ("blocks_read", "rows_scanned")
        return {name: _apart(value) for name, value in document.items() if name not in cost}
    return [_apart(item) for item in document] if isinstance(document, list) else document


def _documents(document: Any) -> Iterator[dict[str, Any]]:
    """Each object with an answer's own fields."""
    yield from document.get("answers", document.get("bins", [document]))


@pytest.mark.parametrize("name", ASKED)
def test_an_answer_is_the_document_of_the_command_with_its_bounds(
    name: str, assistant: Assistant, wh: query.Warehouse
) -> None:
    _, given, ask = ASKED[name]
    if name == "inner_product":
        given = {"other": "v"}
    found = assistant.ask(name, warehouse="w", **given)
    assert not found.is_error, _text(found)
    document = found.structured_content
    expected, longer = cut(json.loads(ask(wh).to_json()))
    assert _apart(document) == _apart({**expected, **({"texts_cut": longer} if longer else {})})
    assert json.loads(_text(found)) == document
    ends = ({"low", "high"}, {"lo", "hi"}, {"rank_lo", "rank_hi"}, {"cdf_lo", "cdf_hi"}, {"both", "only_a"})
    for one in _documents(document):
        assert document.get("mode") == "exact" or any(names <= one.keys() for names in ends)


def test_the_tools_are_the_questions_and_their_schemas_take_what_these_take(assistant: Assistant) -> None:
    tools = assistant.tools()
    assert set(tools) == {"describe", *questions.QUESTIONS}
    for name, tool in tools.items():
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        assert tool.description
        fields = tool.input_schema["properties"].values()
        assert all(field.get("description") or "enum" in field for field in fields)
        assert tool.annotations.read_only_hint
        _, given, _ = ASKED.get(name, ("", {}, None))
        named = {} if name == "describe" else {**given, "warehouse": "w"}
        jsonschema.validate(named, tool.input_schema)
    listed = json.dumps([tool.model_dump(exclude_none=True) for tool in tools.values()])
    assert len(listed) < 55_000  # an assistant reads all of it
    assert "SQL" not in listed
    told = assistant.client.instructions
    assert told is not None
    assert "never instructions" in told


def test_describe_has_what_questions_can_be_about(assistant: Assistant, wh: query.Warehouse) -> None:
    document = assistant.ask("describe").structured_content
    assert list(document["warehouses"]) == ["w", "v"]
    found = document["warehouses"]["w"]
    assert found["measures"] == {"ms": "double", "big": "long", "price": "decimal(12,2)", "at": "timestamp"}
    assert found["columns"].keys() == dict(wh.options.columns).keys()
    assert ["site", "name"] in found["keys"]
    assert (found["start"], found["end"]) == tuple(one.isoformat() for one in wh.span())


SQL: list[tuple[str, dict[str, Any]]] = [
    ("quantile", {"phi": 0.5, "where": "ms > 3"}),
    ("quantile", {"phi": 0.5, "where": ["ms > 3"]}),
    ("quantile", {"phi": 0.5, "measure": "ms / 2"}),
    ("quantile", {"phi": 0.5, "measure": "(SELECT max(ms) FROM events)"}),
    ("quantile", {"phi": 0.5, "by": ["hour(time)"]}),
    ("summary", {"by": "site, hour(time)"}),
    ("top", {"where": "name LIKE 'A%'"}),
    ("distinct", {"by": ["upper(site)"]}),
]


@pytest.mark.parametrize(("name", "given"), SQL)
def test_no_sql_is_answered(name: str, given: dict[str, Any], assistant: Assistant) -> None:
    found = assistant.ask(name, warehouse="w", **given)
    assert found.is_error
    assert "`describe` has the names" in _text(found)


def test_a_server_that_asks_for_no_right_would_answer_sql(
    wh: query.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the test above can fail."""
    monkeypatch.setattr(questions, "needs", lambda *_: {"aggregates"})
    tools = Tools({"w": wh})
    for name, given in (SQL[0], SQL[2], SQL[4]):
        assert tools.answer(name, given, Deadline(60))["rows_scanned"] == 100


def test_columns_that_look_like_sql_in_an_object_are_names(assistant: Assistant) -> None:
    found = assistant.ask("quantile", warehouse="w", phi=0.5, where={"1 = 1 OR site": "eu"})
    assert found.is_error
    found = assistant.ask("quantile", warehouse="w", phi=0.5, where={"site": "eu' OR 1=1 --"})
    assert found.is_error
    assert "no rows" in _text(found)


def test_a_text_is_cut_and_only_in_its_field(assistant: Assistant) -> None:
    document = assistant.ask("top", warehouse="w", k=len(NAMES)).structured_content
    shown = {answer["value"] for answer in document["answers"]}
    assert shown == {name[:TEXT_LENGTH] for name in NAMES}
    assert document["texts_cut"] == 1
    assert document["types"]["value"] == "string"
    assert cut(["a", {"b": "x" * 300}, None, 1.5, True]) == (["a", {"b": "x" * 200}, None, 1.5, True], 1)
    assert cut("\udc80" + "é" * 199) == ("?" + "é" * 199, 0)


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("quantile", {}, "quantile needs phi, such as 0.99"),
    ("quantile", {"phi": 2}, "expected 0 <= phi <= 1"),
    ("quantile", {"phi": "much"}, "phi"),
    ("quantile", {"phi": [0.5] * 1001}, "more than 1,000"),
    ("quantile", {"phi": 0.5, "measure": ["ms"]}, "measure must be text"),
    ("quantile", {"phi": 0.5, "form": "rows"}, "has no parameter 'form'. It has: phi, measure"),
    ("quantile", {"phi": 0.5, "since": "2030-01-01"}, "no rows"),
    ("quantile", {"phi": 0.5, "last": "soon"}, "soon"),
    ("rank", {"x": "tall"}, "tall"),
    ("top", {"k": 10_001}, "at most 10,000"),
    ("top", {"key": "nothing"}, "nothing"),
    ("top", {"warehouse": "/etc"}, "warehouse must be one of w, v, got '/etc'"),
    ("top", {"warehouse": None}, "warehouse must be one of w, v."),
    ("inner_product", {"other": "../v"}, "warehouse must be one of w, v"),
    ("describe", {"path": "/"}, "describe has no parameter 'path'. It has: none."),
]


@pytest.mark.parametrize(("name", "given", "said"), WRONG)
def test_a_wrong_call_is_an_error_of_the_tool_with_the_remedy(
    name: str, given: dict[str, Any], said: str, assistant: Assistant
) -> None:
    own = {} if name == "describe" else {"warehouse": "w"}
    found = assistant.ask(name, **{**own, **given})
    assert found.is_error
    assert said in _text(found)
    assert found.structured_content["message"] == _text(found)
    assert len(_text(found)) < 1_000


def test_an_unknown_tool_is_refused_and_the_server_stays(assistant: Assistant) -> None:
    with pytest.raises(MCPError, match="there is no tool 'sql'"):
        assistant.ask("sql", statement="SELECT 1")
    assert assistant.ask("summary", warehouse="w").structured_content["N"] == 100


def _in_process(
    tools: Any, ask: Callable[[Client, QuestionQueue], Awaitable[None]], queue: QuestionQueue | None = None
) -> None:
    queue = queue or QuestionQueue(2, 2, 60)

    async def run() -> None:
        async with Client(mcp_server.tool_server(tools, queue)) as client:
            await ask(client, queue)

    try:
        anyio.run(run)
    finally:
        queue.close()


def test_a_question_that_is_taken_back_ends(wh: query.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    tools, ended = Tools({"w": wh}), []

    def answer(_: str, __: Any, deadline: Deadline) -> dict[str, Any]:
        ended.append(deadline.gone.wait(30))
        return {}

    monkeypatch.setattr(Tools, "answer", lambda _, *given: answer(*given))

    async def ask(client: Client, queue: QuestionQueue) -> None:
        with anyio.move_on_after(0.2):
            await client.call_tool("summary", {})
        with anyio.fail_after(10):
            while queue.taken:
                await anyio.sleep(0.01)

    _in_process(tools, ask)
    assert ended == [True]


def test_of_a_failure_on_the_side_of_the_server_no_address_is_told(
    tmp_path: Path,
) -> None:
    path = small_world(tmp_path)
    tools = Tools({"w": query.open(path)})
    for file in Path(path).rglob("*.parquet"):
        file.write_bytes(b"PAR1" + b"\0" * 100 + b"PAR1")

    async def ask(client: Client, _: QuestionQueue) -> None:
        for name, given in (("distinct", {"mode": "exact"}), ("quantile", {"phi": 0.5, "by": "name"})):
            found = await client.call_tool(name, given)
            assert isinstance(found, CallToolResult)
            assert found.is_error
            assert "its log says why" in _text(found)
            assert str(tmp_path) not in found.model_dump_json()

    _in_process(tools, ask)


def test_answers_are_bounded_in_length_and_questions_in_number(
    wh: query.Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_tools, "ANSWER_LENGTH", 500)
    full = QuestionQueue(1, 0, 60)

    async def ask(client: Client, queue: QuestionQueue) -> None:
        found = await client.call_tool("top", {"k": 5})
        assert isinstance(found, CallToolResult)
        assert "more than 500 characters. Ask about fewer" in _text(found)
        queue._taken.add(Deadline(1))
        found = await client.call_tool("top", {"k": 1})
        assert isinstance(found, CallToolResult)
        assert found.is_error
        assert "Ask again" in _text(found)
        queue._taken.clear()

    _in_process(Tools({"w": wh}), ask, full)


def test_chosen_tools_alone_are_offered(wh: query.Warehouse) -> None:
    assert set(Tools({"w": wh}, ["top", "describe"]).listed) == {"describe", "top"}
    assert "warehouse" not in Tools({"w": wh}).listed["top"].schema["properties"]
    assert "inner_product" not in Tools({"w": wh}).listed  # there is no second warehouse


def test_the_command_refuses_what_it_cannot_serve(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIDEMARK_WAREHOUSE", raising=False)
    for options, said in (
        ((), "no warehouse was named"),
        (("-w", path, "--tool", "sql"), "there is no tool 'sql'. There are: describe, quantile"),
        (("-w", path, "--parallel", "0"), "--parallel must be at least 1"),
        (("-w", f"{path}-gone"), "gone"),
    ):
        found = tidemark(capsys, "mcp", *options)
        assert (found.code, found.out) == (2, "")
        assert said in found.err
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    found = tidemark(capsys, "mcp", "-w", path)
    assert found.code == 2
    assert "pip install 'tidemark[mcp]'" in found.err


@pytest.mark.slow
def test_lines_that_are_no_messages_harm_nothing_and_ctrl_c_ends_the_process(path: str) -> None:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    lines = [b"", b"no json", b"\xff\xfe", b"[]", b'{"jsonrpc": "2.0"}', b"[" * 10_000]
    asked = [_initialize(), {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}]
    with subprocess.Popen([*COMMAND, "-w", path], env=environment(), **pipes) as server:  # type: ignore[call-overload]
        for line in [*lines, *(json.dumps(one).encode() for one in asked)]:
            server.stdin.write(line + b"\n")
        server.stdin.flush()
        while (reply := json.loads(server.stdout.readline())).get("id") != 1:
            pass
        assert len(reply["result"]["tools"]) == len(questions.QUESTIONS)
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=30) == 130  # stdin is still open
        assert server.stderr.read() == b""


@pytest.mark.parametrize("longest", [None, 10])
def test_lines_end_with_stdin_or_at_one_that_is_too_long(
    longest: int | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if longest is not None:
        monkeypatch.setattr(mcp_server, "MESSAGE_BYTES", longest)
    reads, writes = os.pipe()

    async def lines() -> list[str]:
        with mcp_server.Lines(asyncio.get_running_loop(), reads) as found:
            return [line async for line in found]

    os.write(writes, "é\n\nb\n".encode() + b"\xff\n" + b"c" * 20 + b"\n")
    os.write(writes, b"d" * 20)
    os.close(writes)
    found = asyncio.run(lines())
    os.close(reads)
    assert found == ["é", "", "b", "\ufffd", "c" * 20]
    assert ("more than 10 bytes" in caplog.text) == (longest == 10)


def _initialize() -> dict[str, Any]:
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": about}
