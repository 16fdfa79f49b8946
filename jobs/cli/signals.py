"""Java is told to stop: a job finishes the work in progress, then the process ends with `DONE`."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from tidemark.jobs.cli.exit_codes import DONE, FAILED

_STOP_SECONDS = 600  # the longest that Java waits for the work in progress
_HOOK_PRIORITY = 100  # Spark's own shutdown hook has priority 40; higher ones run first


class _ShutdownHook:
    """Java calls `run` when it shuts down; it returns when the work has ended."""

    def __init__(self, stopping: threading.Event) -> None:
        self.stopping, self.ended = stopping, threading.Event()

    def run(self) -> None:
        self.stopping.set()
        self.ended.wait(_STOP_SECONDS)

    class Java:
        implements = ("java.lang.Runnable",)


@contextmanager
def delay_java_shutdown(spark: SparkSession, stopping: threading.Event) -> Iterator[None]:
    """Under spark-submit, delays the shutdown of Java until the `with` block is done.

    There the signal reaches Java, which would stop Spark in the middle of the work. A shutdown hook that runs
    before Spark's own waits for the block; then the process ends with `DONE`, or with `FAILED` if Java shuts
    down for another reason, such as a lack of memory. Elsewhere it does nothing.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        yield
        return
    context = spark.sparkContext
    java: Any = context._jvm  # noqa: SLF001  Java's shutdown is not in the Python API
    ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]  # noqa: SLF001
    hook = _ShutdownHook(stopping)
    thread = java.java.lang.Thread(hook)  # Java's collections need a hash, which the Python object lacks
    hooks = java.org.apache.hadoop.util.ShutdownHookManager.get()
    seconds = java.java.util.concurrent.TimeUnit.SECONDS
    hooks.addShutdownHook(thread, _HOOK_PRIORITY, _STOP_SECONDS, seconds)
    try:
        yield
        if hooks.isShutdownInProgress():
            spark.stop()
            sys.stdout.flush()
            java.java.lang.Runtime.getRuntime().halt(DONE if _is_by_signal(java) else FAILED)
    finally:
        hook.ended.set()
        with suppress(Exception):  # Java has ended, or is shutting down
            hooks.removeShutdownHook(thread)


def _is_by_signal(java: Any) -> bool:
    """Whether Java shuts down because of a signal: Java names the thread that handles it, and waits there."""
    threads = java.java.lang.Thread.getAllStackTraces().keySet()
    return any(re.fullmatch(r"SIG\w+ handler", thread.getName()) for thread in threads)
