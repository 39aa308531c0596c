"""What does a mixture have that goes on learning, on text that it was not tuned on? Each half tuned on the other.

    python benchmarks/dynamic.py MODEL VALID [--tokens N] [--seed 1]

`elman evaluate MODEL VALID --dynamic` is too good where VALID is the text that the weights and caches of MODEL were
tuned on. Here they are tuned anew on one half of it, the text is read by `--dynamic`, and the other half counts; and the
other way round, a core each. MODEL is a mixture that `elman train lm --budget` made, of words that are read as one stream.
Beside it stands what the same mixtures have on the same tokens if they do not go on learning.

Of a long text `--tokens` counts as many, half of them from the beginning of each half, where reading begins then: what
comes before is not learned from, so the figure is rather too high than too low.
"""

from __future__ import annotations

import argparse
import json
import math
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

import elman
from elman.lm.cache import CacheModel
from elman.lm.heldout import FIRST, SECOND, FitText, score_text
from elman.lm.mixture_fit import fit_mixture
from elman.lm.neural_cache import NeuralCache, NeuralCacheConfig
from elman.text.corpus import read_corpus
from elman.text.readers import as_sources
from elman.training.dynamic import Dynamics, adapting

STEP_TOKENS = 2_000  # read between two lines on the terminal


def measure(
    directory: Path, valid: Path, tuned: int, counted: int, tokens: int | None, seed: int
) -> tuple[float, float, int]:
    """Nats of one part, adapted and not, and its tokens, by what was tuned on the other."""
    torch.set_num_threads(1)
    model = elman.load(directory)
    ids = np.asarray(read_corpus(as_sources(valid), model.tokenizer, model.record.data).ids)
    text = FitText(ids, False)
    members = [member for member in model.lm.members if not isinstance(member, CacheModel | NeuralCache)]
    fitted = fit_mixture(
        members,
        ids[text.part(tuned)],
        reset_lines=False,
        cache=True,
        neural_caches=[NeuralCacheConfig.model_validate({})],
        bucketed=True,
        report=lambda _: None,
    )
    if tokens is None:
        read = ids[: text.part(counted).stop]
        part = slice(text.part(counted).start, None)
    else:
        read = ids[text.part(counted)][: tokens // 2]
        part = slice(None)
    adapted = np.empty(len(read), np.float32)
    with adapting(fitted.mixture, reset_lines=False, dynamics=Dynamics(), rng=np.random.default_rng(seed)) as score:
        for first in range(0, len(read), STEP_TOKENS):
            adapted[first : first + STEP_TOKENS] = score(read[first : first + STEP_TOKENS])
            print(f"part {counted}: {min(first + STEP_TOKENS, len(read)):,} of {len(read):,} tokens", flush=True)
    fixed = -score_text(fitted.mixture, read, reset_lines=False)
    return float(adapted[part].sum(dtype=np.float64)), float(fixed[part].sum(dtype=np.float64)), len(read[part])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("valid", type=Path)
    parser.add_argument("--tokens", type=int, help="count so many; all of the text without it")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        jobs = [
            pool.submit(measure, given.model, given.valid, tuned, counted, given.tokens, given.seed)
            for tuned, counted in ((FIRST, SECOND), (SECOND, FIRST))
        ]
        adapted, fixed, tokens = (sum(column) for column in zip(*(job.result() for job in jobs), strict=True))
    print(
        json.dumps(
            {
                "perplexity_dynamic_crosswise": math.exp(adapted / tokens),
                "perplexity_crosswise": math.exp(fixed / tokens),
                "tokens": tokens,
            }
        )
    )


if __name__ == "__main__":
    main()
