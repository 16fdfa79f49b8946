"""The rows: web requests in nightly loads of a day each, and a few live batches."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidemark import stream, warehouse

LIVE = 10
ONE_URL = "/page/0007"
END = datetime(2026, 3, 3, tzinfo=UTC)  # the live rows are those of the last day
WEEK = (END - timedelta(days=7), END)
DAY = (END - timedelta(days=2), END - timedelta(days=1))
_REGIONS = np.array(["us-east", "us-west", "eu-central", "eu-west", "ap-south", "ap-north", "sa", "af"])


@dataclass(frozen=True, slots=True)
class Sizes:
    """rows: in history, in `nights` loads of a day each; a question is asked `turns` times.

    share: of the questions one of so many has its ways compared.
    """

    rows: int
    urls: int = 5_000
    users: int = 400_000
    turns: int = 5
    nights: int = 60
    share: int = 1


def fill(
    folder: Path, sizes: Sizes, uri: Path | str | None = None, options: dict[str, str] | None = None
) -> None:
    """Makes the rows, loads them, and keeps the files that were loaded.

    uri: where the warehouse is made, by default in the folder. options: of an object store.
    """
    (folder / "source").mkdir(parents=True)
    rng = np.random.default_rng(1)
    shares = 1 / np.arange(1, sizes.urls + 1) ** 1.1
    urls = np.array([f"/page/{i:04d}" for i in range(sizes.urls)])
    day_us = 86_400_000_000

    start_us = int(END.timestamp() * 1e6) - (sizes.nights + 1) * day_us

    def rows(count: int, day: int) -> pa.Table:
        times = start_us + day * day_us + np.sort(rng.integers(0, day_us, count))
        statuses = rng.choice([200, 304, 404, 500], count, p=[0.9, 0.05, 0.04, 0.01])
        return pa.table(
            {
                "latency_ms": rng.lognormal(3, 1, count),
                "bytes": rng.integers(0, 100_000, count),
                "status": statuses.astype(np.int32),
                "region": _REGIONS[rng.integers(0, len(_REGIONS), count)],
                "url": urls[rng.choice(sizes.urls, count, p=shares / shares.sum())],
                "user_id": rng.integers(0, sizes.users, count),
                "at": pa.array(times, pa.timestamp("us", "UTC")),
            }
        )

    uri = uri or folder / "w"
    for day in range(sizes.nights):
        part = rows(sizes.rows // sizes.nights, day)
        if not day:
            warehouse.create(
                None,
                uri,
                "latency_ms",
                keys=["url", "user_id"],
                groups=["region", "url"],
                time="at",
                tick="1h",
                schema=part.schema,
                storage_options=options,
            )
        pq.write_table(part, folder / "source" / f"{day:02d}.parquet")
        warehouse.load(None, uri, part, f"night {day}", storage_options=options)
    for batch in range(LIVE):
        part = rows(max(10, sizes.rows // (LIVE * 600)), sizes.nights)
        pq.write_table(part, folder / "source" / f"live{batch}.parquet")
        stream.append(None, uri, part, source="requests", batch=batch, storage_options=options)
