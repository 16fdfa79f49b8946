"""What all tests share: one Spark session and the settings of hypothesis."""

from __future__ import annotations

import atexit
import gc
import heapq
import math
import os
import re
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

from tests import java, one_processor, processor, soak
from tests.spark_workers import spark_daemon
from tests.spark_workers.spark_daemon import FAST
from tidemark import query, warehouse
from tidemark.query.alerts import of_warehouse, over_sites
from tidemark.query.plots import plots
from tidemark.query.reading import spending
from tidemark.warehouse.columns import looped_sums
from tidemark.warehouse.delta import served_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

# What is imported at its first use: a module that is imported while a test has another one patched would take
# the patched name and keep it.
AT_FIRST_USE = (
    *(getattr(package, name) for package in (query, warehouse) for name in package.__all__),
    *(of_warehouse, over_sites, plots, served_files),
)

java.set_options()
gc.disable()  # until all modules are imported: nothing of them goes away, and to look takes long

# Started in the background by a shell (`make test &`), a process ignores Ctrl-C, and so do its children.
signal.signal(signal.SIGINT, signal.default_int_handler)

# An end for a test that waits for what does not come, before that of faulthandler. A soak has long tests.
TEST_SECONDS = 20_000 if any(name.startswith("TIDEMARK_SOAK_") for name in os.environ) else 1_000

# The same examples in every run: a red build is red again at home, and a green one does not turn red by luck.
# `--hypothesis-profile=explore` draws new ones. A first call may start Spark or warm a cache, so a deadline
# for one example would measure that.
hypothesis.settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=500 if soak.HAS_ALL else 50
)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=1000)
hypothesis.settings.register_profile("fast", derandomize=True, deadline=None, max_examples=20)
hypothesis.settings.load_profile("ci")


# Files that take most of a minute or more, longest first. They start first: no process is left alone with one
# at the end.
LONGEST = (
    "bench/test_bench_runs.py",
    "stream/test_kafka.py",
    "jobs/test_versions.py",
    "jobs/test_wheel.py",
    "jobs/test_sql_attacks.py",
    "crash/test_kills.py",
    "docs/test_pages.py",
    "query/test_sql.py",
    "crash/test_store.py",
    "jobs/test_cluster.py",
    "warehouse/test_repair.py",
    "jobs/test_given_process.py",
    "query/test_index_changes.py",
    "crash/test_races.py",
    "crash/test_flips.py",
    "jobs/test_sql_server.py",
    "docs/test_notebooks.py",
    "warehouse/test_private_kills.py",
    "jobs/test_places.py",
    "query/test_past.py",
    "jobs/test_load_batch.py",
    "stores/test_lost_answers.py",
    "warehouse/test_alter_measures.py",
    "stores/test_damage.py",
    "warehouse/test_verify_beside.py",
    "warehouse/test_kept_rows.py",
    "crash/test_readers.py",
    "warehouse/test_wider_types.py",
    "warehouse/test_added_columns.py",
    "stores/test_no_hadoop.py",
    "warehouse/test_renamed_columns.py",
    "warehouse/test_expire.py",
    "warehouse/test_verify.py",
    "jobs/test_demo.py",
    "warehouse/test_correct.py",
    "warehouse/test_remove.py",
    "stream/test_changes.py",
    "warehouse/test_rotation.py",
    "warehouse/test_key_types.py",
    "warehouse/test_private_spark_sql.py",
)
# Files most of whose tests start a process, or make warehouses of many batches: most of what `make test-fast`
# would take.
SLOW = (
    "compatibility/test_kept_warehouses.py",
    "crash/test_full_disks.py",
    "jobs/test_dist.py",
    "jobs/test_given_process.py",
    "jobs/test_group_commands.py",
    "jobs/test_key_commands.py",
    "jobs/test_local_engine.py",
    "jobs/test_pictures.py",
    "jobs/test_places.py",
    "jobs/test_process.py",
    "query/test_alert_site_groups.py",
    "query/test_alert_sites.py",
    "query/test_behind.py",
    "query/test_companions.py",
    "query/test_comparison_doors.py",
    "query/test_distinct_keys.py",
    "query/test_every.py",
    "query/test_group_order.py",
    "query/test_groups.py",
    "query/test_hierarchy.py",
    "query/test_hopping.py",
    "query/test_included.py",
    "query/test_index.py",
    "query/test_index_changes.py",
    "query/test_index_statements.py",
    "query/test_kept_cells.py",
    "query/test_key_scans.py",
    "query/test_live_values.py",
    "query/test_many_cells.py",
    "query/test_open_readers.py",
    "query/test_past.py",
    "query/test_persistent_keys.py",
    "query/test_plans.py",
    "query/test_public_benchmarks.py",
    "query/test_quiet_logs.py",
    "query/test_scan_connections.py",
    "query/test_scan_files.py",
    "query/test_scans.py",
    "query/test_selected_keys.py",
    "query/test_several_keys.py",
    "query/test_silent_keys.py",
    "query/test_silent_sites.py",
    "query/test_site_facts.py",
    "query/test_site_sql.py",
    "query/test_sites.py",
    "query/test_sql_points.py",
    "query/test_statements.py",
    "query/test_summary.py",
    "query/test_undeclared_groups.py",
    "query/test_ways_agree.py",
    "query/test_ways_left.py",
    "query/test_weeks.py",
    "stream/test_numbering.py",
    "stream/test_other_rows.py",
    "stream/test_out_of_range.py",
    "warehouse/test_added_columns.py",
    "warehouse/test_alter.py",
    "warehouse/test_alter_measures.py",
    "warehouse/test_cascade.py",
    "warehouse/test_change_feeds.py",
    "warehouse/test_companion_cells.py",
    "warehouse/test_completion.py",
    "warehouse/test_contention.py",
    "warehouse/test_copy.py",
    "warehouse/test_correct.py",
    "warehouse/test_correct_readers.py",
    "warehouse/test_delete_keys.py",
    "warehouse/test_expire.py",
    "warehouse/test_inside.py",
    "warehouse/test_kept_rows.py",
    "warehouse/test_keys_foreign.py",
    "warehouse/test_local_engine.py",
    "warehouse/test_log_nesting.py",
    "warehouse/test_lost_ledger.py",
    "warehouse/test_other_tools.py",
    "warehouse/test_private_kills.py",
    "warehouse/test_projection.py",
    "warehouse/test_purge.py",
    "warehouse/test_removal_damage.py",
    "warehouse/test_removal_mistakes.py",
    "warehouse/test_removal_races.py",
    "warehouse/test_removal_readers.py",
    "warehouse/test_removals_together.py",
    "warehouse/test_remove.py",
    "warehouse/test_renamed_columns.py",
    "warehouse/test_renamed_meanwhile.py",
    "warehouse/test_repair.py",
    "warehouse/test_repair_kinds.py",
    "warehouse/test_restore.py",
    "warehouse/test_reveal.py",
    "warehouse/test_rotation.py",
    "warehouse/test_run_digests.py",
    "warehouse/test_step_history.py",
    "warehouse/test_summaries_of_any_cut.py",
    "warehouse/test_swept_loads.py",
    "warehouse/test_text_differential.py",
    "warehouse/test_tuning.py",
    "warehouse/test_value_ranges.py",
    "warehouse/test_verify_beside.py",
    "warehouse/test_wider_types.py",
    "worlds/test_broken_worlds.py",
    "worlds/test_random_worlds.py",
)
# Files whose tests share nothing that takes long to make: each test goes to whichever worker is free.
APART = ("bench/test_bench_runs.py",)
TESTS = Path(__file__).resolve().parent
SLOW_FILES = {TESTS / name for name in SLOW}
PROCESSOR = "processor seconds"


# What a file says whose tests use the session `spark`. One that is not seen costs a worker a session.
IN_SPARK = re.compile(r'\bspark: (SparkSession|Any)|usefixtures\("spark"\)|stage: Stage|: Grown|names: dict')


@cache
def in_spark(file: Path) -> bool:
    """Whether tests of the file use the session `spark`, as its text has it."""
    return IN_SPARK.search(file.read_text()) is not None


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # published without types
    """The tests of a file go to one worker, in order; those of the files in APART go anywhere.

    Half of the workers take files in Spark while there are any, the others take the rest: a session takes
    twenty seconds of the processor until it is warm.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        return nodeid if file.removeprefix("tests/") in APART else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        wanted = self.nodes.index(node) < (len(self.nodes) + 1) // 2
        for scope in self.workqueue:
            if in_spark(TESTS.parent / scope.split("::", 1)[0]) == wanted:
                self.workqueue.move_to_end(scope, last=False)
                break
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """How pytest-xdist shares out the tests, whatever `--dist` says."""
    config.option.loadscopereorder = False  # the longest files come first, not those with the most tests
    return Scheduling(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where slow tests are left out, the files of SLOW are not even imported, which takes seconds."""
    return True if "not slow" in config.option.markexpr and collection_path in SLOW_FILES else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Starts the longest files first, and marks what uses the session `spark` or a store's server.

    Tests that start Spark in another way, or are slow by themselves, carry the mark themselves.
    """
    places = {TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
    for item in items:
        used = getattr(item, "fixturenames", ())
        if "spark" in used:
            item.add_marker(pytest.mark.spark)
            if not in_spark(item.path):
                raise pytest.UsageError(f"IN_SPARK in tests/conftest.py does not see {item.nodeid}")
        if "server" in used or item.path in SLOW_FILES:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """From here on garbage is looked for, seldom, and not in what is imported and collected."""
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)  # modules may free what they hold when Python ends; pytest looks before
    gc.enable()
    gc.set_threshold(20_000, 20, 20)


LAST = pytest.StashKey[bool]()  # whether a test is the last of its file that this process runs in a row
_counted = 0.0  # processor seconds that are told already


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Fails a test that takes `TEST_SECONDS`, with the traceback of where it waits."""
    item.stash[LAST] = nextitem is None or nextitem.path != item.path

    def fail(*_: object) -> None:
        pytest.fail(f"{item.nodeid} did not end within {TEST_SECONDS} s")

    previous = signal.signal(signal.SIGALRM, fail)
    signal.alarm(TEST_SECONDS)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Tells with the last test of a file the processor seconds that its tests took."""
    global _counted  # noqa: PLW0603  of this process
    if call.when == "teardown" and item.stash[LAST]:
        now = processor.seconds()
        item.user_properties.append((PROCESSOR, now - _counted))
        _counted = now


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says what the tests of each folder cost: seconds, and those of the processors, of some files too.

    The seconds are more on a machine that is busy, those of the processors hardly so.
    """
    files: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    tests, walls = Counter[str](), defaultdict[str, float](float)
    for report in (one for reports in terminalreporter.stats.values() for one in reports):
        if isinstance(report, pytest.TestReport):
            path = Path(report.nodeid.split("::")[0]).relative_to("tests")
            folder = path.parent.as_posix()
            walls[folder] += report.duration
            tests[folder] += report.when == "call"
            if report.when == "teardown":
                files[folder][path.name] += dict[str, Any](report.user_properties).get(PROCESSOR, 0.0)
    if not files:
        return
    terminalreporter.section("by folder: seconds, of processors, tests, files that take most of these")
    spent = {folder: sum(seconds.values()) for folder, seconds in files.items()}
    for folder in sorted(files, key=lambda folder: -spent[folder]):
        greatest = heapq.nlargest(5, files[folder].items(), key=lambda item: item[1])
        names = ", ".join(f"{name} {seconds:.0f}" for name, seconds in greatest)
        told = f"{walls[folder]:6.0f} s {spent[folder]:6.0f} s {tests[folder]:6}"
        terminalreporter.write_line(f"{told}  {folder}: {names}")
    total = f"{sum(walls.values()):6.0f} s {sum(spent.values()):6.0f} s {tests.total():6}"
    terminalreporter.write_line(f"{total}  in all")


@pytest.fixture(autouse=True, scope="session")
def _one_processor() -> Iterator[None]:
    with one_processor.kept():
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_time_passes() -> Iterator[None]:
    """The way to an answer depends on estimates alone, and not on how busy the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spending.Spending, "seconds", lambda _: 0.0)
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_loop_is_loaded() -> Iterator[None]:
    """Tests that add many rows add them by numpy, and no thread works beside them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(looped_sums, "LOAD_ROWS", math.inf)
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores and one session for all tests: to start Spark takes longer than most of them."""
    from tidemark.jobs.spark.session import spark_session  # noqa: PLC0415  only tests that ask load Spark

    session = spark_session(
        "tidemark-tests",
        **{
            "spark.master": "local[2]",
            "spark.driver.memory": "2g",
            "spark.sql.shuffle.partitions": "2",
            # To compile a query takes longer than to run it once; test_types.py has both as users do.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("spark-warehouse")),
            **FAST,
            # Sessions of Spark Connect do not have the path to it; the current folder is the root.
            "spark.python.daemon.module": spark_daemon.__name__,
        },
    )
    yield session
    session.stop()
