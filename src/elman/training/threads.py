"""How many threads a net gets, and how they wait. Never imports torch: the environment has to be set before that.

The number depends on the machine, not on how busy it is: with another number of threads sums are added in another order,
and two runs with one seed are to be equal to the bit.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

# Turns of a waiting OpenMP thread before it sleeps, a few microseconds; prepare_environment says why.
SPIN_TURNS = 1000
# oneDNN caches so many kernels; the last paragraph of prepare_environment says why.
CACHED_KERNELS = 64


def prepare_environment(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let waiting OpenMP threads sleep soon, and cache few kernels. Call before torch is imported; what the user set stays.

    Spinning threads wait for each other's time slices: a training step on two cores shared with another job took
    1800 ms spinning, 485 ms sleeping (and 445 ms with one thread). But to wake one takes longer than many a product: on two
    idle cores an LSTM of 256 learned 25,800 tokens a second with threads that slept at once, 43,200 with 1,000 turns of
    spinning (39,000 with 20,000 or more; beside another job 24,400, 17,700 and 6,100).

    By default oneDNN caches 1024 kernels with their buffers, one for every shape of a batch, and batches of sentences
    hardly ever have the same shape: a tagger grew to 5.1 GB. With 64 it stays at 0.9 GB and is as fast.
    """
    if "OMP_WAIT_POLICY" not in environment:
        environment["OMP_WAIT_POLICY"] = "passive"
        environment.setdefault("GOMP_SPINCOUNT", str(SPIN_TURNS))
    environment.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(CACHED_KERNELS))


def choose_threads(requested: int | None = None, *, processes: int = 1) -> int:
    """As many threads as asked for; else one for each core this process may use, shared with others of its run."""
    return max(1, count_cores() // processes) if requested is None else requested


def count_cores(system: Path = Path("/sys")) -> int:
    """The physical cores this process may use: by affinity, by the container's quota, hyper-threads not counted."""
    try:
        allowed = os.sched_getaffinity(0)
    except AttributeError:  # not Linux
        return os.cpu_count() or 1
    siblings = {_read(system / f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") or cpu for cpu in allowed}
    return max(1, min(len(siblings), _quota(system)))


def _quota(system: Path) -> int:
    """Whole cores a control group grants."""
    limit, _, period = _read(system / "fs/cgroup/cpu.max").partition(" ")
    if not limit.isdigit() or not period.isdigit() or int(period) == 0:
        return 1 << 30
    return max(1, int(limit) // int(period))


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def advise_on_load(threads: int, *, load: float | None = None) -> str | None:
    """A note for users whose machine is busy with other work, or None."""
    if load is None:
        try:
            load = os.getloadavg()[0]
        except OSError:
            return None
    cores = count_cores()
    if threads > 1 and load > cores + 0.5:
        return f"the machine is busy (load {load:.1f} on {cores} cores): --threads 1 may be as fast"
    return None
