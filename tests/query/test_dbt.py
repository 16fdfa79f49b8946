"""dbt-duckdb over warehouses: the plugin, and a project that dbt runs, where `make dbt` has installed it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from tests.jobs.http_served import small_world
from tidemark import query
from tidemark.query.doors.dbt_plugin import Plugin
from tidemark.warehouse.errors import InputError

PROJECT = {
    "dbt_project.yml": """
name: flights
version: "1"
profile: flights
models: {flights: {+materialized: table}}
flags: {send_anonymous_usage_stats: false}
""",
    "profiles.yml": """
flights:
  target: local
  outputs:
    local:
      type: duckdb
      path: made.duckdb
      threads: 2
      plugins:
        - module: tidemark.query.doors.dbt_plugin
          config: {warehouses: {w: "PATH"}}
""",
    "models/sources.yml": """
version: 2
sources:
  - name: tidemark
    database: tidemark
    schema: main
    tables: [{name: w, columns: [{name: site, data_tests: [not_null]}]}]
""",
    "models/by_site.sql": "SELECT site, count(*) AS rows FROM {{ source('tidemark', 'w') }} GROUP BY site",
    "models/medians.sql": "SELECT phi, value, low, high FROM tidemark.w_ms_quantile([0.25, 0.5])",
    "models/most.sql": "SELECT max(rows) AS most FROM {{ ref('by_site') }}",
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_world(tmp_path_factory.mktemp("modelled"))


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
def test_a_project_is_built_from_a_warehouse(path: str, tmp_path: Path) -> None:
    for name, text in PROJECT.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text.replace("PATH", path))
    line = [sys.executable, "-m", "dbt.cli.main", "build", "--profiles-dir", ".", "--no-use-colors"]
    done = subprocess.run(
        line, cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS=4 WARN=0 ERROR=0" in done.stdout
    with duckdb.connect(tmp_path / "made.duckdb") as made:
        rows = made.execute("SELECT site, rows FROM by_site ORDER BY site").fetchall()
        assert rows == [("ap", 33), ("eu", 34), ("us", 33)]
        assert made.execute("SELECT most FROM most").fetchall() == [(34,)]
        answers = query.open(path).quantile([0.25, 0.5])
        expected = [(one.phi, one.value, one.low, one.high) for one in answers]
        assert made.execute("SELECT * FROM medians ORDER BY phi").fetchall() == expected
