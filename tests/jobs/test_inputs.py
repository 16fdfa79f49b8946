"""Which files an input is: the same in this process and in Spark, and nothing is left out in silence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.jobs.said import Said, tidemark
from tidemark import query
from tidemark.jobs.inputs import local_inputs, spark_inputs
from tidemark.warehouse import InputError
from tidemark.warehouse.execution.input_files import Found, find_inputs, input_files

Patch = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]


def rows(first: int, count: int = 10) -> pa.Table:
    values = range(first, first + count)
    return pa.table({"m": pa.array(values, pa.float64()), "k": [f"{value:03}" for value in values]})


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files and folders of ten rows a file, each row once."""
    at = tmp_path_factory.mktemp("tree")
    names = ["a", "b", "flat/a", "flat/b", "nested/a", "nested/sub/b", "k=007/a", "days/1/a", "days/2/a"]
    names += [
        "parted/k=007/a",
        "parted/k=008/a",
        "odd/[x]*",
        "odd/x",
        "flat/_hidden",
        "flat/.dot",
        "days/2/_a",
    ]
    for number, name in enumerate(names):
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows(10 * number), at / f"{name}.parquet")
    (at / "flat" / "_SUCCESS").touch()
    write_deltalake(at / "delta", rows(0))
    DeltaTable(at / "delta").delete("m < 5")
    write_deltalake(at / "delta-parts", rows(0, 2), partition_by=["k"])
    for name, table in (
        ("keyless", rows(0).select(["m"])),
        ("more", rows(0).append_column("x", rows(0)["m"])),
    ):
        (at / name).mkdir()
        pq.write_table(rows(10), at / name / "a.parquet")
        pq.write_table(table, at / name / "b.parquet")
    return at


# What is given, and the rows that it is; None for a refusal, with words of its text.
TAKEN: dict[str, tuple[list[str], int]] = {
    "two files": (["a.parquet", "b.parquet"], 20),
    "a folder and a file": (["flat", "a.parquet"], 30),
    "a folder with a slash": (["flat/"], 20),
    "a pattern of files": (["flat/*.parquet"], 20),
    "a pattern of folders": (["days/*"], 20),
    "a pattern of a part": (["[ab].parquet"], 20),
    "any depth": (["nested/**/*.parquet"], 20),
    "a name that looks like a pattern": (["odd/[x]*.parquet"], 10),
    "a folder with such a name": (["odd"], 20),
    "a file in a folder like a column": (["k=007/a.parquet"], 10),
}
REFUSED: dict[str, tuple[list[str], str]] = {
    "a folder in a folder": (["nested"], "contains the folder sub"),
    "folders of a column": (["parted"], "k=007"),
    "folders of a column, its format said": (["parted", "--format", "parquet"], "k=007"),
    "folders of a column by a pattern": (["parted/*/*.parquet"], "k=007"),
    "a missing one of two": (["a.parquet", "c.parquet"], "no such input: "),
    "a pattern of nothing": (["flat/*.csv"], "no such input: "),
    "one twice": (["a.parquet", "a.parquet"], "twice"),
    "one twice, by its folder": (["flat", "flat/a.parquet"], "twice"),
    "a hidden file": (["flat/_hidden.parquet"], "begins with '_' or '.'"),
    "Delta as Parquet": (["delta", "--format", "parquet"], "Delta table"),
    "files of a Delta table": (["delta/*.parquet"], "Delta table"),
    "files of a part of a Delta table": (["delta-parts/k=000"], "Delta table"),
    "Delta and a file": (["delta", "a.parquet"], "Delta table"),
    "a file as Delta": (["a.parquet", "--format", "delta"], "not a Delta table"),
    "a file without the key": (["keyless"], "different columns (k string)"),
    "a file with a column more": (["more"], "different columns (x double)"),
}


def load(capsys: Capture, uri: Path, at: Path, given: list[str], engine: str, *options: str) -> Said:
    """Half of the inputs by one --input each, half behind one."""
    named = [str(at / one) for one in given if one not in {"--format", "parquet", "delta"}]
    if given[0] == "delta":
        named = [str(at / "delta"), *named]
    rest = given[given.index("--format") :] if "--format" in given else []
    inputs = ["--input", *named] if len(named) % 2 else [word for one in named for word in ("--input", one)]
    line = ["load", "-w", uri, *inputs, *rest, "--batch", "b", "--measure", "m", "--key", "k", "--eps", "0.1"]
    return tidemark(capsys, *line, "--engine", engine, *options)


def keys_of(uri: Path) -> Counter[Any]:
    return Counter({hitter.value: hitter.count for hitter in query.open(uri).top(1000)})


def check_all(capsys: Capture, tree: Path, at: Path, engine: str) -> None:
    """Each input is taken whole, by the keys of its rows, or refused, and then there is no warehouse."""
    for number, (given, count) in enumerate(TAKEN.values()):
        uri = at / f"taken-{number}"
        said = load(capsys, uri, tree, given, engine)
        assert (said.code, said.out) == (0, f"b: loaded, {count} rows\n"), (given, said)
        assert sorted(keys_of(uri).values()) == [1] * count, given
    for number, (given, words) in enumerate(REFUSED.values()):
        uri = at / f"refused-{number}"
        said = load(capsys, uri, tree, given, engine)
        assert (said.code, words in said.err, said.err.count("\n")) == (2, True, 1), (given, said)
        assert not uri.exists(), given


def test_each_input_is_taken_whole_or_refused_here(capsys: Capture, tree: Path, tmp_path: Path) -> None:
    check_all(capsys, tree, tmp_path, "local")


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_each_input_is_taken_whole_or_refused_by_spark(capsys: Capture, tree: Path, tmp_path: Path) -> None:
    check_all(capsys, tree, tmp_path, "spark")


@pytest.mark.usefixtures("spark")
def test_a_delta_table_is_its_live_rows(capsys: Capture, tree: Path, tmp_path: Path) -> None:
    assert load(capsys, tmp_path / "w", tree, ["delta"], "spark").out == "b: loaded, 5 rows\n"


def only_the_first(given: Any, places: Any) -> Found:
    return find_inputs(given[:1], places)


def as_given(given: Any, _: Any) -> Found:
    return Found(tuple(given))


@pytest.mark.parametrize("wrong", [only_the_first, as_given])
def test_inputs_that_are_left_out_are_caught(
    wrong: Callable[..., Found], capsys: Capture, tree: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(local_inputs, "find_inputs", wrong)
    with pytest.raises(AssertionError):
        check_all(capsys, tree, tmp_path, "local")


@pytest.mark.usefixtures("spark")
def test_columns_that_spark_would_take_from_one_file_are_caught(
    capsys: Capture, tree: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    """Without the comparison rows have NULL keys, in silence."""
    given, _ = REFUSED["a file without the key"]
    assert load(capsys, tmp_path / "v", tree, given, "spark").code == 2
    monkeypatch.setattr(spark_inputs, "_check_same_columns", lambda *_: None)
    assert load(capsys, tmp_path / "w", tree, given, "spark").code == 0
    assert query.open(tmp_path / "w").top(1)[0].nulls == 10


def test_a_batch_that_is_cut_needs_its_columns_first(capsys: Capture, tree: Path, tmp_path: Path) -> None:
    timed = rows(0).append_column("t", pa.array(range(10), pa.timestamp("us")))
    pq.write_table(timed, tmp_path / "timed.parquet")
    load(capsys, tmp_path / "w", tmp_path, ["timed.parquet"], "local", "--time", "t")
    said = load(capsys, tmp_path / "w", tree, ["a.parquet"], "local", "--time", "t", "--batch-every", "1 day")
    assert (said.code, said.err.startswith("error: the time column 't' is missing")) == (2, True)


class Tree:
    """Places over a plain set of the paths of files."""

    def __init__(self, files: set[str]) -> None:
        self.files = files

    def is_folder(self, path: str) -> bool | None:
        if path in self.files:
            return False
        return True if any(file.startswith(f"{path}/") for file in self.files) else None

    def entries(self, folder: str) -> list[tuple[str, bool]]:
        inside = [file[len(folder) + 1 :] for file in self.files if file.startswith(f"{folder}/")]
        return [
            (name, f"{folder}/{name}" not in self.files) for name in {path.split("/")[0] for path in inside}
        ]

    def real(self, path: str) -> str:
        return path


def worlds() -> Iterator[tuple[set[str], str]]:
    random = Random(3)
    parts = ["a", "b", "ab", "_a", "a.csv", "b.csv"]
    patterns = ["*", "a*", "?", "[ab]", "**", "*.csv", "a", "b"]
    for _ in range(300):
        drawn = {"/".join(random.choices(parts, k=random.randint(1, 3))) for _ in range(random.randint(1, 9))}
        files = {f"/r/{one}" for one in drawn if not any(other.startswith(f"{one}/") for other in drawn)}
        yield files, "/r/" + "/".join(random.choices(patterns, k=random.randint(1, 3)))


def test_a_pattern_is_what_the_standard_library_makes_of_it(tmp_path: Path) -> None:
    """Random trees on disk: our matches, folders made into their files, beside those of pathlib."""
    taken = 0
    for number, (files, pattern) in enumerate(worlds()):
        root = tmp_path / f"{number}"
        for file in files:
            (root / file[3:]).parent.mkdir(parents=True, exist_ok=True)
            (root / file[3:]).touch()
        deep = "**" in pattern
        below = pattern[3:] + ("/*" if pattern.endswith("**") else "")
        named = [path for path in root.glob(below) if not hidden(path.relative_to(root))]
        named = [path for path in named if path.is_file() or not deep]
        expected = {f"/r/{path.relative_to(root)}" for path in named if path.is_file()}
        expected |= {
            f"/r/{file.relative_to(root)}" for path in named if path.is_dir() for file in path.iterdir()
        }
        expected = {path for path in expected if not hidden(Path(path))}
        found, refused = taken_or_refused(pattern, Tree(files))
        if found is None:
            assert ("contains " if named else "no such input") in refused, (files, pattern, refused)
            continue
        taken += 1
        assert sorted(found.paths) == sorted(expected), (files, pattern)
    assert taken > 50


def taken_or_refused(pattern: str, places: Tree) -> tuple[Found | None, str]:
    try:
        return find_inputs([pattern], places), ""
    except InputError as error:
        return None, str(error)


def hidden(path: Path) -> bool:
    return any(part.startswith(("_", ".")) for part in path.parts)


def test_python_takes_several_paths_and_patterns(tree: Path) -> None:
    assert input_files([tree / "a.parquet", f"{tree}/fl*"]) == [
        tree / name for name in ("a.parquet", "flat/a.parquet", "flat/b.parquet")
    ]
    assert input_files(f"file://{tree}/a.parquet") == [tree / "a.parquet"]
