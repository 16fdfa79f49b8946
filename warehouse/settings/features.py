"""What a warehouse has that not every version of tidemark knows: named in its options, refused by name.

The format's number stays 1. What a later version adds, so that an earlier one would read or write it
wrongly, is a *feature*: the property `tidemark.features` of `events` names it with the least version that
knows it, as a JSON object such as {"wide-marks": "0.3.0"}. A warehouse without features has no such property.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# The features that this version reads and writes: there are none yet.
KNOWN: frozenset[str] = frozenset()

_VERSION = re.compile(r"\d+(\.\d+){0,3}")


def check(features: Any) -> None:
    """ValueError where the value is no object from names to versions."""
    if not isinstance(features, Mapping) or not all(
        name and isinstance(version, str) and _VERSION.fullmatch(version)
        for name, version in features.items()
    ):
        raise ValueError('features must be an object from names to versions, such as {"wide-marks": "0.3.0"}')


def unknown(features: Mapping[str, str]) -> str | None:
    """What of the features this version does not know, and the version that knows all; None: it knows all."""
    missing = {name: version for name, version in features.items() if name not in KNOWN}
    if not missing:
        return None
    newest = max(missing.values(), key=lambda version: [int(part) for part in version.split(".")])
    names = ", ".join(repr(name) for name in sorted(missing))
    plural = "s" if len(missing) > 1 else ""
    return f"the feature{plural} {names}, known from tidemark {newest} on"
