"""A training step of our LSTM against the plain PyTorch way, in one run, interleaved, best of several.

    python benchmarks/train_step.py [--rounds 10] [--hidden 256,512] [--words 10000,33000] [--threads 2]

Plain: nn.Embedding, nn.LSTM, nn.Linear, F.cross_entropy, forward and backward. Ours: `RecurrentModel.loss`, the same
sizes, the same exact full softmax, forward and backward. Evaluation: the same without gradients. The peak is the best
product of two 1536 x 1536 matrices seen in the same run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from elman.config import RecurrentConfig
from elman.models.recurrent import RecurrentModel

ROWS, TOKENS, PEAK_SIZE = 64, 35, 1536


class Plain(nn.Module):
    """What everyone writes."""

    def __init__(self, hidden: int, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, hidden)
        self.lstm = nn.LSTM(hidden, hidden)
        self.output = nn.Linear(hidden, vocab_size)

    def forward(self, inputs_TB: Tensor, targets_TB: Tensor) -> Tensor:
        outputs_TBH, _ = self.lstm(self.embedding(inputs_TB))
        return F.cross_entropy(self.output(outputs_TBH).flatten(0, 1), targets_TB.flatten())


def best_seconds(actions: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The least time of each, taken in turns so that a busy machine is busy for all of them."""
    best = dict.fromkeys(actions, float("inf"))
    for action in actions.values():
        action()
    for _ in range(rounds):
        for name, action in actions.items():
            start = time.perf_counter()
            action()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def compare(hidden: int, vocab_size: int, rounds: int) -> None:
    """One line of the table."""
    rng = torch.Generator().manual_seed(1)
    tokens_BT = torch.randint(vocab_size, (ROWS, TOKENS + 1), generator=rng)
    inputs, targets = tokens_BT[:, :-1].contiguous(), tokens_BT[:, 1:].contiguous()
    inputs_TB, targets_TB = inputs.t().contiguous(), targets.t().contiguous()
    plain = Plain(hidden, vocab_size)
    ours = RecurrentModel(RecurrentConfig(hidden=hidden), vocab_size=vocab_size, reset_lines=False, rng=rng)
    scored, lengths = targets.numpy(), np.full(ROWS, TOKENS)
    start, begin = ours.start_training(ROWS), ours.start(ROWS)
    square = torch.randn(PEAK_SIZE, PEAK_SIZE, generator=rng)
    product = torch.empty_like(square)

    def step_plain() -> None:
        plain.zero_grad()
        plain(inputs_TB, targets_TB).backward()

    def step_ours() -> None:
        ours.zero_grad()
        ours.loss(inputs, targets, None, start)[0].total.backward()

    def evaluate_plain() -> None:
        with torch.inference_mode():
            plain(inputs_TB, targets_TB)

    actions: dict[str, Callable[[], object]] = {
        "peak": lambda: torch.mm(square, square, out=product),
        "plain": step_plain,
        "ours": step_ours,
        "plain evaluation": evaluate_plain,
        "our evaluation": lambda: ours.score(scored, lengths, begin),
    }
    seconds = best_seconds(actions, rounds)
    num_tokens = ROWS * TOKENS
    peak = 2 * PEAK_SIZE**3 / seconds["peak"]
    flops = 2 * ours.count_flops() * num_tokens  # forward; backward takes twice as much
    cells = [
        f"{hidden:6d}",
        f"{vocab_size:6d}",
        f"{1000 * seconds['plain']:8.0f}",
        f"{1000 * seconds['ours']:7.0f}",
        f"{seconds['plain'] / seconds['ours']:6.2f}x",
        f"{3 * flops / seconds['ours'] / peak:9.2f}",
        f"{num_tokens / seconds['ours']:9.0f}",
        f"{seconds['plain evaluation'] / seconds['our evaluation']:10.2f}x",
        f"{flops / seconds['our evaluation'] / peak:9.2f}",
        f"{peak / 1e9:8.0f}",
    ]
    print(" ".join(cells), flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--hidden", default="256,512")
    parser.add_argument("--words", default="10000,33000")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(
        f"{ROWS} rows x {TOKENS} tokens, {options.threads} threads, torch {torch.__version__}; best of {options.rounds}"
    )
    print("hidden  words plain ms ours ms  ratio  of peak  tokens/s evaluation   of peak GFLOP/s")
    for hidden in map(int, options.hidden.split(",")):
        for vocab_size in map(int, options.words.split(",")):
            compare(hidden, vocab_size, options.rounds)


if __name__ == "__main__":
    main()
