"""Requests that schemathesis draws from the OpenAPI document, those that fit it and those that do not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from requests import RequestException

from tests import soak
from tests.jobs.http_served import TOKEN, Site, serving, small_world
from tests.soak import draws
from tidemark import query
from tidemark.jobs.serve.connections import HEAD_BYTES
from tidemark.jobs.serve.openapi import openapi
from tidemark.jobs.serve.question_queue import QuestionQueue

FEW = ("/top",)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    wh = query.open(small_world(tmp_path_factory.mktemp("drawn")))
    with serving({"w": wh}, queue=QuestionQueue(parallel=2, waiting=8, seconds=60)) as found:
        yield found


@pytest.mark.slow
@pytest.mark.hypothesis
def test_no_request_of_the_description_makes_the_server_fail(site: Site) -> None:
    """Every answer has a status and a shape that the description promises, and none is a fault."""
    import schemathesis  # noqa: PLC0415  slow to import
    from schemathesis import GenerationMode  # noqa: PLC0415

    document = json.loads(openapi())
    if soak.DRAWS == 1:  # to make the strategies of all addresses takes long
        document["paths"] = {path: document["paths"][path] for path in FEW}
    schema = schemathesis.openapi.from_dict(document)
    address, headers = f"http://127.0.0.1:{site.port}", {"Authorization": f"Bearer {TOKEN}"}
    asked: dict[int, int] = {}
    for result in schema.get_all_operations():
        operation: Any = result.ok()  # type: ignore[union-attr]  # of our document all are
        for mode in GenerationMode:

            @settings(
                max_examples=draws(2), deadline=None, database=None, suppress_health_check=list(HealthCheck)
            )
            @given(operation.as_strategy(generation_mode=mode))
            def ask(case: Any) -> None:
                try:
                    reply = case.call(base_url=address, headers=headers, timeout=300)
                except RequestException:  # a head beyond the limit is refused before all of it was sent
                    assert site.get("/warehouses").status == 200
                    return
                if len(str(reply.request.url)) > HEAD_BYTES:
                    assert reply.status_code == 400
                    return
                asked[reply.status_code] = asked.get(reply.status_code, 0) + 1
                assert reply.status_code < 500, reply.text
                own = {"200", *document["components"]["responses"], "404", "405"}
                assert str(reply.status_code) in own
                if case.path == "/metrics":
                    return  # text, tested by the parser of Prometheus
                assert reply.headers["content-type"] == ["application/json"]
                found = json.loads(reply.text)
                assert reply.status_code == 200 or set(found) == {"error", "message"}

            ask()
    assert sum(asked.values()) >= 4
    assert soak.DRAWS == 1 or min(asked[200], asked[400]) > 20
    assert site.get("/quantile?phi=1&measure=price").json["answers"][0]["value"] == "99.99"
