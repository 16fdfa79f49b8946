"""Ctrl-C while a process imports its first modules: nothing has begun, so the process ends without a word.

Imported first by whatever starts a process, and by nothing else: it changes what the process does on SIGINT.
`process.arguments` replaces that once the modules are there.
"""

from __future__ import annotations

import os
import signal

_INTERRUPTED = 130  # as in exit_codes, which is not imported yet

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))


def main() -> int:
    """The command `tidemark`: see jobs/cli/main.py."""
    from tidemark.jobs.cli.main import main

    return main()
