"""News of folders: each change in one, or of a folder above, is told; others are not watched."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemark.warehouse.delta import folder_news
from tidemark.warehouse.delta.folder_news import FolderNews

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux tells")
CHANGES: dict[str, Callable[[Path], object]] = {
    "a file comes": lambda log: (log / "2").write_text(""),
    "a file is put in the place of another": lambda log: (log.parent / "beside").replace(log / "1"),
    "a file comes from elsewhere": lambda log: (log.parent / "beside").rename(log / "2"),
    "a file gets a second name": lambda log: (log / "2").hardlink_to(log / "1"),
    "a file leaves": lambda log: (log / "1").unlink(),
    "a file goes elsewhere": lambda log: (log / "1").rename(log.parent / "1"),
    "the time of the folder changes": lambda log: os.utime(log, (1, 1)),
    "the folder is moved": lambda log: log.rename(log.parent / "old"),
    "a folder above is moved": lambda log: log.parent.parent.rename(log.parent.parent.parent / "old"),
    "another process writes": lambda log: subprocess.run(["touch", str(log / "2")], check=True),  # noqa: S607
}


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file, on a disk that counts as this machine's own."""
    monkeypatch.setattr(folder_news, "_local_disks", lambda: {tmp_path.stat().st_dev})
    found = tmp_path / "warehouse" / "table" / "log"
    found.mkdir(parents=True)
    (found / "1").write_text("")
    (found.parent / "beside").write_text("")
    return found


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_is_told(log: Path, change: str) -> None:
    news = FolderNews()
    before = news.watched([str(log)])
    assert news.heard() == before >= 0
    CHANGES[change](log)
    assert news.heard() > before
    assert news.heard() == news.heard()
    assert news.proves(before)


def test_what_is_read_or_happens_elsewhere_is_no_news(log: Path) -> None:
    news = FolderNews()
    before = news.watched([str(log)])
    assert list(log.iterdir())
    assert (log / "1").read_text() == ""
    (log.parent / "other").mkdir()
    (log.parent / "other" / "file").write_text("")
    assert news.heard() == before


def test_a_watch_that_is_lost_proves_nothing_of_what_was_watched_before(log: Path) -> None:
    news = FolderNews()
    before = news.watched([str(log)])
    (log / "1").unlink()
    log.rmdir()
    assert news.heard() > before
    assert not news.proves(before)
    log.mkdir()
    assert news.proves(news.watched([str(log)]))
    # As when more came than the kernel keeps.
    again = news.watched([str(log)])
    with news._lock:
        news._heard += 1
        news._take(folder_news._EVENT.pack(-1, folder_news._OVERFLOW, 0, 0))
    assert not news.proves(again)


def test_numbers_of_a_process_that_was_forked_are_above_those_of_its_parent(log: Path) -> None:
    parent = FolderNews()
    watched = parent.watched([str(log)])
    child = FolderNews()
    assert child.heard() > parent.heard()
    assert not child.proves(watched)


def test_folders_whose_changes_may_not_be_told_are_not_watched(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    news, link = FolderNews(), log.parent.parent.parent / "link"
    link.symlink_to(log.parent.parent)
    assert news.watched([str(link / "table" / "log")]) == -1
    assert news.watched([os.path.relpath(log)]) == -1
    assert news.watched([str(log / "1")]) == -1
    with pytest.raises(FileNotFoundError):
        news.watched([str(log / "nothing")])
    assert news.watched([str(log)]) >= 0
    with monkeypatch.context() as patch:
        patch.setattr(folder_news, "MOST", 2)
        assert FolderNews().watched([str(log)]) == -1
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "another")
        elsewhere = FolderNews()
    assert elsewhere.watched([str(log)]) == -1
    assert elsewhere.heard() == elsewhere.heard()
    monkeypatch.setattr(folder_news, "_local_disks", set)
    assert news.watched([str(log)]) == -1


def test_disks_are_told_by_their_file_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = (
        "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        "23 22 0:21 / /data rw shared:2 master:1 - nfs4 server:/data rw\n"
        "24 22 0:22 / /tmp\\040x rw - tmpfs tmpfs rw\n"
    )
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: mounts)
    assert folder_news._local_disks() == {os.makedev(254, 0), os.makedev(0, 22)}
