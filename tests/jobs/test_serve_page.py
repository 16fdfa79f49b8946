"""The page of `tidemark serve` in a real browser, over keys that would be code if they were not text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from tests.jobs.browser import CHROMIUM, LOGIN, READY, Browser, browsing
from tests.jobs.http_served import NAMES, TOKEN, Site, serving, small_world
from tidemark import query, stream
from tidemark.jobs.serve.hosts import HEADERS

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_world(tmp_path_factory.mktemp("shown"))


@pytest.fixture(scope="module")
def site(uri: str) -> Iterator[Site]:
    with serving({"w": query.open(uri), "<b>two</b>": query.open(uri)}) as found:
        yield found


@pytest.fixture(scope="module")
def page(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The page, opened with a token that was typed."""
    with browsing(tmp_path_factory.mktemp("browser")) as found:
        found.size(1200, 900, "light")
        found.call("Page.navigate", url=f"http://127.0.0.1:{site.port}/")
        found.until(LOGIN)
        assert found.js("document.activeElement.id") == "token"
        found.call("Input.insertText", text="not a token")
        found.press("Enter", "\r")
        found.until("document.getElementById('status').textContent == 'The token does not count.'")
        found.call("Input.insertText", text=TOKEN)
        found.press("Enter", "\r")
        found.until(READY)
        yield found


def shown(page: Browser, panel: str) -> str:
    return str(page.js(f"document.getElementById({panel!r}).innerText"))


def test_every_panel_shows_what_the_questions_answer(page: Browser) -> None:
    page.js("(() => { const m = document.getElementById('measure'); m.value = 'price'; })() ?? refresh()")
    page.until("document.getElementById('quantiles').ariaLabel?.includes('p99 99.99')")
    label = str(page.js("document.getElementById('quantiles').ariaLabel"))
    assert "p50 " in label
    assert "certainly 99.99 to 99.99" in label
    assert page.js("document.querySelectorAll('#quantiles canvas').length") == 1
    assert [line.split("\t")[0] for line in shown(page, "groups").splitlines()[1:]] == ["eu", "ap", "us"]
    assert "Rows live\t40" in shown(page, "now")
    assert "Distinct name\t6 (exact)" in shown(page, "now")
    assert "web 0\t40\tlive" in shown(page, "steps")
    assert "measure ms\t1 at 0" in shown(page, "runs")
    assert not page.problems()


def test_names_are_text_and_nothing_else(page: Browser, site: Site) -> None:
    page.until("document.getElementById('top').innerText.includes('onerror')")
    told = shown(page, "top")
    for name in (NAMES[0], NAMES[2], "a\\u0000b\\u001b[31m\\u202e", "x" * 80 + "…", NAMES[5]):
        assert name in told
    assert len(told) < 1_000  # a name of a megabyte is cut
    assert "<b>two</b>" in str(page.js("document.getElementById('warehouse').innerText"))
    assert page.js("document.images.length + document.querySelectorAll('main b').length") == 0
    assert not [one for one in page.told if one["method"] == "Page.javascriptDialogOpening"]
    own = f"http://127.0.0.1:{site.port}/"
    assert all(address.startswith(own) for address in page.addresses())


def test_a_page_that_took_names_for_html_would_still_run_nothing(page: Browser) -> None:
    """The broken variant: what the policy of the answers is for."""
    before = len(page.told)
    page.js(
        "document.body.insertAdjacentHTML('beforeend', `<img id=wrong src=/x onerror='window.ran = 1'>`)"
        " ?? new Promise(done => setTimeout(done, 300))"
    )
    assert page.js("window.ran === undefined && document.images.length") == 1
    assert "Content Security Policy" in str(page.told[before:])
    page.js("document.getElementById('wrong').remove()")
    page.told[:] = [one for one in page.told if one["method"] != "Log.entryAdded"]


def test_the_keyboard_reaches_every_control(page: Browser) -> None:
    page.js("document.activeElement.blur()")
    reached = []
    for _ in range(6):
        page.press("Tab")
        reached.append(page.js("document.activeElement.id"))
    assert reached == ["warehouse", "measure", "window", "group", "key", "leave"]
    assert page.js("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_times_of_the_axis_are_dates_that_read_one_way(page: Browser) -> None:
    def told(step: int, *seconds: int) -> object:
        return page.js(f"moments(null, {list(seconds)}, 0, 0, {step})")

    assert told(86_400, 1_000_000_000, 1_000_086_400) == ["2001-09-09", "2001-09-10"]
    assert told(3_600, 1_000_072_800, 1_000_076_400, 1_000_083_600) == [
        "22:00\n2001-09-09",
        "23:00",
        "01:00\n2001-09-10",
    ]
    assert told(1, 0, 1) == ["00:00:00\n1970-01-01", "00:00:01"]
    assert str(page.js("state.chart.axes[0]._values[0]")).endswith("2001-09-09")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1600])
def test_narrow_and_wide_light_and_dark(page: Browser, width: int, scheme: str, tmp_path: Path) -> None:
    page.size(width, 900, scheme)
    page.until("document.querySelector('.u-wrap').clientWidth <= document.documentElement.clientWidth")
    assert page.js("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert page.js(
        "document.querySelector('#groups').scrollWidth <= document.querySelector('#groups').clientWidth"
    )
    assert page.js(
        "document.querySelector('#groups td').clientWidth >= 80"
    )  # a name is not a column of letters
    back = "getComputedStyle(document.body).backgroundColor"
    assert page.js(back) == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(13, 17, 23)")
    page.picture(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 10_000
    assert not page.problems()


def test_it_looks_again_and_the_token_is_in_this_tab_alone(page: Browser, uri: str) -> None:
    assert page.js("state.timer !== null && EVERY_MS <= 10000")
    rows = query.open(uri).sql("FROM events").to_arrow_table()
    columns = ["time", "ms", "big", "price", "at", "name", "site"]
    stream.append(None, uri, pa.table(rows).select(columns).slice(0, 5), source="web", batch=1)
    page.js("refresh()")
    page.until("document.getElementById('now').innerText.includes('45')")
    assert page.js("sessionStorage.length") == 1
    assert page.js("localStorage.length + document.cookie.length") == 0
    page.js("document.getElementById('leave').click()")
    assert page.js(
        "sessionStorage.length === 0 && state.token === null && document.getElementById('panels').hidden"
    )
    assert TOKEN not in str(page.js("document.documentElement.outerHTML"))


def test_the_files_of_the_page_need_no_token_and_have_the_headers(site: Site) -> None:
    html = site.get("/", None)
    for path in (
        "/",
        "/page/page.js",
        "/page/page.css",
        "/page/uPlot.iife.min.js",
        "/page/uPlot.LICENSE.txt",
    ):
        reply = site.get(path, None)
        assert (reply.status, {name: reply.headers.get(name) for name in HEADERS}) == (200, HEADERS)
    for inline in ("<style", "<script>", "style=", "onclick", "http://", "https://"):
        assert inline not in html.text
    for path in ("/page/", "/page/../start.py", "/page/%2e%2e/start.py", "/page/index.html"):
        assert site.get(path, None).status == 404
