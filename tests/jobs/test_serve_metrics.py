"""/metrics by Prometheus's own parser, the rules over it, and the dashboard of Grafana against the server."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tests.jobs.http_served import Site, serving, small_world
from tidemark import query, stream, warehouse
from tidemark.jobs.cli.named_warehouses import named_warehouses
from tidemark.jobs.serve import metrics
from tidemark.jobs.serve.tokens import Grant, Tokens, digest_of, parse_rights
from tidemark.warehouse.delta import tables
from tidemark.warehouse.delta.lost_race_counter import LostRaces
from tidemark.warehouse.delta.races import Race

PROMTOOL = shutil.which("promtool")
GRAFANA = Path(__file__).resolve().parents[2] / "docs" / "grafana"
Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(scope="module")
def wh(tmp_path_factory: pytest.TempPathFactory) -> query.Warehouse:
    return query.open(small_world(tmp_path_factory.mktemp("watched")))


@pytest.fixture(scope="module")
def site(wh: query.Warehouse) -> Iterator[Site]:
    with serving({"w": wh}) as found:
        yield found


def scraped(site: Site, *token: str) -> Series:
    """The series of a scrape; each is there once, as Prometheus demands."""
    reply = site.get("/metrics", *token)
    assert (reply.status, reply.headers["content-type"][:10]) == (200, "text/plain")
    found: Series = {}
    for family in text_string_to_metric_families(reply.text):
        for one in family.samples:
            key = one.name, tuple(sorted(one.labels.items()))
            assert key not in found, key
            assert math.isnan(one.value) or one.value >= 0
            found[key] = one.value
    return found


def value(found: Series, name: str, **labels: str) -> float:
    return found[name, tuple(sorted({"warehouse": "w", **labels}.items()))]


@pytest.mark.slow
def test_several_warehouses_are_one_with_metrics_of_each(tmp_path: Path) -> None:
    """Their numbers add; no address of one is told."""
    places = named_warehouses([f"w.{name}={small_world(tmp_path / name)}" for name in ("eu", "us")])
    sites = places["w"]
    assert isinstance(sites, dict)
    both = query.open(sites)
    with serving({"w": both}) as served:
        found = scraped(served)
        assert [value(found, "tidemark_rows", side=side) for side in ("history", "live")] == [120, 80]
        assert [value(found, "tidemark_site_rows", site=name) for name in ("eu", "us")] == [100, 100]
        newest = value(found, "tidemark_newest_row_timestamp_seconds")
        assert value(found, "tidemark_site_newest_row_timestamp_seconds", site="us") == newest
        assert value(found, "tidemark_runs", kind="measure", projection="big", level="0") == 2
        info = served.get("/info").json
        assert (info["warehouse"], info["live_rows"], info["steps"]) == ("w", 80, 2)
        assert [info["warehouses"][name]["warehouse"] for name in ("eu", "us")] == ["eu", "us"]
        assert set(json.loads(query.open(sites["eu"]).info().to_json())) - set(info) <= {
            "kappa",
            "versions",
            "behind",
        }
        answer = served.get("/quantile?phi=0.5").json
        assert (answer["N"], list(answer["as_of"])) == (both.quantile(0.5).N, ["eu", "us"])
        assert str(tmp_path) not in "".join(reply.text for reply in served.replies)


def test_names_of_served_warehouses_are_given_once() -> None:
    assert named_warehouses(["a=x", "b.eu=y", "b.us=z", "/data/c"]) == {
        "a": "x",
        "b": {"eu": "y", "us": "z"},
        "c": "/data/c",
    }
    for texts, twice in (
        (["a=x", "a=y"], "a"),
        (["a=x", "a=x"], "a"),
        (["/x/a", "/y/a"], "a"),
        (["a.eu=x", "a.eu=y"], "a.eu"),
        (["a=x", "a.eu=y"], "a.eu"),
        (["a.eu=x", "a=y"], "a"),
    ):
        with pytest.raises(query.InputError, match=f"a name is given twice: {twice}"):
            named_warehouses(texts)


def test_the_metrics_are_what_the_questions_answer(site: Site, wh: query.Warehouse) -> None:
    site.get("/distinct")
    found = scraped(site)
    assert [value(found, "tidemark_rows", side=side) for side in ("history", "live")] == [60, 40]
    assert value(found, "tidemark_up") == value(found, "tidemark_steps") == 1
    assert value(found, "tidemark_live_batches") == 1
    assert value(found, "tidemark_runs", kind="measure", projection="big", level="0") == 1
    newest = datetime.fromtimestamp(value(found, "tidemark_newest_row_timestamp_seconds"), UTC)
    assert (newest, value(found, "tidemark_tick_seconds")) == (wh.span(last="1h")[0], 3600)
    for measure in ("ms", "big", "price"):
        for answer in wh.quantile([0.5, 0.9, 0.99], measure, mode="quick"):
            labels = {"measure": measure, "phi": f"{answer.phi:g}"}
            low, high = (value(found, f"tidemark_quantile_{name}", **labels) for name in ("low", "high"))
            assert [low] == [answer.low] or low <= answer.low or math.isnan(low)
            assert [high] == [answer.high] or high >= answer.high or math.isnan(high)
    assert value(found, "tidemark_question_seconds_count", question="distinct") >= 1


def lost_and_told(uri: str, site: Site, caplog: pytest.LogCaptureFixture) -> list[tuple[int, float]]:
    """While writers race: the lost races that the log of this process has since it began, and those told."""
    commit, batches, row = tables.commit, count(), pa.table({"x": [1.0]})

    def race(rivals: int) -> None:
        def beaten(*args: Any, **given: Any) -> Any:
            nonlocal rivals
            rivals -= 1
            with pytest.MonkeyPatch.context() as alone:
                alone.setattr(tables, "commit", commit)
                if rivals >= 0:
                    stream.append(None, uri, row, source="rival", batch=next(batches))
                return commit(*args, **given)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tables, "commit", beaten)
            stream.append(None, uri, row, source="web", batch=next(batches))

    def told() -> tuple[int, float]:
        lost = sum("lost the race" in one.getMessage() for one in caplog.records)
        return lost, value(scraped(site), "tidemark_lost_races_total")

    found = [told()]
    for rivals in (1, 0, 3):
        race(rivals)
        found += [told(), told()]
    return found


def test_lost_races_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    uri = str(tmp_path / "w")
    warehouse.create(None, uri, ["x"], schema=pa.schema({"x": pa.float64()}))
    with serving({"w": query.open(uri)}) as site:
        found = lost_and_told(uri, site, caplog)
        assert [told for _, told in found] == [lost for lost, _ in found]
        none, first, again, quiet, still, many, last = (told for _, told in found)
        assert none == 0 < first == again == quiet == still < many == last
    with serving({"w": query.open(uri)}) as later:
        assert value(scraped(later), "tidemark_lost_races_total") == 0


def _notes_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Race, "_lost_note", {})


def _counts_again(patch: pytest.MonkeyPatch) -> None:
    look = LostRaces.look

    def from_the_start(self: LostRaces, versions: Any) -> int:
        self._seen = dict.fromkeys([*versions, "events"], -1)
        return look(self, versions)

    patch.setattr(LostRaces, "look", from_the_start)


@pytest.mark.parametrize("mistake", [_notes_nothing, _counts_again])
def test_a_wrong_number_of_lost_races_is_caught(
    mistake: Callable[[pytest.MonkeyPatch], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    mistake(monkeypatch)
    with pytest.raises(AssertionError):
        test_lost_races_are_counted(tmp_path, caplog)


def against_conventions(text: str) -> list[str]:
    """What `promtool check metrics` would say: rules of names, types and help of Prometheus's own linter."""
    counters = re.findall(r"^# TYPE (\S+) counter$", text, re.MULTILINE)  # the parser adds what they lack
    said = [f"{name} is a counter without total" for name in counters if not name.endswith("_total")]
    for family in text_string_to_metric_families(text):
        name, words = family.name, family.name.split("_")
        rules = {
            "has no help": not family.documentation,
            "ends as a counter": family.type != "counter" and words[-1] == "total",
            "has the type in its name": family.type in words
            or bool({"gauge", "counter", "summary"} & {*words}),
            "ends as a part of a histogram": words[-1] in {"bucket", "count", "sum"},
            "has no base unit": bool(NO_BASE_UNITS & {*words}),
            "is no snake": re.fullmatch(r"[a-z][a-z0-9_]*", name) is None,
            "has labels of a histogram": family.type != "histogram"
            and any({"le", "quantile"} & one.labels.keys() for one in family.samples),
        }
        said += [f"{name} {rule}" for rule, is_broken in rules.items() if is_broken]
    return said


NO_BASE_UNITS = {
    *("milliseconds", "microseconds", "nanoseconds", "minutes", "hours", "days", "kilobytes", "megabytes"),
    *("ms", "us", "ns", "sec", "secs", "mb", "kb", "percent"),
}


def test_the_metrics_follow_the_conventions(site: Site) -> None:
    text = site.get("/metrics").text
    assert against_conventions(text) == []
    wrong = "# HELP tidemark_lost Races.\n# TYPE tidemark_lost counter\ntidemark_lost 1\n"
    assert against_conventions(wrong) == ["tidemark_lost is a counter without total"]
    wrong = '# HELP tidemark_wait_ms How long.\n# TYPE tidemark_wait_ms gauge\ntidemark_wait_ms{le="1"} 1\n'
    assert against_conventions(wrong) == [
        "tidemark_wait_ms has no base unit",
        "tidemark_wait_ms has labels of a histogram",
    ]


@pytest.mark.skipif(PROMTOOL is None, reason="there is no promtool")
def test_promtool_finds_no_wrong_name(site: Site) -> None:
    """Only of one name: what else it says depends on its version."""

    def said(*words: str, given: str = "") -> tuple[int, str]:
        found = subprocess.run(
            [str(PROMTOOL), *words], check=False, input=given, text=True, capture_output=True, timeout=60
        )
        return found.returncode, found.stdout + found.stderr

    assert said("check", "rules", str(GRAFANA / "rules.yml"))[0] == 0
    text = site.get("/metrics").text
    wrong = text.replace("tidemark_lost_races_total", "tidemark_lost_races")
    assert "tidemark_lost_races" not in said("check", "metrics", given=text)[1]
    assert "tidemark_lost_races" in said("check", "metrics", given=wrong)[1]


@given(
    st.integers(-(2**63), 2**63)
    | st.decimals(allow_nan=False, allow_infinity=False, places=2)
    | st.datetimes(timezones=st.just(UTC))
)
def test_bounds_stay_bounds_as_doubles(exact: Any) -> None:
    low, high = metrics.number(exact, -math.inf), metrics.number(exact, math.inf)
    if isinstance(exact, datetime):
        since = exact - datetime(1970, 1, 1, tzinfo=UTC)
        exact = Fraction((since.days * 86_400 + since.seconds) * 10**6 + since.microseconds, 10**6)
    assert Fraction(low) <= Fraction(exact) <= Fraction(high)
    assert high <= math.nextafter(low, math.inf)
    assert metrics.number(Decimal("NaN").__float__()) != 0


def test_a_token_sees_the_warehouses_that_it_may_watch(wh: query.Warehouse) -> None:
    grants = [
        Grant("one", digest_of("one"), parse_rights(["w=metrics"])),
        Grant("none", digest_of("none"), parse_rights(["*=aggregates"])),
    ]
    with serving({"w": wh, "hidden": wh}, Tokens(grants)) as site:
        assert "hidden" not in site.get("/metrics", "one").text
        assert site.get("/metrics", "none").status == 403
        assert site.get("/metrics", None).status == 401
        assert site.get("/info?warehouse=w", "one").status == 403


def test_a_scrape_that_would_wait_gets_the_last_view(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    first, may_end = scraped(site), threading.Event()
    monkeypatch.setattr(metrics, "WAIT_SECONDS", 0.01)
    monkeypatch.setattr(metrics, "samples", lambda *_: [("tidemark_up", (), float(may_end.wait(60)) - 1)])
    held = scraped(site)
    assert value(held, "tidemark_rows", side="live") == value(first, "tidemark_rows", side="live")
    assert held["tidemark_view_age_seconds", ()] >= 0
    may_end.set()


def test_a_warehouse_with_many_series_is_cut_and_one_that_is_gone_is_not_up(
    wh: query.Warehouse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    many = [("tidemark_runs", ("measure", f"m{i}", "0"), 1.0) for i in range(1_500)]
    monkeypatch.setattr(metrics, "samples", lambda *_: many)
    with serving({"w": wh}) as site:
        found = scraped(site)
        assert sum(name == "tidemark_runs" for name, _ in found) == 1_000
        assert value(found, "tidemark_series_left_out") == 500
    monkeypatch.undo()
    folder = Path(small_world(tmp_path))
    gone = query.open(str(folder))
    folder.rename(tmp_path / "elsewhere")
    with serving({"w": gone, "other": wh}) as site:
        found = scraped(site)
        assert (value(found, "tidemark_up"), value(found, "tidemark_up", warehouse="other")) == (0, 1)


def test_every_rule_is_about_series_that_the_server_has(site: Site) -> None:
    found = scraped(site)
    rules = yaml.safe_load((GRAFANA / "rules.yml").read_text())["groups"][0]["rules"]
    assert {rule["alert"] for rule in rules} >= {"TidemarkStale", "SlowCertain", "SlowPossible"}
    for rule in rules:
        selected = re.findall(r"(tidemark_\w+)(?:\{([^}]*)\})?", rule["expr"])
        assert selected
        for name, labels in selected:
            wanted = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            wanted = {**wanted, **({"measure": "ms"} if "measure" in wanted else {})}
            assert any(one == name and wanted.items() <= dict(own).items() for one, own in found), rule


def test_every_panel_of_the_dashboard_gets_rows(site: Site) -> None:
    board = json.loads((GRAFANA / "dashboard.json").read_text())
    named = {one["name"] for one in board["templating"]["list"]}
    assert named == {"source", "warehouse", "measure", "key", "every"}
    filled = {
        "warehouse": "w",
        "measure": "price",
        "key": "site",
        "every": "1d",
        "__from:date:iso": "2001-09-09T00:00:00.000Z",
        "__to:date:iso": "2001-09-12T00:00:00.000Z",
    }

    def fill(text: str) -> str:
        return re.sub(r"\$\{([^}]+)\}", lambda match: quote(filled[match[1]]), text)

    for panel in board["panels"]:
        for target in panel["targets"]:
            assert (target["parser"], target["root_selector"]) == ("backend", "")
            rows = site.get(fill(target["url"])).json
            assert rows, panel["title"]
            for column in target["columns"]:
                for row in rows:
                    cell = row[fill(column["selector"])]
                    kinds = (int, float) if column["type"] != "string" else str
                    assert cell is None or isinstance(cell, kinds), (panel["title"], column)
                if column["type"] == "timestamp_epoch":
                    assert all(10**11 < row["time"] < 10**13 for row in rows)
            assert all(row["low"] <= row["value"] <= row["high"] for row in rows)
