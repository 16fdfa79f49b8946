"""Warehouses of a server by name, and whether others than this machine reach it."""

from __future__ import annotations

import ipaddress
import re
import socket

from tidemark.query.sql.spark_sql import checked_name, name_of


def parse_warehouse(text: str) -> tuple[str, str]:
    """(name, path) of NAME=PATH; the name defaults to the folder's."""
    match = re.fullmatch(r"(\w+)=(.+)", text)
    name, uri = match.groups() if match else (name_of(text), text)
    return checked_name(name), uri


def is_local_address(host: str) -> bool:
    """Whether only clients on this machine can reach a server that listens on this host."""
    entries = socket.getaddrinfo(host or None, 0, flags=socket.AI_PASSIVE)
    addresses = [str(address[0]).partition("%")[0] for *_, address in entries]
    return all(ipaddress.ip_address(address).is_loopback for address in addresses)
