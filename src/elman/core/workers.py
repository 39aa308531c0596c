"""How many threads numpy's work is shared among."""

from __future__ import annotations

import os

MAX_WORKERS = 2  # numpy releases Python's lock, but more threads than these wait for it between its calls


def num_workers() -> int:
    """At most two, and no more than cores or than OMP_NUM_THREADS, which `--threads` sets."""
    allowed = os.environ.get("OMP_NUM_THREADS", "")
    limit = int(allowed) if allowed.isdigit() and int(allowed) else MAX_WORKERS
    return min(MAX_WORKERS, limit, os.cpu_count() or 1)
