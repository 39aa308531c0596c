"""Generation, token by token, against eager PyTorch: in one run, taking turns, best of several, on one thread.

    python benchmarks/generate.py [--hidden 650] [--layers 2] [--words 10000] [--tokens 60] [--rounds 5] [--streams 32]
    python benchmarks/generate.py --model DIR --text FILE      what 8-bit weights cost a trained model in perplexity

Eager: nn.Embedding, nn.LSTM, nn.Linear, softmax, torch.multinomial, a token at a time without gradients, as the PyTorch example
generates; and the same with nn.LSTMCell, which does not reorder its weights at every call. Ours: `elman.lm.search.sample` on the
same sizes, in float32 and with 8-bit weights; then several streams as one batch. The memory traffic of a step is that of its
weights; the bandwidth is the best sum over a large array seen in the same run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

import elman
from elman.lm.search import sample, sample_rows
from elman.nets.inputs import NetInputs
from elman.tasks.lm.families.int8_net import Int8Model
from elman.tasks.lm.families.recurrent import RecurrentConfig
from elman.tasks.lm.families.recurrent_net import RecurrentModel

BANDWIDTH_BYTES = 1 << 28


class Eager(nn.Module):
    """What everyone writes."""

    def __init__(self, hidden: int, layers: int, words: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, hidden)
        self.lstm = nn.LSTM(hidden, hidden, layers)
        self.cells = nn.ModuleList(nn.LSTMCell(hidden, hidden) for _ in range(layers))
        self.output = nn.Linear(hidden, words)

    @torch.no_grad()
    def generate(self, tokens: int) -> None:
        """By nn.LSTM."""
        token, state = torch.zeros(1, 1, dtype=torch.long), None
        for _ in range(tokens):
            outputs, state = self.lstm(self.embedding(token), state)
            token = torch.multinomial(torch.softmax(self.output(outputs[0]), dim=1), 1)

    @torch.no_grad()
    def generate_by_cells(self, tokens: int) -> None:
        """By nn.LSTMCell."""
        token = torch.zeros(1, dtype=torch.long)
        states: list[Any] = [None] * len(self.cells)
        for _ in range(tokens):
            values = self.embedding(token)
            for index, cell in enumerate(self.cells):
                states[index] = cell(values, states[index])
                values = states[index][0]
            token = torch.multinomial(torch.softmax(self.output(values), dim=1), 1)[:, 0]


def read_memory() -> Callable[[], object]:
    """Sums over an array that no cache holds."""
    large = np.ones(BANDWIDTH_BYTES // 4, np.float32)
    return large.sum


def seconds_of(actions: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The shortest time of each, taking turns."""
    best = dict.fromkeys(actions, float("inf"))
    for _ in range(rounds):
        for name, action in actions.items():
            begin = time.perf_counter()
            action()
            best[name] = min(best[name], time.perf_counter() - begin)
    return best


def compare(arguments: argparse.Namespace) -> None:
    """Tokens a second of everyone."""
    hidden, layers, words, tokens = arguments.hidden, arguments.layers, arguments.words, arguments.tokens
    rng = torch.Generator().manual_seed(1)
    ours = RecurrentModel(RecurrentConfig(hidden=hidden, layers=layers), NetInputs(words, rng=rng), reset_lines=False)
    small, eager = Int8Model.of(ours), Eager(hidden, layers, words)

    def one(lm: Any) -> Callable[[], object]:
        return lambda: list(sample(lm, lm.start(1), rng=np.random.default_rng(1), max_tokens=tokens))

    def many(lm: Any) -> Callable[[], object]:
        return lambda: sample_rows(lm, lm.start(arguments.streams), rng=np.random.default_rng(1), max_tokens=tokens)

    streams = f"{arguments.streams} streams"
    actions = {
        "eager nn.LSTM": lambda: eager.generate(tokens),
        "eager nn.LSTMCell": lambda: eager.generate_by_cells(tokens),
        "float32": one(ours),
        "int8": one(small),
        f"float32, {streams}": many(ours),
        f"int8, {streams}": many(small),
        "bandwidth": read_memory(),
    }
    best = seconds_of(actions, arguments.rounds)
    bandwidth = BANDWIDTH_BYTES / best.pop("bandwidth")
    weights = layers * 8 * hidden**2 + hidden * words
    print(f"{layers} x {hidden}, {words:,} words, one thread; memory {bandwidth / 1e9:.1f} GB/s")
    for name, seconds in best.items():
        num_streams = arguments.streams if "streams" in name else 1
        rate = tokens * num_streams / seconds
        traffic = weights * (1 if name.startswith("int8") else 4) * tokens / seconds
        against = rate * best["eager nn.LSTM"] / tokens
        print(
            f"{name:22} {rate:9,.0f} tokens/s  {against:6.2f} x eager nn.LSTM"
            f"  {rate * best['eager nn.LSTMCell'] / tokens:6.2f} x nn.LSTMCell  {traffic / bandwidth:5.2f} of the bandwidth"
        )
    for name in ("float32", "int8"):
        gain = best[name] * arguments.streams / best[f"{name}, {streams}"]
        print(f"{name}: {streams} give {gain:.1f} x the tokens/s of one")


def measure_loss(directory: str, text: str) -> None:
    """Perplexity before and after rounding."""
    model = elman.load(directory)
    exact, small = (each.evaluate(text)["perplexity"] for each in (model, model.to_int8()))
    print(f"perplexity {exact:.3f}, with 8-bit weights {small:.3f} ({100 * (small / exact - 1):+.3f} %)")


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (
        ("hidden", 650),
        ("layers", 2),
        ("words", 10_000),
        ("tokens", 60),
        ("rounds", 5),
        ("streams", 32),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--model")
    parser.add_argument("--text")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.model:
        measure_loss(arguments.model, arguments.text)
    else:
        compare(arguments)


if __name__ == "__main__":
    main()
