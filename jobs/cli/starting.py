"""How a process begins and ends. Imported first by whatever starts a process, and by nothing else.

Ctrl-C while it imports its first modules: nothing has begun, so the process ends without a word.
`process.arguments` replaces that once the modules are there.

At its end Python would look through all objects for those that only hold each other. Nobody needs their
memory any more, and to look takes longer than to answer a question: nothing is looked through.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys

_INTERRUPTED = 130  # as in exit_codes, which is not imported yet

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))


@atexit.register
def _end_at_once() -> None:
    if "_duckdb" not in sys.modules:  # it would tell on stderr which of its objects are still there
        gc.freeze()


def main() -> int:
    """The command `tidemark`: see jobs/cli/main.py."""
    from tidemark.jobs.cli.main import main

    return main()
