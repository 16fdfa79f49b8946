"""Serves warehouses to JDBC clients, by Spark's Thrift server.

    spark-submit jobs/sql_server.py --warehouse flights=/data/flights --port 10000
    beeline -u jdbc:hive2://127.0.0.1:10000/ -e "SELECT * FROM flights_quantile(0.99, '7 days')"

Each session of a client has the functions and views of every warehouse: NAME_quantile, NAME_events ... It
serves until SIGTERM or Ctrl-C. Nobody is asked for a password: whoever reaches the port may read all that
it can, and by default nobody outside of this machine reaches it.

Exit codes: 0 stopped, 2 bad usage or input, 1 anything else.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import sys
import tempfile
import threading
from typing import Any

from pyspark.sql import SparkSession

from jobs import arguments
from jobs.outcome import finished
from jobs.session import spark_session
from jobs.stopping import java_waits, told_to_stop
from query.plain import json_text
from query.spark import SETTINGS, checked_name, name_of, register_functions, views, warehouses_set
from warehouse.errors import InputError
from warehouse.storage import Store


def main(argv: list[str] | None = None) -> int:
    """Runs the job; returns its exit code."""
    args = argparse.ArgumentParser(
        prog="sql_server.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.sql_server(args)
    return run(args.parse_args(argv))


def run(given: argparse.Namespace) -> int:
    """Serves until it is told to stop."""
    return finished(_serve, given)


def _serve(given: argparse.Namespace) -> int:
    named = dict(_named(text) for text in given.warehouse or ())
    _check_free(given.host, given.port)
    stopping = threading.Event()
    with tempfile.TemporaryDirectory(prefix="tidemark-") as folder:
        spark = spark_session(
            "tidemark sql-server",
            **{
                # Nothing is written: what clients see is registered here, and kept in memory.
                "spark.sql.catalogImplementation": "in-memory",
                "spark.sql.warehouse.dir": folder,
            },
        )
        with told_to_stop(stopping), java_waits(spark, stopping):
            warehouses = named or _from_settings(spark)
            for name, uri in warehouses.items():
                publish(spark, name, Store.of(uri))
            server, port = start(spark, given.host, given.port, folder)
            address = f"jdbc:hive2://{given.host}:{port}/"
            facts = {"url": address, "warehouses": warehouses}
            print(
                json_text(facts) if given.json else f"serving {', '.join(warehouses)} at {address}",
                flush=True,
            )
            stopping.wait()
            server.stop()
            spark.stop()
    return 0


def _named(text: str) -> tuple[str, str]:
    found = re.fullmatch(r"(\w+)=(.+)", text)
    name, uri = found.groups() if found else (name_of(text), text)
    return checked_name(name), uri


def _from_settings(spark: SparkSession) -> dict[str, str]:
    by_variable = os.environ.get(arguments.VARIABLE)
    try:
        found = warehouses_set(spark)
    except InputError:
        if not by_variable:
            raise InputError(
                f"no warehouse was named. Give --warehouse NAME=PATH, or --conf {SETTINGS}NAME=PATH."
            ) from None
        found = {name_of(by_variable): by_variable}
    return {checked_name(name): uri for name, uri in found.items()}


def _check_free(host: str, port: int) -> None:
    """Before Spark starts, whose own failure would end this process."""
    try:
        with socket.create_server((host, port)):
            pass
    except OSError as error:
        raise InputError(
            f"cannot listen on {host}:{port}: {error.strerror or error}. Give another."
        ) from error


def publish(spark: SparkSession, name: str, store: Store) -> None:
    """Makes the warehouse's functions and views for every session that begins from now on.

    Spark registers Python's table functions for one session. Its own are in a registry that each new
    session copies: there they go, from a session that has them. Views then are those of the shared
    catalog, made in a session where the functions are Spark's own already.
    """
    java: Any = spark.sparkContext._jvm  # noqa: SLF001  the registry of all sessions is not in the Python API
    catalyst = java.org.apache.spark.sql.catalyst
    first = spark.newSession()
    registered = first._jsparkSession.sessionState().tableFunctionRegistry()  # noqa: SLF001
    for function in register_functions(first, name, store):
        here, there = (
            catalyst.FunctionIdentifier(
                function, java.scala.Option.apply(part), java.scala.Option.apply("system")
            )
            for part in ("session", "builtin")
        )
        catalyst.analysis.TableFunctionRegistry.builtin().registerFunction(
            there, registered.lookupFunction(here).get(), registered.lookupFunctionBuilder(here).get()
        )
    second = spark.newSession()
    for view, text in views(name, store).items():
        second.sql(f"CREATE OR REPLACE VIEW {view} AS {text}")


def start(spark: SparkSession, host: str, port: int, folder: str) -> tuple[Any, int]:
    """Spark's Thrift server, and the port that it listens on. Derby, a part of it, logs into the folder."""
    java: Any = spark.sparkContext._jvm  # noqa: SLF001  the server is not in the Python API
    java.java.lang.System.setProperty("derby.stream.error.file", f"{folder}/derby.log")
    spark.conf.set("hive.server2.thrift.bind.host", host)
    spark.conf.set("hive.server2.thrift.port", str(port))
    hive = java.org.apache.spark.sql.hive.thriftserver
    server = hive.HiveThriftServer2.startWithSparkSession(spark._jsparkSession, False)  # noqa: SLF001
    services = server.getServices()
    listening = next(
        one for one in map(services.get, range(services.size())) if "thrift" in one.getName().lower()
    )
    return server, int(listening.getPortNumber())


if __name__ == "__main__":
    sys.exit(main())
