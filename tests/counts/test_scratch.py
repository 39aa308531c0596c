"""Arrays in files: a disk that is too small for them is an error before anything is counted, not a signal in the middle."""

from pathlib import Path

import numpy as np
import pytest

from elman.core.errors import WriteError
from elman.counts.scratch import Scratch


def test_a_full_disk_is_noticed_before_it_is_written_to(tiny_disk: Path) -> None:
    with Scratch(directory=tiny_disk) as scratch:
        scratch.spills = True
        scratch.empty(100_000, np.uint8)[:] = 1
        with pytest.raises(WriteError, match=f"cannot create temporary files in {tiny_disk}") as caught:
            scratch.empty(1 << 20, np.uint8)
        assert "TMPDIR" in (caught.value.hint or "")
