"""A real Chromium without a window, driven by its own protocol through two pipes."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

LOGIN = "document.readyState == 'complete' && !document.getElementById('login').hidden"
READY = "document.getElementById('status').textContent.startsWith('As of')"  # the page of `tidemark serve`


class Browser:
    """One page. `told` are the events that it sent: requests, errors, lines of its console."""

    def __init__(self, to: int, out: int) -> None:
        self._to, self._out, self._number, self._rest = to, out, 0, b""
        self.told: list[dict[str, Any]] = []
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """What a method of the protocol returns."""
        self._number += 1
        session = {} if self._session is None else {"sessionId": self._session}
        message = {"id": self._number, "method": method, "params": parameters, **session}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            got = self._next()
            if got.get("id") == self._number:
                assert "error" not in got, (method, got["error"])
                return got["result"]
            self.told.append(got)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._out, 2**20)
            assert part, "the browser has ended"
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        return found

    def js(self, expression: str) -> Any:
        """The value of an expression of JavaScript, a promise awaited."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, condition: str) -> None:
        """Waits until a condition of JavaScript holds."""
        found = self.js(
            "new Promise(done => { const start = Date.now(), look = () => "
            f"({condition}) ? done('') : Date.now() - start > 60000 ? done(document.body.innerText) "
            ": setTimeout(look, 20); look(); })"
        )
        assert found == "", found

    def press(self, key: str, text: str = "") -> None:
        """A key, down and up."""
        codes = {"Tab": 9, "Enter": 13}
        for kind in ("keyDown", "keyUp"):
            shown = {"text": text} if text and kind == "keyDown" else {}
            code = codes.get(key, 0)
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **shown)

    def log_in(self, port: int, token: str) -> None:
        """Opens the page of a server of this machine, and types the token; all panels are there then."""
        self.call("Page.navigate", url=f"http://127.0.0.1:{port}/")
        self.until(LOGIN)
        self.call("Input.insertText", text=token)
        self.press("Enter", "\r")
        self.until(READY)

    def size(self, width: int, height: int, scheme: str) -> None:
        """The window's size, and light or dark."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def picture(self, file: Path) -> None:
        """A picture of the whole page."""
        found = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(found["data"]))

    def addresses(self) -> set[str]:
        """All that the page has asked for."""
        return {
            one["params"]["request"]["url"]
            for one in self.told
            if one.get("method") == "Network.requestWillBeSent"
        }

    def problems(self) -> list[Any]:
        """Errors of scripts, and what the browser refused to do."""
        kinds = ("Runtime.exceptionThrown", "Log.entryAdded")
        found = [one["params"] for one in self.told if one.get("method") in kinds]
        expected = ("favicon", "401 (Unauthorized)")
        return [one for one in found if not any(word in json.dumps(one) for word in expected)]


@contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    """A browser with a new profile in the folder."""
    assert CHROMIUM is not None
    (read_in, to), (out, write_out) = os.pipe(), os.pipe()
    words = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
    words += ["--no-first-run", "--disable-dev-shm-usage", f"--user-data-dir={folder / 'profile'}"]
    script = f'exec "$@" 3<&{read_in} 4>&{write_out}'
    with subprocess.Popen(
        [shutil.which("bash") or "bash", "-c", script, "bash", *words],
        pass_fds=(read_in, write_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        os.close(read_in)
        os.close(write_out)
        try:
            yield Browser(to, out)
        finally:
            process.terminate()
            process.wait()
            os.close(to)
            os.close(out)
