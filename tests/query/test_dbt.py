"""dbt-duckdb over warehouses: the plugin, and a project that dbt runs, where `make dbt` has installed it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from tests.jobs.http_served import small_world
from tidemark import query, stream, warehouse
from tidemark.query.integrations.dbt_plugin import Plugin
from tidemark.warehouse.errors import InputError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "dbt.md"


def project() -> dict[str, str]:
    """The files of the page: a line with the name, and an indented block."""
    found = re.findall(r"^`([\w./]+)`:\n\n((?:    .*\n|\n)+)", PAGE.read_text(), re.MULTILINE)
    return {name: textwrap.dedent(text) for name, text in found}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_world(tmp_path_factory.mktemp("modelled"))


@pytest.mark.slow
def test_cursors_of_a_connection_have_the_views_and_functions(path: str, tmp_path: Path) -> None:
    """As dbt-duckdb calls it: a connection for the project, and a cursor for each model."""
    settings = {"threads": "4"}  # those of the profile are among the plugin's
    plugin = Plugin(name="t", plugin_config={**settings, "warehouses": {"w": path}}, credentials=None)
    with duckdb.connect(tmp_path / "made.duckdb") as connection:
        plugin.update_connection_config(None, {})
        plugin.configure_connection(connection)
        assert connection.execute("SELECT current_catalog()").fetchall() == [("made",)]
        with connection.cursor() as cursor:
            plugin.configure_cursor(cursor)
            cursor.execute(
                "CREATE TABLE counts AS SELECT site, count(*) AS rows FROM tidemark.main.w GROUP BY site"
            )
            assert cursor.execute("SELECT sum(rows) FROM counts").fetchall() == [(100,)]
            expected = query.open(path).quantile(0.5)
            asked = cursor.execute("SELECT value, low FROM tidemark.w_ms_quantile(0.5)").fetchall()
            assert asked == [(expected.value, expected.low)]
    with duckdb.connect(tmp_path / "made.duckdb") as kept:  # of the warehouse nothing is in the project's own
        assert kept.execute("SELECT table_name FROM duckdb_tables()").fetchall() == [("counts",)]
        assert kept.execute("SELECT count(*) FROM duckdb_views() WHERE NOT internal").fetchall() == [(0,)]


def test_what_the_plugin_cannot_do_is_refused_with_the_remedy(path: str) -> None:
    for config in ({}, {"warehouses": path}):
        with pytest.raises(InputError, match="NAME: PATH"):
            Plugin("t", config)
    plugin = Plugin("t", {"warehouses": {"w": path}})
    with pytest.raises(InputError, match="database: tidemark"):
        plugin.load("source w")
    with pytest.raises(InputError, match="tidemark load"):
        plugin.store("model m")
    with pytest.raises(InputError, match="is not a tidemark warehouse"):
        Plugin("t", {"warehouses": {"w": f"{path}-gone"}})


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("dbt") is None, reason="dbt is installed by `make dbt`")
def test_the_project_of_the_page_is_built(tmp_path: Path) -> None:
    uri = str(tmp_path / "flights")
    rows = pa.table({"delay": [3, 140, 99, 7], "origin": ["ATL", "ORD", "ORD", "ORD"]})
    warehouse.create(None, uri, measures=["delay"], key="origin", schema=rows.schema)
    warehouse.load(None, uri, rows.slice(0, 3), batch="first")
    stream.append(None, uri, rows.slice(3), source="s", batch=0)
    files = project()
    assert len(files) == 6
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text.replace("/data/flights", uri))
    environment = {**os.environ, "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"}
    line = [str(Path(sys.executable).with_name("dbt")), "build", "--profiles-dir", ".", "--no-use-colors"]
    done = subprocess.run(
        line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS=4 WARN=0 ERROR=0" in done.stdout
    with duckdb.connect(tmp_path / "shop.duckdb") as made:
        rows_of = {name: made.execute(f"FROM {name}").fetchall() for name in ("slowest", "busiest")}
        by_origin = made.execute("FROM by_origin ORDER BY ALL").fetchall()
    assert by_origin == [("ATL", 1, 3), ("ORD", 3, 140)]
    assert rows_of == {"slowest": [(140, 140, 140, 4)], "busiest": [("ORD",)]}
