"""Where the notices of alerts go: a command, or an address that takes HTTP POST.

A command is a list of arguments, started without a shell; the notice is the one line of JSON on its standard
input, and nowhere else. A notice is delivered if the command ends with 0 in time. An address takes the notice
as JSON, or in the form of Alertmanager's API; it is delivered if the answer is a 2xx. Redirects are not
followed. Addresses may have secrets in them, so no message shows one.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.columns.ticks import parse_duration
from tidemark.warehouse.errors import InputError, TidemarkError

_LASTS = timedelta(days=30)  # after so long Alertmanager takes an alert for ended, unless it is told again


class NotDelivered(TidemarkError):
    """The receiver did not take a notice."""


def seconds_of(text: str) -> float:
    """The seconds of a duration such as "10s"."""
    return parse_duration(text) / 1e6


@dataclass(frozen=True, slots=True)
class Command:
    """A command that takes notices on its standard input."""

    line: tuple[str, ...]
    seconds: float

    @classmethod
    def of(cls, text: str, seconds: float) -> Command:
        """The command of a line with quotes as in a shell; InputError without one."""
        try:
            line = tuple(shlex.split(text))
        except ValueError as error:
            raise InputError(f"--run is no command line: {error}.") from None
        if not line:
            raise InputError("--run is empty. Give a command with its arguments, such as 'python notify.py'.")
        return cls(line, seconds)

    def __call__(self, notice: dict[str, Any]) -> None:
        """Runs it with the notice; NotDelivered if it fails or takes too long, and then it is killed."""
        try:
            done = subprocess.run(  # noqa: S603  the caller's own command, without a shell
                self.line,
                input=f"{json_text(notice)}\n".encode(),
                stdout=subprocess.DEVNULL,
                timeout=self.seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NotDelivered(f"the command of --run took longer than {self.seconds:g} s.") from None
        except OSError as error:
            raise NotDelivered(f"the command of --run cannot be started: {error.strerror}.") from error
        if done.returncode:
            raise NotDelivered(f"the command of --run ended with {done.returncode}.")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Takes a redirect as an answer that is no 2xx."""

    def redirect_request(self, *_: Any) -> None:
        """Follows none."""


@dataclass(frozen=True, slots=True)
class Post:
    """An address that takes notices by POST. Its text is in no message."""

    address: str
    form: str
    seconds: float

    @classmethod
    def of(cls, address: str, form: str, seconds: float) -> Post:
        """The receiver at an address; InputError unless that is one of http or https."""
        try:
            parts = urlsplit(address)
            is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_address = False
        if not is_address or re.search(r"[\s\x00-\x1f\x7f]", address):
            raise InputError("the address to post to must begin with http:// or https:// and a host.")
        return cls(address, form, seconds)

    def __repr__(self) -> str:
        return f"Post(form={self.form!r})"

    def __call__(self, notice: dict[str, Any]) -> None:
        """Sends the notice; NotDelivered if the answer is no 2xx or does not come in time."""
        body = json_text(_alertmanager(notice) if self.form == "alertmanager" else notice)
        request = urllib.request.Request(  # noqa: S310  http or https, see `of`
            self.address, body.encode(), {"Content-Type": "application/json", "User-Agent": "tidemark"}
        )
        opener = urllib.request.build_opener(_NoRedirects)
        try:
            with opener.open(request, timeout=self.seconds) as reply:
                status = reply.status
        except urllib.error.HTTPError as error:
            error.close()
            raise NotDelivered(f"the address answered with {error.code}.") from None
        except (OSError, ValueError) as error:  # URLError and the errors of http are among them
            why = type(getattr(error, "reason", error)).__name__
            raise NotDelivered(f"the address did not take it: {why}.") from None
        if not 200 <= status < 300:
            raise NotDelivered(f"the address answered with {status}.")


def _alertmanager(notice: dict[str, Any]) -> list[dict[str, Any]]:
    """The alerts of a notice for POST /api/v2/alerts: the state that ended, and the one that began."""
    at = datetime.fromisoformat(notice["since"])
    group = {
        f"group_{re.sub(r'[^a-zA-Z0-9_]', '_', name)}": str(value)
        for name, value in (notice["group"] or {}).items()
    }
    found = []
    for state, ends in ((notice["previous"], at), (notice["state"], at + _LASTS)):
        if state == "clear":
            continue
        labels = {"alertname": "tidemark", "condition": notice["when"], "severity": state, **group}
        found.append(
            {
                "labels": labels,
                "annotations": {
                    "summary": notice["reason"],
                    "id": notice["id"],
                    **{name: str(notice[name]) for name in ("value", "low", "high")},
                },
                **({"startsAt": at.isoformat()} if ends > at else {}),
                "endsAt": ends.isoformat(),
            }
        )
    return found
