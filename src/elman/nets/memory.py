"""How much memory there is; and memory that is used again at every step, which should not be given back in between."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# mallopt(3): the parameters' numbers, and what they are without us once large blocks have come and gone.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
_USUAL = {_TRIM_THRESHOLD: 64 << 20, _MMAP_THRESHOLD: 32 << 20, _MMAP_MAX: 65536}
_KEEPING = {_TRIM_THRESHOLD: (1 << 31) - 1, _MMAP_MAX: 0}


@contextmanager
def kept_memory() -> Iterator[bool]:
    """Let glibc keep large blocks that are freed, until the end of the block; says whether that could be done.

    Gradients and logits of a step are tens of megabytes. The C library returns such blocks to the system and gets them
    back page by page at the next step: 36,000 page faults for a vocabulary of 33,000, a tenth of the step.
    """
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    if library is None or not hasattr(library, "mallopt") or not hasattr(library, "malloc_trim"):
        yield False
        return
    is_kept = all(library.mallopt(parameter, value) == 1 for parameter, value in _KEEPING.items())
    try:
        yield is_kept
    finally:
        for parameter, value in _USUAL.items():
            library.mallopt(parameter, value)
        library.malloc_trim(0)


def free_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes that could be had without swapping, where the system tells."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo.read_text(), re.MULTILINE) if meminfo.is_file() else None
    return int(found[1]) * 1024 if found else None
