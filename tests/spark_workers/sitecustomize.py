"""Imports what workers need into the daemons of Spark's planners, before they fork.

Spark plans the calls of table functions, and the reading of data sources, in Python workers of their own, one
daemon for each kind. It ends such a worker after each refusal, and after a minute without work, and the next
one would import all of tidemark again: more than half a second of processor time. No setting names another
daemon for them, so this module, which Python runs when it starts, imports for Spark's own.
"""

from __future__ import annotations

import sys
from importlib import import_module

NEEDS_NOTHING = "pyspark.sql.worker.lookup_data_sources"  # once in a session

if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"] and NEEDS_NOTHING not in sys.orig_argv:
    import_module("spark_daemon").import_before_forks("tidemark.query", *sys.orig_argv[3:])
