"""What callers write for a place: understood, or refused with the right spelling."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.stores.conftest import Place
from tests.stores.rows import HOW, check, rows
from tidemark import query, warehouse
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import InputError, NotAWarehouse

SECRET = "nobody-sees-this"  # noqa: S105  not a password


@pytest.fixture
def catalog() -> Iterator[None]:
    """Whatever a test registers is gone after it."""
    yield
    warehouse.use_catalog(None)


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("s3://b/w", "s3://b/w"),
        ("S3://b/w/", "s3://b/w"),
        ("s3a://b/w", "s3://b/w"),
        ("s3n://b/w/x", "s3://b/w/x"),
        ("gs://b/w", "gs://b/w"),
        ("abfss://c@a.dfs.core.windows.net/w", "abfss://c@a.dfs.core.windows.net/w"),
        ("az://c/w", "az://c/w"),
        ("file:///data/w", "/data/w"),
        ("file:///data/a%20b", "/data/a b"),
        ("file:///data/a%23b%3F", "/data/a#b?"),
        ("file://localhost/data/w", "/data/w"),
        ("FILE:/data/w", "/data/w"),
        ("/data/a#b?", "/data/a#b?"),
        ("/data/main.sales.web", "/data/main.sales.web"),
        ("/data/w/", "/data/w"),
    ],
)
def test_a_spelling_is_understood(given: str, address: str) -> None:
    assert Store.from_uri(given).uri == address


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ("", "Name a folder"),
        ("file:", "Name a folder"),
        ("w/_delta_log", "cannot hold '/_delta_log'"),
        ("gcs://b/w", "Write gs://"),
        ("wasbs://c@a.blob.core.windows.net/w", "Write abfss://"),
        ("dbfs:/mnt/w", "/dbfs/"),
        ("https://b.s3.amazonaws.com/w?versionId=1", "s3://bucket/folder"),
        ("hive://b/w", "one of abfs://"),
        ("s3:/b/w", "Write s3://, then the bucket"),
        ("s3://", "then the bucket"),
        ("s3:///w", "then the bucket"),
        ("file://data/w", "Write file:///data/flights"),
        ("file:///data/a#b", "%23 for #"),
        ("file:///data/a?b", "%3F for [?]"),
        ("file://[w", "Write file:///data/flights"),
        ("main.sales.web", r"table of a catalog.*write ./main.sales.web for a folder"),
    ],
)
def test_another_is_refused_with_the_right_one_and_makes_no_folder(
    given: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for call in (query.open, lambda uri: warehouse.create(None, uri, ["ms"], **HOW)):
        with pytest.raises(InputError, match=remedy):
            call(given)
    assert not list(tmp_path.iterdir())


def test_a_folder_of_that_name_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for place in ("./main.sales.web", Path("main.sales.web"), "main.sales.web"):
        warehouse.create(None, place, ["ms"], **HOW)
    assert query.open("main.sales.web").info()["live_rows"] == 0
    with pytest.raises(NotAWarehouse):
        query.open("sales.web")  # two parts are a folder


@pytest.mark.usefixtures("catalog")
def test_a_catalog_gives_the_address_and_the_credentials(place: Place) -> None:
    asked: list[str] = []

    def resolve(name: str) -> tuple[str, dict[str, str]]:
        asked.append(name)
        return place.uri, place.options

    warehouse.use_catalog(resolve)
    warehouse.create(None, "main.sales.web", ["ms"], **HOW)
    warehouse.load(None, "main.sales.web", rows(0), "night-0")
    check(query.open("sales.web"), [rows(0)])
    assert set(asked) == {"main.sales.web", "sales.web"}
    check(query.open(place.uri, place.options), [rows(0)])


@pytest.mark.parametrize("options", ["AWS_REGION=x", {"AWS_REGION": 1}, {"AWS_SECRET_ACCESS_KEY": [SECRET]}])
def test_options_that_are_no_text_are_refused_without_their_values(options: Any) -> None:
    with pytest.raises(InputError, match="storage_options must") as refused:
        query.open("s3://b/w", options)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "address", [f"s3://key:{SECRET}@b/w", f"gs://u@b/{SECRET}", f"abfss://c:{SECRET}@a/w"]
)
def test_addresses_have_no_credentials(address: str) -> None:
    """Addresses are shown in errors and logs. A secret may have a slash, so it is not cut out but refused."""
    for given in (address, address.replace("nobody-", "nobody/")):
        with pytest.raises(InputError, match="pass credentials in the storage options") as refused:
            Store.from_uri(given)
        assert "sees-this" not in str(refused.value)


def test_what_is_no_place_is_refused() -> None:
    for place in (None, 3, b"w"):
        with pytest.raises(InputError, match="is text or a Path, got"):
            Store.from_uri(place)  # type: ignore[arg-type]


def test_a_name_that_is_too_long_for_the_disk_is_still_a_place() -> None:
    name = "a." + 300 * "b"
    assert Store.from_uri(name).uri == str(Path(name).absolute())


def test_the_environment_is_below_what_is_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "from-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    for spelling in ("AWS_REGION", "aws_region", "region"):
        options = Store.from_uri("s3://b/w", {spelling: "passed"}).options or {}
        assert {options[name] for name in options if "region" in name.lower()} == {"passed"}
        assert options["AWS_SECRET_ACCESS_KEY"] == SECRET
    assert Store.from_uri("/data/w").options is None
