"""The command line: reads arguments, prints results. One file a verb; heavy imports are inside the verbs."""

from __future__ import annotations

import contextlib
import os
import sys


def main() -> None:
    """The `elman` command. Everything slow is imported within, so that even an early Ctrl-C ends quietly."""
    try:
        from elman.cli.processor import choose_instructions

        choose_instructions()
        from elman.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed by whoever called us
            stream.flush()
    # At once: everything is saved and synced, torch would take seconds to tidy up, and a thread may be stuck in a read.
    os._exit(code)
