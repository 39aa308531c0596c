"""Arrays that grow out of memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.text import spool
from elman.text.spool import Spool

parts_strategy = st.lists(st.lists(st.integers(0, 9), max_size=20), min_size=1, max_size=8)


@given(parts_strategy, st.sampled_from([0, 50, 10_000]), st.sampled_from([None, np.uint16, np.int32]))
def test_a_spool_is_the_concatenation_of_what_came(parts, max_bytes, narrow):
    expected = np.array([item for part in parts for item in part], dtype=np.int32)
    table = None if narrow is None else np.arange(10, 0, -1).astype(narrow)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "MAX_MEMORY_BYTES", max_bytes)
        patch.setattr(spool, "CHUNK_ITEMS", 7)
        growing = Spool(np.int32, None)
        for part in parts:
            growing.append(np.array(part, dtype=np.int64))
        assert len(growing) == len(expected)
        if len(expected):
            assert np.concatenate(list(growing.parts())).tolist() == expected.tolist()
        whole = growing.finish(table)
    assert whole.tolist() == (expected if table is None else table[expected]).tolist()
    assert whole.dtype == (np.int32 if table is None else table.dtype)
    assert isinstance(whole, np.memmap) == (4 * len(expected) > max_bytes)
