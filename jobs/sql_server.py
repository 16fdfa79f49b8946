"""Serves warehouses to JDBC clients with Spark's Thrift server.

    spark-submit jobs/sql_server.py --warehouse flights=/data/flights --port 10000
    beeline -u jdbc:hive2://127.0.0.1:10000/ -e "SELECT * FROM flights_quantile(0.99, '7 days')"

Each session has the functions and views of every warehouse: NAME_quantile, NAME_events ... The server runs
until SIGTERM or Ctrl-C.

Clients can only query: statements that write, read a file by its path or call Java are refused, unless
--allow-all is given. By default only clients on this machine reach the server. If --host lets other machines
reach it, clients need a name and a password from the file --users, or as configured by Spark's setting
spark.hadoop.hive.server2.authentication.
"""

from __future__ import annotations

if __name__ == "__main__":
    import tidemark.jobs.cli.starting  # noqa: F401  sets what Ctrl-C does

import argparse
import os
import socket
import sys
import tempfile
import threading
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from tidemark.jobs.cli.exit_codes import DONE, job_end
from tidemark.jobs.cli.named_warehouses import is_local_address, parse_warehouse
from tidemark.jobs.cli.options import parsed, serving, shared
from tidemark.jobs.cli.process import job_arguments
from tidemark.jobs.cli.signals import delay_java_shutdown
from tidemark.jobs.cli.stop_signals import stop_on_signals
from tidemark.jobs.spark.session import spark_session
from tidemark.jobs.sql import allow_list, entrance, guard, logins
from tidemark.jobs.sql.users import check_users, set_authentication
from tidemark.query.sql.spark_sql import (
    SETTINGS,
    checked_name,
    name_of,
    register_functions,
    views,
    warehouses_set,
)
from tidemark.warehouse.columns.json_values import json_text
from tidemark.warehouse.delta.store import Store
from tidemark.warehouse.errors import InputError, TidemarkError
from tidemark.warehouse.execution.spark_versions import check_version_of_server

# In one Java with the server, a task that lacks memory fails alone. By default Spark ends Java: on a cluster
# that is an executor, and another one replaces it.
LOCAL = {"spark.executor.killOnFatalError.depth": "0"}

_SECONDS_BETWEEN_LOOKS = 1.0


class ServerEnded(TidemarkError, RuntimeError):
    """The SQL server ended, and nobody had asked it to."""


def main(argv: list[str] | None = None) -> int:
    """Runs the job; returns its exit code."""
    given = job_arguments("server.py", __doc__, serving.SQL_SERVER, argv)
    with job_end(given, needs_warehouse=False) as end:
        end.code = run(given)
    return end.code


def run(given: argparse.Namespace) -> int:
    """Serves until SIGTERM or Ctrl-C."""
    named_warehouses = dict(parse_warehouse(text) for text in given.warehouse or ())
    storage_options = parsed.storage_options_of(given)
    users = check_users(given.users) if given.users else None
    _check_address(given.host, given.port)
    stopping = threading.Event()
    with tempfile.TemporaryDirectory(prefix="tidemark-") as folder:
        spark = spark_session(
            "tidemark sql-server",
            LOCAL,
            **{
                # The catalog of views and functions is in memory, so nothing is written to disk.
                "spark.sql.catalogImplementation": "in-memory",
                "spark.sql.warehouse.dir": folder,
                # Otherwise ${env:NAME} in a statement would read the environment of this process.
                "spark.sql.variable.substitute": "false",
            },
        )
        check_version_of_server(spark.version)
        with stop_on_signals(stopping), delay_java_shutdown(spark, stopping):
            warehouses = named_warehouses or _from_settings(spark)
            authenticates = set_authentication(spark, users)
            if not (authenticates or given.anyone or is_local_address(given.host)):
                raise InputError(
                    f"{given.host or 'every address'} can be reached from outside. Give --users FILE to "
                    "require names and passwords, or --anyone to accept all clients."
                )
            functions = [
                function
                for name, uri in warehouses.items()
                for function in publish(spark, name, Store.from_uri(uri, storage_options))
            ]
            _set_address(spark, given.host, given.port, folder)
            server = start(spark, functions, allow_all=given.allow_all)
            address = f"jdbc:hive2://{given.host}:{_port(server)}/"
            facts = {"url": address, "warehouses": warehouses}
            print(
                json_text(facts) if given.json else f"serving {', '.join(warehouses)} at {address}",
                flush=True,
            )
            _wait(spark, server, stopping)
            with suppress(Py4JError, OSError):  # a signal to all processes has ended Java already
                server.stop()
                spark.stop()
    return DONE


def _wait(spark: SparkSession, server: Any, stopping: threading.Event) -> None:
    """Returns when `stopping` is set; ServerEnded if the server ends before."""
    while not stopping.wait(_SECONDS_BETWEEN_LOOKS):
        if not entrance.serves(spark, server) and not stopping.is_set():
            raise ServerEnded(
                "the server has ended: its Java process is gone, or accepts no more clients. If Java lacked "
                "memory, see above, give it more (--driver-memory, or the setting spark.driver.memory)."
            )


def _from_settings(spark: SparkSession) -> dict[str, str]:
    """The warehouses of Spark's settings, by name; else the one of the environment variable."""
    variable = os.environ.get(shared.VARIABLE)
    try:
        warehouses = warehouses_set(spark)
    except InputError:
        if not variable:
            raise InputError(
                f"no warehouse was named. Give --warehouse NAME=PATH, or --conf {SETTINGS}NAME=PATH."
            ) from None
        warehouses = {name_of(variable): variable}
    return {checked_name(name): uri for name, uri in warehouses.items()}


def _check_address(host: str, port: int) -> None:
    """InputError if the address is not free; checked here because Spark's failure would end this process."""
    try:
        with socket.create_server((host, port)):
            pass
    except OSError as error:
        raise InputError(
            f"cannot listen on {host}:{port}: {error.strerror or error}. Give another address."
        ) from error


def publish(spark: SparkSession, name: str, store: Store) -> list[str]:
    """Registers a warehouse's functions and views for all later sessions; returns the names of the functions.

    Spark registers a Python table function for one session only. Its built-in functions are in a registry
    that each new session copies, so the functions are copied from the first session to that registry. The
    views are created in the shared catalog by a second session, which has the functions as built-ins.
    """
    java: Any = spark.sparkContext._jvm  # noqa: SLF001  the registry of all sessions is not in the Python API
    catalyst = java.org.apache.spark.sql.catalyst
    first = spark.newSession()
    registered = first._jsparkSession.sessionState().tableFunctionRegistry()  # noqa: SLF001
    functions, options = register_functions(first, name, store)
    if options.private:
        raise InputError(
            "the warehouse has private columns, whose values clients of the SQL server would write into "
            "statements. Ask it by query.open(...).sql, where the secret is, or by query.register_views."
        )
    for function in functions:
        session_name, builtin_name = (
            catalyst.FunctionIdentifier(
                function, java.scala.Option.apply(schema), java.scala.Option.apply("system")
            )
            for schema in ("session", "builtin")
        )
        catalyst.analysis.TableFunctionRegistry.builtin().registerFunction(
            builtin_name,
            registered.lookupFunction(session_name).get(),
            registered.lookupFunctionBuilder(session_name).get(),
        )
    second = spark.newSession()
    for view, text in views(second, name, store, options).items():
        second.sql(f"CREATE OR REPLACE VIEW {view} AS {text}")
    return functions


def start(spark: SparkSession, functions: list[str], *, allow_all: bool) -> Any:
    """Starts Spark's Thrift server; `functions` are the names of the warehouses' table functions."""
    java: Any = spark.sparkContext._jvm  # noqa: SLF001  the server is not in the Python API
    rules = (
        None
        if allow_all
        else guard.rules(spark, allow_list.lists(java, functions), allow_list.allowed_text())
    )
    return entrance.start(spark, rules)


def _set_address(spark: SparkSession, host: str, port: int, folder: str) -> None:
    """Sets the address of the server, overriding the settings; Derby, a part of it, logs to the folder."""
    context: Any = spark.sparkContext
    context._jvm.java.lang.System.setProperty("derby.stream.error.file", f"{folder}/derby.log")  # noqa: SLF001
    settings = context._jsc.hadoopConfiguration()  # noqa: SLF001
    settings.set("hive.server2.transport.mode", "binary")
    settings.set("hive.server2.thrift.bind.host", host)
    settings.set("hive.server2.thrift.port", str(port))
    settings.setIfUnset("hive.server2.thrift.max.message.size", str(logins.MESSAGE_BYTES))


def _port(server: Any) -> int:
    services = server.getServices()
    thrift = next(
        service
        for service in map(services.get, range(services.size()))
        if "thrift" in service.getName().lower()
    )
    return int(thrift.getPortNumber())


if __name__ == "__main__":
    sys.exit(main())
