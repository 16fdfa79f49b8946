"""Serves warehouses to JDBC clients, by Spark's Thrift server.

    spark-submit jobs/sql/server.py --warehouse flights=/data/flights --port 10000
    beeline -u jdbc:hive2://127.0.0.1:10000/ -e "SELECT * FROM flights_quantile(0.99, '7 days')"

Each session of a client has the functions and views of every warehouse: NAME_quantile, NAME_events ... It
serves until SIGTERM or Ctrl-C.

Clients ask, and do nothing else: no statement of theirs writes, reads a file by its path or calls Java,
unless --allow-all is given. Nobody outside of this machine reaches the server. With --host, those who do
are asked for a name and a password of the file --users, or as Spark's setting
spark.hadoop.hive.server2.authentication says.

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

from tidemark.jobs.cli import arguments
from tidemark.jobs.cli.exit_codes import finished
from tidemark.jobs.cli.signals import java_waits, told_to_stop
from tidemark.jobs.spark.session import spark_session
from tidemark.jobs.sql import allow_list, entrance, guard
from tidemark.jobs.sql.users import checked_users, of_this_machine, set_authentication
from tidemark.query.answers.json_values import json_text
from tidemark.query.sql.spark_sql import (
    SETTINGS,
    checked_name,
    name_of,
    register_functions,
    views,
    warehouses_set,
)
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import InputError


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
    users = checked_users(given.users) if given.users else None
    _check_free(given.host, given.port)
    stopping = threading.Event()
    with tempfile.TemporaryDirectory(prefix="tidemark-") as folder:
        spark = spark_session(
            "tidemark sql-server",
            **{
                # Nothing is written: what clients see is registered here, and kept in memory.
                "spark.sql.catalogImplementation": "in-memory",
                "spark.sql.warehouse.dir": folder,
                # Or ${env:NAME} in a statement would be this process's variable.
                "spark.sql.variable.substitute": "false",
            },
        )
        with told_to_stop(stopping), java_waits(spark, stopping):
            warehouses = named or _from_settings(spark)
            asks = set_authentication(spark, users)
            if not (asks or given.anyone or of_this_machine(given.host)):
                raise InputError(
                    f"{given.host or 'every address'} can be reached from outside. Give --users FILE, so "
                    "that names and passwords are asked for, or --anyone, and whoever comes may ask."
                )
            functions = [
                one for name, uri in warehouses.items() for one in publish(spark, name, Store.from_uri(uri))
            ]
            _listen_at(spark, given.host, given.port, folder)
            server = start(spark, functions, allow_all=given.allow_all)
            address = f"jdbc:hive2://{given.host}:{_port(server)}/"
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


def publish(spark: SparkSession, name: str, store: Store) -> list[str]:
    """Makes the warehouse's functions and views for all sessions from now on; returns the functions' names.

    Spark registers Python's table functions for one session. Its own are in a registry that each new
    session copies: there they go, from a session that has them. Views then are those of the shared
    catalog, made in a session where the functions are Spark's own already.
    """
    java: Any = spark.sparkContext._jvm  # noqa: SLF001  the registry of all sessions is not in the Python API
    catalyst = java.org.apache.spark.sql.catalyst
    first = spark.newSession()
    registered = first._jsparkSession.sessionState().tableFunctionRegistry()  # noqa: SLF001
    functions = register_functions(first, name, store)
    for function in functions:
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
    return functions


def start(spark: SparkSession, functions: list[str], *, allow_all: bool) -> Any:
    """Spark's Thrift server, listening; `functions` are ours."""
    java: Any = spark.sparkContext._jvm  # noqa: SLF001  the server is not in the Python API
    if allow_all:
        hive = java.org.apache.spark.sql.hive.thriftserver
        return hive.HiveThriftServer2.startWithSparkSession(spark._jsparkSession, False)  # noqa: SLF001
    rules = guard.rules(spark, allow_list.lists(java, functions), allow_list.told())
    return entrance.start(spark, rules)


def _listen_at(spark: SparkSession, host: str, port: int, folder: str) -> None:
    """Where the server is to listen, whatever settings say. Derby, a part of it, logs into the folder."""
    context: Any = spark.sparkContext
    context._jvm.java.lang.System.setProperty("derby.stream.error.file", f"{folder}/derby.log")  # noqa: SLF001
    settings = context._jsc.hadoopConfiguration()  # noqa: SLF001
    settings.set("hive.server2.transport.mode", "binary")
    settings.set("hive.server2.thrift.bind.host", host)
    settings.set("hive.server2.thrift.port", str(port))


def _port(server: Any) -> int:
    services = server.getServices()
    listening = next(
        one for one in map(services.get, range(services.size())) if "thrift" in one.getName().lower()
    )
    return int(listening.getPortNumber())


if __name__ == "__main__":
    sys.exit(main())
