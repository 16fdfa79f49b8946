"""Measures the parts of `sites`, one after the other, and returns the section."""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.report import Section
from bench.sites import against_one, alerts, in_stores, over_https, served
from bench.sites.rows import Sizes


def run(work: Path, sizes: Sizes) -> Section:
    """Measures and returns the section."""
    section, folder = (
        Section("sites", "Sites: several warehouses asked as one, and the server"),
        work / "sites",
    )
    uris = against_one.measure(section, folder, sizes)
    served.measure(section, uris, sizes)
    over_https.measure(section, folder, uris, sizes)
    alerts.measure(section, uris, sizes)
    in_stores.measure(section, sizes)
    shutil.rmtree(folder)
    return section


def run_large(work: Path, sizes: Sizes) -> Section:
    """Measures quantiles over sites with many rows, and returns the section."""
    section, folder = Section("sites-large", "Sites: quantiles over many more rows"), work / "sites-large"
    against_one.measure(section, folder, sizes, against_one.LARGE, against_one.TARGET_LARGE)
    shutil.rmtree(folder)
    return section
