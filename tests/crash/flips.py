"""Damages a warehouse at random, asks it everything, and repairs it; again and again.

    python -m tests.crash.flips SEED DAMAGES FOLDER [unchecked | unrepaired]

A trial damages a copy once or twice (damages.py): bytes or the length of a data file, or the file itself; the
newest entries of a table's log, or its folder. A reader that has seen nothing is then asked some of all
questions, in one window or another: each answer is the one of the sound warehouse, or DamagedWarehouse. Then
a repair makes all right again; files of `events` and `rejected` are put back for it. Every few trials a load
that merges comes after the damage instead: it says DamagedWarehouse or makes runs that are right, so that the
warehouse is sound once the file is put back.

With `unchecked` readers compare what they read with no digest, as they should not; only files of runs, whose
pages are hardly compressed, are damaged then, several at once. With `unrepaired` a repair takes every run for
sound.

Prints what happened as JSON: damages by kind of file and by outcome, what was wrong, and in how many trials
answers missed rows because the ledger was behind.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.crash.damages import KEPT, damage_file, damage_table
from tests.warehouse.disk import tables_of
from tests.warehouse.hereloader import Loader, rows_of
from tidemark import query, warehouse
from tidemark.warehouse.integrity import sealed_files
from tidemark.warehouse.repairs import runs as repaired_runs
from tidemark.warehouse.runs import marks
from tidemark.warehouse.sizes import Tuning

LOAD_EVERY = 10  # trials
ASKED = 0.15  # of all questions after a damage
UNCHECKED = 8  # files that are damaged at once where nothing is compared, and all exact questions are asked
WINDOWS: list[dict[str, Any]] = [
    {},
    {"between": ("1970-01-02", "1970-01-04")},
    {"between": ("1970-01-01 06:00", "1970-01-02 18:00")},
]
PHIS = [i / 150 for i in range(151)]
_SPLIT = re.compile(
    r"[\d,]+ history \+ [\d,]+ live"
)  # a repair may make history of live rows, or the reverse
# Fewer blocks after a question about the same groups; on a busy machine an index is left for a scan.
_READ = re.compile(r", (?:[\d,]+ blocks? read|a scan of [\d,]+ rows)")
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


@dataclass(frozen=True)
class Harm:
    """What was damaged and how; `path` is the file in the warehouse, None for a table."""

    kind: str
    way: str
    path: Path | None = None

    def __str__(self) -> str:
        return f"{self.way} of {self.path or self.kind}"


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


def _is_exact(name: str) -> bool:
    """Whether a question, by its name, is for exact answers."""
    return "'exact'" in name


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
            yield f"summary {measure} {window}", partial(_as_list, wh.summary, measure, **window)
            yield f"summary by k {measure} {window}", partial(wh.summary, measure, by="k", **window)
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
    uri: str, windows: Sequence[int] = range(len(WINDOWS)), asked: Callable[[str], bool] = lambda _: True
) -> Iterator[tuple[str, Any]]:
    """The answers of a new reader, each as text, or the error that it ended in, of those that are `asked`."""
    try:
        wh = query.open(uri)
    except Exception as error:  # noqa: BLE001  the caller judges it
        yield "open", error
        return
    for name, ask in questions(wh, windows):
        if not asked(name):
            continue
        try:
            yield name, [_READ.sub("", repr(one).replace(uri, "")) for one in ask()]
        except Exception as error:  # noqa: BLE001
            yield name, error


def true_answers(sound: Path) -> dict[str, Any]:
    """Those of the sound warehouse; the first process that asks for them keeps them beside it."""
    kept = sound.with_name("true")
    if not kept.exists():
        kept.write_bytes(pickle.dumps(dict(answers(str(sound)))))
    true: dict[str, Any] = pickle.loads(kept.read_bytes())
    assert not any(isinstance(one, Exception) for one in true.values()), true
    return true


def data_files(uri: str) -> list[Path]:
    """Every file that a reader may open: those that tables name, but for the marks of runs that are gone."""
    held = {name: list(files) for name, (_, files) in tables_of(uri).items()}
    runs = {Path(path).parent for name in held if "mark" not in name for path in held[name]}
    marked = [name for name in held if "mark" in name]
    for name in marked:
        held[name] = [path for path in held[name] if Path(path).parent in runs]
    return sorted(Path(uri, name, path) for name in held for path in held[name])


def judge(name: str, told: Any, true: Any, tables: Sequence[str] = ()) -> str:
    """What became of a question: right, told, wrong, foreign, or behind.

    tables   those that are damaged as a whole: one that is behind gives wider bounds, which is no fault, so
             only exact answers are compared; any error of ours tells. A ledger that is behind cannot be told
             from an append that was killed before it wrote there: its answers are `behind`.
    """
    of_table = bool(tables)
    if isinstance(told, warehouse.TidemarkError if of_table else warehouse.DamagedWarehouse):
        return "told"
    if isinstance(told, Exception):
        return f"foreign: {name}: {type(told).__name__}: {told}"
    if of_table and not _is_exact(name):
        return "right"
    same = told == true or (of_table and _SPLIT.sub("", str(told)) == _SPLIT.sub("", str(true)))
    kind = "behind" if "ledger" in tables else "wrong"
    return "right" if same else f"{kind}: {name}: {told} instead of {true}"


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


def spoil(copy: Path, kinds: dict[str, list[Path]], turn: int, chance: random.Random) -> Harm:
    """Damages one file, of a kind in turn, or, one time of four, one table of the copy."""
    if chance.randrange(4) == 0:
        return Harm(*damage_table(copy, chance))
    kind = sorted(kinds)[turn % len(kinds)]
    path = chance.choice(kinds[kind])
    gone = not (copy / path).exists()  # the first of two damages took it
    return Harm(kind, "gone before" if gone else damage_file(copy / path, chance), path)


def put_back(copy: Path, harm: Sequence[Harm], sound: Path) -> bool:
    """Puts the files back that only a copy has; whether there was one."""
    kept = [one.path for one in harm if one.path is not None and one.kind in KEPT]
    for path in kept:
        (copy / path).unlink(missing_ok=True)
        shutil.copyfile(sound / path, copy / path)
    return bool(kept)


def repair_after(
    copy: Path, harm: Sequence[Harm], sound: Path, true: dict[str, Any], *, verified: bool
) -> list[str]:
    """Repairs; puts back what only a copy has, and repairs again; what is wrong then."""
    uri = str(copy)
    try:
        report = warehouse.repair(None, uri, tuning=TINY)
        if put_back(copy, harm, sound):
            report = warehouse.repair(None, uri, tuning=TINY)
        again = warehouse.repair(None, uri, dry_run=True, tuning=TINY)
        found = warehouse.verify(uri) if verified else None
    except Exception as error:  # noqa: BLE001
        return [f"foreign: repair: {type(error).__name__}: {error}"]
    bad = [f"wrong: repair: {report}"] if report.only_a_copy else []
    bad += [] if found is None or found.ok else [f"wrong: after a repair: {found}"]
    bad += [] if again.outcome == "sound" else [f"wrong: repaired, and not sound: {again}"]
    for name, told in answers(uri, [0], _is_exact):
        if _SPLIT.sub("", str(told)) != _SPLIT.sub("", str(true[name])):
            bad.append(f"wrong: after a repair: {name}: {told} instead of {true[name]}")
    return bad


def run(seed: int, damages: int, folder: Path, broken: str = "") -> dict[str, Any]:
    """As the module says."""
    unchecked = broken == "unchecked"
    if broken == "unrepaired":
        repaired_runs._fault = lambda *_: None
    if unchecked:
        sealed_files._check_digests = lambda *_: None
        marks.FileDigests.check_block = lambda *_: None  # type: ignore[method-assign]  # the broken variant
    chance = random.Random(seed)
    sound, copy = folder / "sound", folder / "copy"
    if not sound.exists():
        build(sound)
    true = true_answers(sound)
    found: Counter[str] = Counter()
    wrong: list[str] = []
    kinds: dict[str, list[Path]] = {}
    for path in data_files(str(sound)):
        kinds.setdefault(path.relative_to(sound).parts[0], []).append(path.relative_to(sound))
    if unchecked:
        kinds = {name: kinds[name] for name in ("runs", "keys", "group_runs")}
    done = trial = behind = 0
    while done < damages and not (broken and wrong):
        shutil.copytree(sound, copy, copy_function=os.link)
        if unchecked:
            paths = [chance.choice(kinds[chance.choice(sorted(kinds))]) for _ in range(UNCHECKED)]
            harm = [
                Harm(path.parts[0], damage_file(copy / path, chance), path) for path in dict.fromkeys(paths)
            ]
        else:
            harm = [spoil(copy, kinds, done + more, chance) for more in range(chance.choice([1, 2, 2]))]
        window = chance.randrange(len(WINDOWS))
        wanted: Callable[[str], bool] = _is_exact if unchecked else lambda _: chance.random() < ASKED
        found_now = answers(str(copy), [window], wanted)
        tables = [one.kind for one in harm if one.path is None]
        outcomes = [judge(name, told, true.get(name), tables) for name, told in found_now]
        behind += any(text.startswith("behind") for text in outcomes)
        bad = [text for text in outcomes if text.startswith(("foreign", "wrong"))]
        if not unchecked and not bad:
            only = harm[0].path if len(harm) == 1 else None
            if trial % LOAD_EVERY == 0 and only is not None and (copy / only).exists():
                told = load_after(str(copy), copy / only, sound / only)
                bad += [told] if told else []
            else:
                bad += repair_after(copy, harm, sound, true, verified=trial % 3 == 1)
        seen = "wrong" if bad else "told" if "told" in outcomes else "right"
        found.update(f"{one.kind.split('/')[0]}: {seen}" for one in harm)
        wrong += [f"{'; '.join(map(str, harm))} (trial {trial}): {text[:600]}" for text in bad[:2]]
        done, trial = done + len(harm), trial + 1
        shutil.rmtree(copy)
    return {"damages": done, "found": dict(sorted(found.items())), "behind": behind, "wrong": wrong}


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), *sys.argv[4:])))
