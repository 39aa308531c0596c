"""The command line: reads arguments, prints results. One file a verb; heavy imports are inside the verbs."""

from __future__ import annotations

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
    sys.exit(code)
