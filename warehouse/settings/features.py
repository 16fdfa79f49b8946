"""Features of the stored format that only newer versions of tidemark know.

If a later version adds something that an earlier version would read or write wrongly, that addition is a
*feature*, and the number of the format stays 1. The property `tidemark.features` of `events` is a JSON object
that maps each feature to the first version that knows it, such as {"wide-marks": "0.3.0"}. A version refuses
a warehouse that has a feature unknown to it, and names the feature. A warehouse without features does not
have the property.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tidemark.warehouse.events import removals

# The features that this version reads and writes, with the first version that knows each. The first version,
# 0.2.0, has none.
#
#   added-measures   live batches from before a measure was added have no summary of it
#   changed-eps      live batches from before eps or key_eps was changed have summaries of another error
#   added-columns    files of `events` lack columns that came later; rows have NULL there
#   index            history has projections that find rows; all loads write them, and a purge forgets them
#   private-columns  columns have tokens in place of values
#   renamed-columns  names of columns are others than those in files of `events` and of folders
#   signed           rows of history leave: who reads or writes looks at `removals` (docs/signed_steps.md)
ADDED_MEASURES = "added-measures"
CHANGED_EPS = "changed-eps"
ADDED_COLUMNS = "added-columns"
INDEX = "index"
RENAMED_COLUMNS = "renamed-columns"
SIGNED = removals.FEATURE
PRIVATE = "private-columns"
KNOWN: Mapping[str, str] = dict.fromkeys(
    (ADDED_MEASURES, CHANGED_EPS, ADDED_COLUMNS, INDEX, PRIVATE, RENAMED_COLUMNS, SIGNED), "0.3.0"
)

_VERSION = re.compile(r"\d+(\.\d+){0,3}")


def are_valid(features: Any) -> bool:
    """Whether the value maps names to versions."""
    return isinstance(features, Mapping) and all(
        name and isinstance(version, str) and _VERSION.fullmatch(version)
        for name, version in features.items()
    )


def describe_unknown(features: Mapping[str, str]) -> str | None:
    """The unknown features, and the first version that knows them all, as text; None if all are known."""
    unknown = {name: version for name, version in features.items() if name not in KNOWN}
    if not unknown:
        return None
    newest = max(unknown.values(), key=lambda version: [int(part) for part in version.split(".")])
    names = ", ".join(repr(name) for name in sorted(unknown))
    plural = "s" if len(unknown) > 1 else ""
    return f"the feature{plural} {names}, known from tidemark {newest} on"
