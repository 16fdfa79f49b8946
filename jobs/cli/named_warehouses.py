"""Warehouses of a server by name, and whether other machines can reach the server."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Sequence

from tidemark.query.sql.spark_sql import checked_name, name_of
from tidemark.warehouse.errors import InputError


def parse_warehouse(text: str) -> tuple[str, str]:
    """(name, path) of NAME=PATH; the name defaults to the folder's."""
    match = re.fullmatch(r"(\w+)=(.+)", text)
    name, uri = match.groups() if match else (name_of(text), text)
    return checked_name(name), uri


def named_warehouses(texts: Sequence[str]) -> dict[str, str | dict[str, str]]:
    """The paths by name, from texts NAME=PATH; for texts NAME.SITE=PATH a mapping of sites to paths.

    InputError for a name that is given twice, and for sites of a name that is a warehouse, too.
    """
    found: dict[str, str | dict[str, str]] = {}
    for text in texts:
        match = re.fullmatch(r"(\w+)\.(\w+)=(.+)", text)
        site = match[2] if match else ""
        name, uri = (match[1], match[3]) if match else parse_warehouse(text)
        known = found.get(checked_name(name), {} if site else None)
        is_new = site and site not in known if isinstance(known, dict) else known is None
        if not is_new:
            raise InputError(f"a name is given twice: {f'{name}.{site}' if site else name}.")
        found[name] = {**known, site: uri} if isinstance(known, dict) else uri
    return found


def is_local_address(host: str) -> bool:
    """Whether only clients on this machine can reach a server that listens on this host."""
    entries = socket.getaddrinfo(host or None, 0, flags=socket.AI_PASSIVE)
    addresses = [str(address[0]).partition("%")[0] for *_, address in entries]
    return all(ipaddress.ip_address(address).is_loopback for address in addresses)
