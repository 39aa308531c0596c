"""How fast n-best lists are scored: shared beginnings read once, against line after line.

    python benchmarks/rescore.py DIR NBEST.tsv [--lists 200] [--rounds 3] [--json]

Three ways to the log-probabilities of the same hypotheses, taking turns on one thread, the best round of each by processor
time: by the prefix tree of many lists, as `elman rescore`; in batches of lines of like length, as `elman score`; one line at a
time. All must agree to 1e-4 nats a hypothesis, float32 sums of tens of tokens.
DIR is any left-to-right model; `benchmarks/nbest.py` makes lists.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import torch

import elman
from elman.lm.evaluate import score_lines
from elman.lm.prefixes import prefix_tree, score_tree
from elman.rescore.nbest import read_lists
from elman.rescore.rescoring import batches, hypotheses_at_once


def main() -> None:
    """Time all ways on the same lists."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("nbest")
    parser.add_argument("--lists", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = elman.load(given.directory)
    lists = list(islice(read_lists(given.nbest, model.record.data.reading(None)), given.lists))
    groups = [
        [model.ids_of(one.text) for nbest in batch for one in nbest.hypotheses]
        for batch in batches(lists, hypotheses_at_once(model.lm))
    ]
    rows = [row for group in groups for row in group]
    ways: dict[str, Callable[[], Any]] = {
        "prefix tree": lambda: np.concatenate([score_tree(model.lm, prefix_tree(group)) for group in groups]),
        "batches of lines": lambda: np.concatenate([-score_lines(model.lm, group).nats for group in groups]),
        "line by line": lambda: np.concatenate([-score_lines(model.lm, [row]).nats for row in rows]),
    }
    seconds = dict.fromkeys(ways, np.inf)
    for _ in range(given.rounds):
        found = {}
        for name, score in ways.items():
            begin = time.process_time()
            found[name] = score()
            seconds[name] = min(seconds[name], time.process_time() - begin)
        apart = max(float(np.abs(found[name] - found["line by line"]).max()) for name in ways)
        assert apart < 1e-4, f"the ways differ by {apart} nats"
    tokens = sum(map(len, rows))
    read = sum(prefix_tree(group).num_tokens for group in groups)
    result = {
        "lists": len(lists),
        "hypotheses": len(rows),
        "tokens": tokens,
        "read_tokens": read,
        "tokens_per_second": {name: round(tokens / one) for name, one in seconds.items()},
        "ratios": {name: round(seconds[name] / seconds["prefix tree"], 2) for name in list(ways)[1:]},
        "apart": apart,
    }
    if given.json:
        print(json.dumps(result))
        return
    print(f"{len(lists):,} lists, {len(rows):,} hypotheses, {tokens:,} tokens, {read:,} of them read; one thread")
    for name, one in seconds.items():
        print(f"{name:>16} {tokens / one:>12,.0f} tokens/s {one / seconds['prefix tree']:>8.2f} times as long")


if __name__ == "__main__":
    main()
