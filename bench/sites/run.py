"""Measures the parts of `sites`, one after the other, and returns the section."""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.report import Section
from bench.sites import against_one, alerts, in_stores, served
from bench.sites.rows import Sizes


def run(work: Path, sizes: Sizes) -> Section:
    """Measures and returns the section."""
    section, folder = (
        Section("sites", "Sites: several warehouses asked as one, and the server"),
        work / "sites",
    )
    uris = against_one.measure(section, folder, sizes)
    served.measure(section, uris, sizes)
    alerts.measure(section, uris, sizes)
    in_stores.measure(section, sizes)
    shutil.rmtree(folder)
    return section
