"""A language model at a gap: what it expects after what stands before, and how likely a sentence is with each word in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from elman.core.arrays import Array
from elman.lm.protocol import FreeModel, refuse_nan, repeat
from elman.text.gaps import Gapped
from elman.text.rows import pad_all
from elman.text.units.vocabulary import EOS_ID

ROWS = 64  # sentences that are scored at once


def log_probs_after(lm: FreeModel[Any], rows: Sequence[Array]) -> Array:
    """What each row of ids, read from its beginning, is followed by. -> (N, V)"""
    found = np.empty((len(rows), lm.vocab_size), dtype=np.float32)
    is_empty = np.array([not len(row) for row in rows])
    if is_empty.any():
        found[is_empty] = lm.predict(lm.start(1))
    if not is_empty.all():
        tokens, lengths = pad_all([row for row in rows if len(row)])
        _, state = lm.score(tokens.astype(np.int64), lengths, lm.start(len(tokens)))
        found[~is_empty] = lm.predict(state)
    return refuse_nan(found)


def sentence_log_probs(lm: FreeModel[Any], text: Gapped, words: Array) -> Array:
    """The log-probability of a whole line, its end included, with each word in its first gap. -> (C,) float64"""
    before, rest = text.before(), np.append(text.behind(), EOS_ID).astype(np.int64)
    state, nats = lm.start(1), 0.0
    if len(before):
        scored, state = lm.score(before[None].astype(np.int64), np.array([len(before)]), state)
        nats = float(scored.sum(dtype=np.float64))
    found = [np.zeros(0)]
    for first in range(0, len(words), ROWS):
        some = words[first : first + ROWS]
        rows = np.concatenate([some[:, None], np.tile(rest, (len(some), 1))], axis=1).astype(np.int64)
        scored, _ = lm.score(rows, np.full(len(some), rows.shape[1]), repeat(state, len(some)))
        found.append(scored.sum(axis=1, dtype=np.float64))
    return refuse_nan(np.concatenate(found) + nats)
