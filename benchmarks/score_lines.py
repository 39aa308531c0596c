"""Many short lines scored by an LSTM: elman against the plain PyTorch loop, in one run, taking turns, best of several.

    python benchmarks/score_lines.py TEXT [--hidden 512] [--words 10000] [--lines 4000] [--rounds 3] [--threads 1]

Plain: batches of 32 lines in the order of the text, padded; nn.Embedding, nn.LSTM, nn.Linear, cross_entropy without
gradients; and the same with the lines sorted by length. Ours: what `elman score` calls for a block of lines. All have the
same weights, in float32, and must give the same nats for every line. TEXT: words separated by spaces.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from elman.core.arrays import Array
from elman.lm.evaluate import score_lines
from elman.nets.inputs import NetInputs
from elman.tasks.lm.families.recurrent import RecurrentConfig
from elman.tasks.lm.families.recurrent_net import RecurrentModel
from elman.text.units.vocabulary import EOS_ID, UNK_ID

BATCH_LINES = 32
PADDING = -100  # what cross_entropy ignores


class Plain(nn.Module):
    """What everyone writes."""

    def __init__(self, ours: RecurrentModel, hidden: int, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, hidden)
        self.lstm = nn.LSTM(hidden, hidden, batch_first=True)
        self.output = nn.Linear(hidden, vocab_size)
        weights = ours.state_dict()
        layer = "stack.layers.0"
        names = {
            "embedding.weight": "embedding.weight",
            "lstm.weight_ih_l0": f"{layer}.weight_in",
            "lstm.weight_hh_l0": f"{layer}.weight_back",
            "lstm.bias_ih_l0": f"{layer}.bias",
            "output.weight": "head.weight",
            "output.bias": "head.bias",
        }
        own = {name: weights[theirs] for name, theirs in names.items()}
        self.load_state_dict(own | {"lstm.bias_hh_l0": torch.zeros(4 * hidden)})

    def nats(self, lines: Sequence[Tensor]) -> Tensor:
        """Of each line of a batch."""
        targets_BT = pad_sequence(list(lines), batch_first=True, padding_value=PADDING)
        inputs_BT = F.pad(targets_BT[:, :-1].clamp(min=0), (1, 0), value=EOS_ID)
        logits_BTV = self.output(self.lstm(self.embedding(inputs_BT))[0])
        return F.cross_entropy(logits_BTV.transpose(1, 2), targets_BT, reduction="none", ignore_index=PADDING).sum(1)


def read_lines(text: Path, num_lines: int, num_words: int) -> tuple[list[Array], int]:
    """The first lines as ids, each with its end, and how many words there are."""
    with text.open(encoding="utf-8") as file:
        lines = [line.split() for line in itertools.islice(file, num_lines)]
    common = Counter(itertools.chain.from_iterable(lines)).most_common(num_words - 2)
    ids = {word: number for number, (word, _) in enumerate(common, start=2)}
    return [np.array([*(ids.get(word, UNK_ID) for word in line), EOS_ID]) for line in lines], len(ids) + 2


def best_of(rounds: int, ways: dict[str, Callable[[], Array]]) -> dict[str, tuple[float, Array]]:
    """The least seconds of each way, taking turns, and what it gave."""
    found: dict[str, tuple[float, Array]] = {}
    for _ in range(rounds):
        for name, way in ways.items():
            begin = time.perf_counter()
            nats = way()
            seconds = time.perf_counter() - begin
            found[name] = (min(seconds, found[name][0]) if name in found else seconds, nats)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, metavar="TEXT")
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--words", type=int, default=10_000)
    parser.add_argument("--lines", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    lines, vocab_size = read_lines(options.text, options.lines, options.words)
    inputs = NetInputs(vocab_size, rng=torch.Generator().manual_seed(1))
    ours = RecurrentModel(RecurrentConfig(hidden=options.hidden), inputs, reset_lines=True)
    plain = Plain(ours, options.hidden, vocab_size)
    tensors = [torch.from_numpy(line) for line in lines]

    def run_plain(order: Sequence[int]) -> Array:
        nats = np.empty(len(lines), np.float32)
        with torch.inference_mode():
            for first in range(0, len(order), BATCH_LINES):
                rows = list(order[first : first + BATCH_LINES])
                nats[rows] = plain.nats([tensors[row] for row in rows]).numpy()
        return nats

    in_order = range(len(lines))
    ways = {
        "plain": lambda: run_plain(in_order),
        "plain, sorted": lambda: run_plain(sorted(in_order, key=lambda row: len(lines[row]))),
        "elman": lambda: score_lines(ours, lines).nats,
    }
    found = best_of(options.rounds, ways)
    num_tokens = sum(map(len, lines))
    print(
        f"{len(lines):,} lines, {num_tokens:,} tokens, hidden {options.hidden}, {vocab_size:,} words, best of {options.rounds}"
    )
    ours_seconds, ours_nats = found["elman"]
    for name, (seconds, nats) in found.items():
        worst = float(np.abs(nats / ours_nats - 1).max())
        print(
            f"{name:<14}{seconds:8.2f} s {num_tokens / seconds:10,.0f} tokens/s {len(lines) / seconds:8,.0f} lines/s"
            f"  ratio {seconds / ours_seconds:5.2f}  differs by {worst:.0e}"
        )


if __name__ == "__main__":
    main()
