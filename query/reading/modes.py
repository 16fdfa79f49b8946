"""The modes of answers, which differ in promise and reads, and the orders of groups; see `Reader`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

from tidemark.warehouse.errors import InputError, shortened

Mode = Literal["quick", "accurate", "exact"]  # of answers about measures
KeyMode = Literal["approximate", "exact"]  # of answers about keys
MODES: tuple[Mode, ...] = get_args(Mode)
KEY_MODES: tuple[KeyMode, ...] = get_args(KeyMode)
Order = Literal["value", "-value", "rows", "-rows", "error", "-error"]  # of groups; - for the greatest first
ORDERS: tuple[Order, ...] = get_args(Order)


def check_mode(mode: Any, modes: Sequence[str]) -> str:
    """The mode. Raises InputError if it is none of `modes`."""
    if not isinstance(mode, str) or mode not in modes:
        raise InputError(f"no mode {shortened(mode)}: mode must be one of {', '.join(modes)}.")
    return str(mode)
