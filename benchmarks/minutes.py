"""What do some minutes buy? The word-level model of the PyTorch examples, then `elman train lm --budget`, in one run.

    python benchmarks/minutes.py TRAIN VALID --minutes 1 10 [--seeds 1 2 3] [--threads 2]

The recipe is that of the examples' published command line: two LSTM layers of 200 on vectors of 200, dropout 0.2,
batches of 20 streams, 35 tokens of backpropagation, the gradient clipped at 0.25, SGD at a rate of 20 that is divided by
4 after a pass without a gain. It is written anew here with PyTorch alone, trained until its minutes are over (validation
included), and its best validation counts. elman's number is the one on text that it was not tuned on
(`perplexity_crosswise`); where its minutes were too short to tune on all of VALID, the rest of VALID is measured after them and
counted in. Both read TRAIN as words between spaces and an end of line.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

WIDTH, LAYERS, DROPOUT = 200, 2, 0.2
STREAMS, VALID_STREAMS, BPTT = 20, 10, 35
RATE, CLIP = 20.0, 0.25


class WordModel(nn.Module):
    """Vectors, LSTM layers, a linear output; dropout between them."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(DROPOUT)
        self.vectors = nn.Embedding(vocab_size, WIDTH)
        self.layers = nn.LSTM(WIDTH, WIDTH, LAYERS, dropout=DROPOUT)
        self.output = nn.Linear(WIDTH, vocab_size)
        nn.init.uniform_(self.vectors.weight, -0.1, 0.1)
        nn.init.uniform_(self.output.weight, -0.1, 0.1)
        nn.init.zeros_(self.output.bias)

    def forward(self, inputs: Tensor, state: tuple[Tensor, Tensor] | None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        hidden, state = self.layers(self.dropout(self.vectors(inputs)), state)
        return self.output(self.dropout(hidden)).flatten(0, 1), state


def read(path: Path, words: dict[str, int]) -> Tensor:
    """The ids of a file; new words get the next number."""
    ids = [
        words.setdefault(word, len(words))
        for line in path.read_text(encoding="utf-8").splitlines()
        for word in (*line.split(), "<eos>")
    ]
    return torch.tensor(ids)


def streams(ids: Tensor, rows: int) -> Tensor:
    """So many columns, each a part of the text."""
    length = len(ids) // rows
    return ids[: length * rows].view(rows, length).t().contiguous()


@torch.no_grad()
def validate(model: WordModel, valid: Tensor) -> float:
    """Nats a token."""
    model.eval()
    state, nats = None, 0.0
    for first in range(0, len(valid) - 1, BPTT):
        inputs, targets = valid[first : first + BPTT][: len(valid) - 1 - first], valid[first + 1 : first + 1 + BPTT]
        logits, state = model(inputs, state)
        nats += len(targets) * nn.functional.cross_entropy(logits, targets.flatten()).item()
    model.train()
    return nats / (len(valid) - 1)


def train_example(train: Path, valid: Path, *, seconds: float, seed: int) -> dict[str, float]:
    """The recipe, for so long from now."""
    began = time.monotonic()
    torch.manual_seed(seed)
    words: dict[str, int] = {}
    train_ids, valid_ids = streams(read(train, words), STREAMS), streams(read(valid, words), VALID_STREAMS)
    model, rate, best, tokens, slow = WordModel(len(words)), RATE, math.inf, 0, 0.0
    while True:
        state = None
        for first in range(0, len(train_ids) - 1, BPTT):
            if time.monotonic() - began + slow > seconds:
                break
            targets = train_ids[first + 1 : first + 1 + BPTT]
            state = None if state is None else (state[0].detach(), state[1].detach())
            logits, state = model(train_ids[first : first + len(targets)], state)
            model.zero_grad()
            nn.functional.cross_entropy(logits, targets.flatten()).backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        parameter.add_(parameter.grad, alpha=-rate)
            tokens += targets.numel()
        measured = time.monotonic()
        nats = validate(model, valid_ids)
        slow = 1.2 * (time.monotonic() - measured)
        if nats >= best:
            rate /= 4
        best = min(best, nats)
        if time.monotonic() - began + slow > seconds:
            return {"perplexity": math.exp(best), "tokens": tokens, "seconds": time.monotonic() - began}


def train_elman(
    train: Path,
    valid: Path,
    *,
    seconds: float,
    seed: int,
    threads: int,
    units: str = "space",
    settings: Sequence[str] = (),
) -> dict[str, float]:
    """The whole command; and, after it, what is left of the validation text."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        words = ["train", "lm", str(train), "--valid", str(valid), "--units", units, "--budget", f"{seconds:.0f}s"]
        words += [word for setting in settings for word in ("--set", setting)]
        found = _elman(*words, "--seed", str(seed), "--threads", str(threads), "--out", f"{folder}/model")["valid"]
        took = time.monotonic() - began
        nats, tokens = found["tokens"] * math.log(found["perplexity_crosswise"]), found["tokens"]
        rest = valid.read_text(encoding="utf-8").splitlines(keepends=True)[found["lines"] + 1 :]
        if rest:
            (Path(folder) / "rest.txt").write_text("".join(rest), encoding="utf-8")
            more = _elman("evaluate", f"{folder}/model", f"{folder}/rest.txt")
            nats, tokens = nats + more["tokens"] * more["nats_per_token"], tokens + more["tokens"]
    return {"perplexity": math.exp(nats / tokens), "seconds": took, "tuned": found["tokens"]}


def _elman(*words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "elman", *words, "--json"], check=True, stdout=subprocess.PIPE, text=True
    )
    numbers: dict[str, Any] = json.loads(done.stdout)
    return numbers


def main() -> None:
    """Print a row for each number of minutes and each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path)
    parser.add_argument("valid", type=Path)
    parser.add_argument("--minutes", type=float, nargs="+", default=[1.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    for minutes in given.minutes:
        for seed in given.seeds:
            ours = train_elman(given.train, given.valid, seconds=60 * minutes, seed=seed, threads=given.threads)
            theirs = train_example(given.train, given.valid, seconds=60 * minutes, seed=seed)
            print(
                f"{minutes:g} min, seed {seed}: elman {ours['perplexity']:.2f} in {ours['seconds']:.0f} s "
                f"(tuned on {ours['tuned']:,} tokens), "
                f"PyTorch example {theirs['perplexity']:.2f} in {theirs['seconds']:.0f} s ({theirs['tokens']:,} tokens), "
                f"{1 - ours['perplexity'] / theirs['perplexity']:.0%} lower",
                flush=True,
            )


if __name__ == "__main__":
    main()
