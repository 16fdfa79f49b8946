"""The commands `tidemark unload`, `delete`, `correct` and `expire`: rows leave; and `restore`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tidemark import warehouse
from tidemark.jobs.cli.certificates import print_certificate
from tidemark.jobs.cli.exit_codes import DONE
from tidemark.jobs.cli.options.parsed import ahead
from tidemark.jobs.cli.progress import show_progress
from tidemark.jobs.inputs.engine import engine_for_history, session_for
from tidemark.jobs.inputs.local_inputs import LocalInputs
from tidemark.query.answers.rendering import text_of
from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.removals.change_feed import is_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from tidemark.warehouse import RemovalReport
    from tidemark.warehouse.execution.arrow_inputs import ArrowRows


def run_unload(given: argparse.Namespace) -> int:
    """Unloads a batch, or a range of the batches of a stream."""
    if (given.source is None) != (given.batches is None):
        given.parser.error("--source and --batches go together")
    batches = None if given.batches is None else tuple(given.batches)
    what = {"batch": given.batch, "source": given.source, "batches": batches}
    return _run(given, warehouse.unload, "tidemark unload", **what, request=given.request)


def run_delete(given: argparse.Namespace) -> int:
    """Deletes the rows that match a condition, that have the keys of a file, or both."""
    if given.where is None and given.keys is None:
        given.parser.error("one of --where and --keys is required")
    what = {name: getattr(given, name) for name in ("where", "purge", "grace", "request")}
    what |= {"keys": _rows_of(given, given.keys), "between": _between(given)}
    return _run(given, warehouse.delete, "tidemark delete", **what)


def run_correct(given: argparse.Namespace) -> int:
    """Puts rows in the place of others."""
    what: dict[str, Any] = {"rows": _rows_of(given, given.input), "before": _rows_of(given, given.before)}
    what["changes"] = _changes_of(given)
    what |= {name: getattr(given, name) for name in ("batch", "on", "where", "missing")}
    what["between"] = _between(given)
    return _run(given, warehouse.correct, "tidemark correct", **what)


def run_changes(given: argparse.Namespace) -> int:
    """Makes the changes of a feed, of `tidemark load --changes`."""
    what = {"changes": _changes_of(given), "batch": given.batch, "missing": given.missing}
    return _run(given, warehouse.correct, "tidemark load", **what, **ahead(given))


def _changes_of(given: argparse.Namespace) -> list[str] | ArrowRows | None:
    """The change feed: paths of JSON lines as they are, or the rows of other files."""
    if given.changes is None or is_json(given.changes):
        paths: list[str] | None = given.changes
        return paths
    return _rows_of(given, given.changes)


def _between(given: argparse.Namespace) -> tuple[str | None, ...] | None:
    """The range of times, - as an open side; None without one."""
    return given.between and tuple(None if text == "-" else text for text in given.between)


def _rows_of(given: argparse.Namespace, paths: list[str] | None) -> ArrowRows | None:
    """The rows of the files, read in this process; None without files."""
    if paths is None:
        return None
    options = warehouse.read_options(Store.from_uri(given.warehouse, given.storage_options))
    return LocalInputs(given.warehouse, given.storage_options).read(paths, given.format, options)


def run_expire(given: argparse.Namespace) -> int:
    """Lets rows expire that are older than a moment, or than the warehouse keeps them."""
    what = {"before": given.before, "request": given.request}
    return _run(given, warehouse.expire, "tidemark expire", **what)


def run_restore(given: argparse.Namespace) -> int:
    """Brings back the rows of a removal, or of all after a step."""
    with show_progress(None) as set_phase:
        report = warehouse.restore(
            given.warehouse,
            removal=given.removal,
            step=given.step,
            dry_run=given.dry_run,
            storage_options=given.storage_options,
            progress=set_phase,
        )
    if given.json:
        print(json_text({"warehouse": given.warehouse, **asdict(report)}))
        return DONE
    said = {
        "empty": "nothing to restore, nothing changed",
        "known": "was restored before, nothing changed",
        "planned": "would restore {rows:,} rows of {count} removals",
        "restored": "restored {rows:,} rows of {count} removals",
    }[report.outcome]
    print(f"{text_of(given.warehouse)}: {said.format(rows=report.rows, count=len(report.removals))}")
    return DONE


def _run(given: argparse.Namespace, call: Callable[..., RemovalReport], application: str, **what: Any) -> int:
    Store.from_uri(given.warehouse, given.storage_options).files.check_place(writing=True)
    spark = session_for(
        given.engine, lambda: engine_for_history(given.warehouse, given.storage_options), application
    )
    with show_progress(spark) as set_phase:
        report = call(
            spark,
            given.warehouse,
            **what,
            dry_run=getattr(given, "dry_run", False),
            storage_options=given.storage_options,
            progress=set_phase,
        )
    if given.json:
        print(json_text({"warehouse": given.warehouse, **asdict(report)}))
    else:
        _print(given, report)
        if report.certificate is not None:
            print_certificate(report.certificate)
    return DONE


def _counted(number: int, what: str) -> str:
    """'1 batch', '1,024 batches'."""
    many = f"{what}es" if what.endswith("ch") else f"{what}s"
    return f"{number:,} {what if number == 1 else many}"


def _print(given: argparse.Namespace, report: RemovalReport) -> None:
    name = text_of(given.warehouse)
    if report.outcome == "empty" and report.certificate is not None:
        print(f"{name}: no row of history matches")
        return
    if report.outcome in {"empty", "known"}:
        texts = {"empty": "no such rows, nothing changed", "known": "was done before, nothing changed"}
        print(f"{name}: {texts[report.outcome]}{_before(report, '; rows before {} have expired')}")
        return
    did = "would remove" if report.outcome == "planned" else "removed"
    before = _before(report, ", those before {}")
    came = f", {_counted(report.rows_in, 'row')} came in their place" if report.kind == "correct" else ""
    print(
        f"{name}: {did} {_counted(report.rows, 'row')} of {_counted(report.batches, 'batch')}{before}{came}"
    )
    if report.live_rows:
        print(f"{report.live_rows:,} of its rows are live: they would be loaded first")
    if given.verbose:
        if report.removal is not None:
            print(f"removal {report.removal}: `tidemark restore` knows it by this number")
        for step, rows in report.rows_by_step.items():
            print(f"step {step}: {rows:,} rows")
    runs = ", ".join(f"{count} of {text_of(title)}" for title, count in report.runs_rewritten.items())
    again = f"{_counted(report.files_rewritten, 'file')} of events; runs: {runs or 'none'}"
    most = "at most " if report.outcome == "planned" else ""
    print(f"written again: {again}; {most}{report.bytes_written:,} bytes")


def _before(report: RemovalReport, text: str) -> str:
    """The text with the time before which rows expired; empty if the removal is no expiry."""
    return "" if report.before is None else text.format(report.before)
