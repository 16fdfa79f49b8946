"""What a kill leaves in the store, as the page on object stores tells it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.docs.pages import DOCS, ROOT, blocks
from tests.stores.conftest import Place
from tests.stores.gate import Fault
from tests.stores.rows import HOW, check, rows
from tests.stores.server import BUCKET
from tidemark import query, warehouse

LOADER = """
import json, sys
from tests.stores.rows import rows
from tidemark import warehouse
from tidemark.warehouse.delta import object_client, write_behind
write_behind.PIECE_BYTES = object_client.PART_BYTES = 100  # larger files go up in parts
uri, options = sys.argv[1], json.loads(sys.stdin.read())
warehouse.load(None, uri, rows(1), "night-1", storage_options=options)
"""


def client(place: Place) -> Any:
    """A client of the server that sees what delta-rs does not."""
    options = place.options
    return boto3.client(
        "s3",
        endpoint_url=options["AWS_ENDPOINT_URL"],
        region_name=options["AWS_REGION"],
        aws_access_key_id=options["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=options["AWS_SECRET_ACCESS_KEY"],
    )


def unfinished(place: Place) -> list[str]:
    """The keys of the unfinished uploads below the place."""
    prefix = place.uri.removeprefix(f"s3://{BUCKET}/")
    found = client(place).list_multipart_uploads(Bucket=BUCKET, Prefix=prefix)
    return [upload["Key"] for upload in found.get("Uploads", [])]


def kill_at_an_upload(place: Place) -> None:
    """A process begins to load; it is killed once the upload of its rows has begun and no part arrived."""
    place.server.set(Fault("timeout", "PUT", "partNumber=", seconds=20))
    line = [sys.executable, "-c", LOADER, place.uri]
    with subprocess.Popen(line, cwd=ROOT, stdin=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(place.options))
        process.stdin.close()
        until = time.monotonic() + 60
        while not any("?uploads" in request.path for request in place.server.requests()):
            assert process.poll() is None, "the loader ended before its upload began"
            assert time.monotonic() < until, "no upload began"
            time.sleep(0.05)
        process.kill()
    place.server.set()


@pytest.mark.slow
def test_an_upload_that_a_kill_interrupts_stays_until_it_is_aborted(place: Place) -> None:
    """Small files need no upload; a kill leaves one of a larger file; maintenance does not see it."""
    how: dict[str, Any] = {"storage_options": place.options}
    warehouse.create(None, place.uri, ["ms"], **HOW, **how)
    place.server.set()
    warehouse.load(None, place.uri, rows(0), "night-0", **how)
    written = [request.path for request in place.server.requests() if ".parquet" in request.path]
    assert written
    assert not any("?uploads" in path for path in written)
    assert unfinished(place) == []
    kill_at_an_upload(place)
    (left,) = unfinished(place)
    assert "/events/" in left
    warehouse.maintain(None, place.uri, grace="0 s", **how)
    assert unfinished(place) == [left]
    assert warehouse.load(None, place.uri, rows(1), "night-1", **how).outcome == "loaded"
    check(query.open(place.uri, place.options), [rows(0), rows(1)])
    assert warehouse.verify(place.uri, **how).ok
    for upload in client(place).list_multipart_uploads(Bucket=BUCKET)["Uploads"]:
        client(place).abort_multipart_upload(Bucket=BUCKET, Key=upload["Key"], UploadId=upload["UploadId"])
    assert unfinished(place) == []
    check(query.open(place.uri, place.options), [rows(0), rows(1)])


def test_the_store_takes_the_rule_of_the_page(place: Place) -> None:
    page = Path(DOCS / "guides" / "object_stores.md")
    (text,) = [block.text for block in blocks(page) if "AbortIncompleteMultipartUpload" in block.text]
    s3 = client(place)
    s3.put_bucket_lifecycle_configuration(Bucket=BUCKET, LifecycleConfiguration=json.loads(text))
    (rule,) = s3.get_bucket_lifecycle_configuration(Bucket=BUCKET)["Rules"]
    assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 7}
    assert (rule["Status"], rule["Filter"]) == ("Enabled", {"Prefix": ""})
    s3.delete_bucket_lifecycle(Bucket=BUCKET)
