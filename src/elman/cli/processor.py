"""What numpy must know about the processor before it is imported."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path


def choose_instructions(environment: MutableMapping[str, str] = os.environ, cpus: Path = Path("/proc/cpuinfo")) -> None:
    """Let numpy sort with AVX2 on AMD processors: its AVX-512 sort takes five times as long there.

    A million 64-bit numbers: 52 ms instead of 11 on a Zen 4, which compresses into memory by microcode. Counting is
    mostly sorting. numpy reads the setting once, when it is imported; whoever has set it already is left alone.
    """
    try:
        with cpus.open("rb") as file:
            first = file.read(4096)
    except OSError:
        return
    if b"AuthenticAMD" in first and b" avx512f" in first:
        environment.setdefault("NPY_DISABLE_CPU_FEATURES", "X86_V4")
