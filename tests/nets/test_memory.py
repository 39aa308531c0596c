"""Large blocks are kept between steps, and given back at the end."""

from __future__ import annotations

import platform
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from elman.nets.memory import kept_memory

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")

MEGABYTES = 64
ROOT = Path(__file__).resolve().parents[2]


def faults_of_a_step() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(MEGABYTES << 18)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident_megabytes() -> float:
    with open("/proc/self/statm") as file:  # noqa: PTH123 - a file of the kernel
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def test_steps_find_the_pages_of_earlier_ones() -> None:
    """Not from the first step on: an aligned block needs a larger gap than it leaves, until a few gaps lie side by side."""
    code = """
from elman.nets.memory import kept_memory
from tests.nets.test_memory import faults_of_a_step
with kept_memory() as is_kept:
    assert is_kept
    print(*(faults_of_a_step() for _ in range(60)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    faults = [int(count) for count in done.stdout.split()]
    assert max(faults[30:]) < 100, faults


def test_afterwards_the_memory_is_given_back() -> None:
    with kept_memory():
        torch.ones(MEGABYTES << 18)
        inside = resident_megabytes()
    assert resident_megabytes() < inside - MEGABYTES / 2


def test_an_error_inside_passes_through() -> None:
    with pytest.raises(RuntimeError, match="inside"), kept_memory():
        raise RuntimeError("inside")
    assert faults_of_a_step() > 1000  # and the usual ways are back
