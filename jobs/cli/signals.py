"""Signals: a job that is told to stop ends its work first, and then with 0."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

_STOP_SECONDS = 600  # for the work under way, when the process is told to end
_BEFORE_SPARK = 100  # Spark's own hook has the priority 40


@contextmanager
def told_to_stop(stopping: threading.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set the event, and end nothing by themselves."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears signals
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda *_: stopping.set()) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


class _Hook:
    """What Java calls when it is told to end: it waits until the work has ended."""

    def __init__(self, stopping: threading.Event) -> None:
        self.stopping, self.ended = stopping, threading.Event()

    def run(self) -> None:
        self.stopping.set()
        self.ended.wait(_STOP_SECONDS)

    class Java:
        """The interface that py4j is to show."""

        implements = ("java.lang.Runnable",)


@contextmanager
def java_waits(spark: SparkSession, stopping: threading.Event) -> Iterator[None]:
    """Under spark-submit the signal reaches Java, which would end Spark in the middle of the work.

    A hook that runs before Spark's own keeps it until the work inside is done, and the process ends with 0.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        yield
        return
    context = spark.sparkContext
    java: Any = context._jvm  # noqa: SLF001  Java's shutdown is not in the Python API
    ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]  # noqa: SLF001
    hook = _Hook(stopping)
    thread = java.java.lang.Thread(hook)  # Java's collections ask for hashes, which our object has not
    hooks = java.org.apache.hadoop.util.ShutdownHookManager.get()
    seconds = java.java.util.concurrent.TimeUnit.SECONDS
    hooks.addShutdownHook(thread, _BEFORE_SPARK, _STOP_SECONDS, seconds)
    try:
        yield
        if hooks.isShutdownInProgress():
            spark.stop()
            sys.stdout.flush()
            java.java.lang.Runtime.getRuntime().halt(0)
    finally:
        hook.ended.set()
        with suppress(Exception):  # Java is gone, or ending
            hooks.removeShutdownHook(thread)
