"""Damages one file of a warehouse at random, then asks it everything; again and again.

    python -m tests.crash.flips SEED TRIALS FOLDER [unchecked]

A trial changes a bit, a byte, a few bytes or the length of one data file of a copy. A reader that has seen
nothing is then asked a third of all questions, in one window or another: each answer is the one of the
sound warehouse, or DamagedWarehouse. Every few trials a load that merges comes after the damage: it says
DamagedWarehouse or makes runs that are right, so that the warehouse is sound once the file is put back.

With `unchecked` readers compare what they read with no digest, as they should not; only files of runs, whose
pages are hardly compressed, are damaged then.

Prints what happened as JSON: trials by kind of file and by outcome, and what was wrong.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.warehouse.disk import tables_of
from tests.warehouse.hereloader import Loader, rows_of
from tidemark import query, warehouse
from tidemark.warehouse.integrity import sealed_files
from tidemark.warehouse.runs import marks
from tidemark.warehouse.sizes import Tuning

LOAD_EVERY = 10  # trials
WINDOWS: list[dict[str, Any]] = [
    {},
    {"between": ("1970-01-02", "1970-01-04")},
    {"between": ("1970-01-01 06:00", "1970-01-02 18:00")},
]
PHIS = [i / 150 for i in range(151)]
_BLOCKS_READ = re.compile(r", [\d,]+ blocks? read")  # fewer after a question about the same groups
KEYS = [f"k{i}" for i in range(7)]
PAIR = ("k", "n")  # a key and a group
# Blocks, slices and files are small, so that every kind of file has several of all.
TINY = Tuning(
    block_rows=64,
    key_block_rows=4,
    sort_rows=400,
    slice_rows=128,
    file_rows=(256, 512),
    group_rows=100,
    fan=3,
)


def build(folder: Path) -> Loader:
    """A warehouse with three keys and two groups: runs of two levels, live batches and ranges of them."""
    loader = Loader.create(folder, TINY, eps=0.02, kappa=3, keys=["n", list(PAIR)], groups=["k", list(PAIR)])
    for seed in range(5):
        loader.load(rows_of(seed, 300, 5))
    for seed in range(5, 12):
        loader.stream(rows_of(seed, 60, 5))
    loader.load_live()
    for seed in range(12, 20):
        loader.stream(rows_of(seed, 50, 5))
    return loader


def _as_list(ask: Callable[..., Any], *args: Any, **options: Any) -> list[Any]:
    return [ask(*args, **options)]


def _bins(wh: query.Warehouse, **window: Any) -> Any:
    return wh.histogram(8, measure="x", **window).bins


def questions(wh: query.Warehouse, windows: Sequence[int]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Everything that can be asked in some windows, by name."""
    for window in (WINDOWS[i] for i in windows):
        for mode in ("quick", "accurate", "exact"):
            for measure in ("x", "n"):
                asked: dict[str, Any] = {"measure": measure, "mode": mode, **window}
                yield f"quantile {asked}", partial(wh.quantile, PHIS, **asked)
            yield f"rank {asked}", partial(wh.rank, [-3, 0, 2], **asked)
            yield f"cdf {asked}", partial(wh.cdf, [-3, 0, 2], **asked)
        for mode in ("approximate", "exact"):
            asked = {"mode": mode, **window}
            yield f"frequency {asked}", partial(wh.frequency, KEYS, **asked)
            yield f"top {asked}", partial(wh.top, 3, **asked)
            yield f"hitters {asked}", partial(wh.heavy_hitters, 0.2, **asked)
            yield f"range {asked}", partial(_as_list, wh.key_range, "k1", "k4", **asked)
            yield f"join {asked}", partial(_as_list, wh.self_join, **asked)
            yield f"distinct {asked}", partial(_as_list, wh.distinct, **asked)
            yield f"persistent {asked}", partial(wh.persistent, 0.5, **asked)
        yield f"histogram {window}", partial(_bins, wh, **window)
        exact: dict[str, Any] = {"mode": "exact", **window}
        for measure in ("x", "n"):
            yield f"by k {measure} {window}", partial(wh.quantile, [0.3, 0.9], measure, by="k", **exact)
            asked = {"where": {"k": "k2", "n": -3}, **exact}
            yield f"quantile {measure} {asked}", partial(wh.quantile, [0.3, 0.9], measure, **asked)
        yield f"by n {window}", partial(wh.quantile, [0.5], where={"k": "k3"}, by="n", **window)
        for key in ("n", PAIR):
            yield f"join {key} {window}", partial(_as_list, wh.self_join, key=key, **window)
            yield f"top {key} {window}", partial(wh.top, 3, key=key, **window)
            yield f"distinct {key} {window}", partial(_as_list, wh.distinct, key=key, **window)
            yield f"persistent {key} {window}", partial(wh.persistent, 0.5, key=key, **window)
        pairs = [(name, number) for name in KEYS for number in (-5, 0, 4)]
        yield f"frequency {PAIR} {window}", partial(wh.frequency, pairs, key=PAIR, **window)
        ends = (("k1",), ("k3", 2))
        yield f"range {PAIR} {window}", partial(_as_list, wh.key_range, *ends, key=PAIR, **window)
    yield "span", lambda: [wh.span("x")]
    yield "info", lambda: [sorted((name, told) for name, told in wh.info().items() if name != "memory")]


def answers(
    uri: str, windows: Sequence[int] = range(len(WINDOWS)), asked: Callable[[], bool] = lambda: True
) -> Iterator[tuple[str, Any]]:
    """The answers of a new reader, each as text, or the error that it ended in, of those that are `asked`."""
    try:
        wh = query.open(uri)
    except Exception as error:  # noqa: BLE001  the caller judges it
        yield "open", error
        return
    for name, ask in questions(wh, windows):
        if not asked():
            continue
        try:
            yield name, [_BLOCKS_READ.sub("", repr(one).replace(uri, "")) for one in ask()]
        except Exception as error:  # noqa: BLE001
            yield name, error


def data_files(uri: str) -> list[Path]:
    """Every file that a reader may open: those that tables name, but for the marks of runs that are gone."""
    held = {name: list(files) for name, (_, files) in tables_of(uri).items()}
    runs = {Path(path).parent for name in held if "mark" not in name for path in held[name]}
    marked = [name for name in held if "mark" in name]
    for name in marked:
        held[name] = [path for path in held[name] if Path(path).parent in runs]
    return sorted(Path(uri, name, path) for name in held for path in held[name])


def damage(path: Path, chance: random.Random) -> str:
    """Changes the file in one of some ways, two times of three before its footer; which."""
    data = bytearray(path.read_bytes())
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    at = chance.randrange(len(data) if chance.randrange(3) == 0 else footer)
    way = chance.choice(["bit", "bit", "byte", "bytes", "cut"])
    if way == "bit":
        data[at] ^= 1 << chance.randrange(8)
    elif way == "byte":
        data[at] = (data[at] + chance.randrange(1, 256)) % 256
    elif way == "bytes":
        data[at : at + 8] = chance.randbytes(len(data[at : at + 8]))
    else:
        del data[at:]
    path.unlink()  # the copy's alone: others have the same inode
    path.write_bytes(data)
    return way


def judge(name: str, told: Any, true: Any) -> str:
    """What became of a question: right, told, wrong or foreign."""
    if isinstance(told, warehouse.DamagedWarehouse):
        return "told"
    if isinstance(told, Exception):
        return f"foreign: {name}: {type(told).__name__}: {told}"
    return "right" if told == true else f"wrong: {name}: {told} instead of {true}"


def load_after(uri: str, path: Path, sound: Path) -> str | None:
    """A load with merges, after which the damaged file is put back; what is wrong then."""
    loader = Loader(uri, streamed=100, bulk=100, seed=500, tuning=TINY)
    try:
        loader.load(rows_of(77, 300, 5))
    except warehouse.DamagedWarehouse:
        pass
    except Exception as error:  # noqa: BLE001
        return f"foreign: load: {type(error).__name__}: {error}"
    if path.exists():  # not merged away
        path.unlink()
    shutil.copyfile(sound, path)
    report = warehouse.verify(uri)
    return None if report.ok else f"wrong: after a load: {report}"


def run(seed: int, trials: int, folder: Path, *, unchecked: bool) -> dict[str, Any]:
    """As the module says."""
    if unchecked:
        sealed_files._check_digests = lambda *_: None
        marks.FileDigests.check_block = lambda *_: None  # type: ignore[method-assign]  # the broken variant
    chance = random.Random(seed)
    loader = build(folder / "sound")
    true = dict(answers(loader.uri))
    assert not any(isinstance(one, Exception) for one in true.values()), true
    found: Counter[str] = Counter()
    wrong: list[str] = []
    kinds: dict[str, list[Path]] = {}
    for path in data_files(loader.uri):
        kinds.setdefault(path.relative_to(loader.uri).parts[0], []).append(path)
    if unchecked:
        kinds = {name: kinds[name] for name in ("runs", "keys", "more_keys", "group_runs")}
    for trial in range(trials):
        copy = folder / "copy"
        shutil.copytree(loader.uri, copy, copy_function=os.link)
        kind = sorted(kinds)[trial % len(kinds)]
        sound = chance.choice(kinds[kind])
        path = copy / sound.relative_to(loader.uri)
        way, window = damage(path, chance), chance.randrange(len(WINDOWS))
        found_now = answers(str(copy), [window], lambda: unchecked or chance.random() < 0.3)
        outcomes = [judge(name, told, true.get(name)) for name, told in found_now]
        bad = [text for text in outcomes if text.startswith(("foreign", "wrong"))]
        if trial % LOAD_EVERY == 0 and not bad:
            told = load_after(str(copy), path, sound)
            bad += [told] if told else []
        seen = "wrong" if bad else "told" if "told" in outcomes else "right"
        found[f"{kind}: {seen}"] += 1
        wrong += [f"{way} of {path.relative_to(copy)} (trial {trial}): {text[:600]}" for text in bad[:2]]
        shutil.rmtree(copy)
        if unchecked and wrong:  # which is what was asked
            break
    return {"trials": trials, "found": dict(sorted(found.items())), "wrong": wrong}


if __name__ == "__main__":
    checks_nothing = sys.argv[4:] == ["unchecked"]
    print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), unchecked=checks_nothing)))
