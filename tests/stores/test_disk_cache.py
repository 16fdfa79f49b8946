"""The cache on disk gives what was put into it or nothing, and stays within its budget."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tidemark.warehouse.delta.disk_cache import DiskCache


def test_what_is_kept(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 10**6)
    assert cache.get("a") is None
    cache.put("a", b"one")
    cache.put("b", b"")
    cache.put("a", b"two")
    assert (cache.get("a"), cache.get("b")) == (b"two", b"")
    assert DiskCache(tmp_path, 10**6).get("a") == b"two"


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1_000)
    for number in range(40):
        cache.put(str(number), bytes(100))
        assert cache.get("0") is not None
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 1_000
    assert cache.get("39") is not None
    assert cache.get("1") is None


def test_a_content_larger_than_the_budget_is_not_kept(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 10)
    cache.put("a", bytes(100))
    assert list(tmp_path.iterdir()) == []


@given(content=st.binary(max_size=50), at=st.integers(0, 65), bits=st.integers(1, 255), cut=st.booleans())
def test_a_damaged_entry_counts_as_missing(
    tmp_path_factory: object, content: bytes, at: int, bits: int, cut: bool
) -> None:
    folder = Path(tmp_path_factory.mktemp("cache"))  # type: ignore[attr-defined]
    cache = DiskCache(folder, 10**6)
    cache.put("a", content)
    (entry,) = folder.iterdir()
    stored = bytearray(entry.read_bytes())
    at %= len(stored)
    if cut:
        stored = stored[:at]
    else:
        stored[at] ^= bits
    entry.write_bytes(stored)
    assert cache.get("a") is None


def test_a_folder_that_can_no_longer_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    cache = DiskCache(folder, 10**6)
    folder.rmdir()
    cache.put("a", b"one")
    assert cache.get("a") is None
