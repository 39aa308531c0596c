"""Training and decoding of our encoder-decoder against the textbook's, in one run, taking turns, best of several.

    python benchmarks/seq2seq.py [--pairs 3000] [--hidden 256] [--words 6000] [--rounds 3] [--threads 2]

Training: target words a second, forward, backward and Adam, over the same made-up pairs (lengths as in image captions:
13 words, give or take 4). The textbook's way is nn.LSTM both ways over packed sources, then a decoder that takes one
word at a time with nn.LSTMCell, attends, and predicts with nn.Linear and F.cross_entropy; batches as they come. The
same in one call is the textbook's with the decoder's nn.LSTM over whole targets. Ours is `Seq2SeqModel.batch_loss` over
`PairBatches`, under `kept_memory` as in every training. All have the same sizes and the same bilinear attention.

Decoding: sentences a second with a beam of 5, all at once in batches of like length, against one sentence after another.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from elman.core.arrays import Array
from elman.lm.search import beam_search
from elman.nets.inputs import NetInputs
from elman.nets.memory import kept_memory
from elman.tasks.seq2seq.config import Seq2SeqConfig
from elman.tasks.seq2seq.data import PairBatch, PairBatches
from elman.tasks.seq2seq.recurrent_net import Seq2SeqModel
from elman.text.batches import one_pass
from elman.text.units.vocabulary import EOS_ID

ROWS = 80  # of a batch
BEAM, MAX_TOKENS, DECODED = 5, 20, 128


class Textbook(nn.Module):
    """What everyone writes; `at_once` runs the decoder's layer over the whole target."""

    def __init__(self, hidden: int, vocab_size: int, *, at_once: bool) -> None:
        super().__init__()
        self.at_once = at_once
        self.source_embedding = nn.Embedding(vocab_size, hidden)
        self.embedding = nn.Embedding(vocab_size, hidden)
        self.encoder = nn.LSTM(hidden, hidden // 2, bidirectional=True, batch_first=True)
        self.bridge_h, self.bridge_c = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.cell = nn.LSTMCell(hidden, hidden)
        self.layer = nn.LSTM(hidden, hidden, batch_first=True)
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.readout = nn.Linear(2 * hidden, hidden)
        self.output = nn.Linear(hidden, vocab_size)

    def forward(self, batch: PairBatch) -> Tensor:
        """The mean cross-entropy of the targets."""
        sources, targets = torch.from_numpy(batch.sources), torch.from_numpy(batch.targets)
        lengths = torch.from_numpy(batch.source_lengths)
        packed = nn.utils.rnn.pack_padded_sequence(
            self.source_embedding(sources), lengths, batch_first=True, enforce_sorted=False
        )
        outputs, (h, c) = self.encoder(packed)
        memory, _ = nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True)
        h, c = self.bridge_h(torch.cat([h[0], h[1]], -1)).tanh(), self.bridge_c(torch.cat([c[0], c[1]], -1))
        is_padding = torch.arange(memory.shape[1]) >= lengths[:, None]
        inputs = self.embedding(torch.cat([torch.full_like(targets[:, :1], EOS_ID), targets[:, :-1]], dim=1))
        if self.at_once:
            states, _ = self.layer(inputs, (h[None], c[None]))
            logits = self._predict(states, memory, is_padding)
        else:
            steps = []
            for t in range(inputs.shape[1]):
                h, c = self.cell(inputs[:, t], (h, c))
                steps.append(self._predict(h[:, None], memory, is_padding))
            logits = torch.cat(steps, dim=1)
        is_target = torch.arange(targets.shape[1]) < torch.from_numpy(batch.target_lengths)[:, None]
        wanted = targets.masked_fill(~is_target, -100)
        return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=-100)

    def _predict(self, states: Tensor, memory: Tensor, is_padding: Tensor) -> Tensor:
        energies = self.query(states) @ memory.transpose(1, 2)
        weights = energies.masked_fill(is_padding[:, None], -torch.inf).softmax(-1)
        return self.output(self.readout(torch.cat([states, weights @ memory], -1)).tanh())


def make_pairs(count: int, vocab_size: int) -> tuple[Array, Array]:
    """Sources and targets as two streams of ids."""
    rng = np.random.default_rng(0)
    streams: tuple[list[int], list[int]] = ([], [])
    for _ in range(count):
        length = max(3, round(rng.normal(13, 4)))
        for stream, extra in zip(streams, (0, int(rng.integers(-2, 3))), strict=True):
            stream += [*rng.integers(2, vocab_size, max(2, length + extra)).tolist(), EOS_ID]
    return np.array(streams[0], dtype=np.uint16), np.array(streams[1], dtype=np.uint16)


def as_they_come(batches: PairBatches) -> Iterator[PairBatch]:
    """Batches of so many rows, whatever their lengths."""
    for first in range(0, batches.num_rows, ROWS):
        yield batches.rows(np.arange(first, min(first + ROWS, batches.num_rows)))


def words_per_second(loss: Callable[[PairBatch], Tensor], net: nn.Module, batches: Iterator[PairBatch]) -> float:
    """Of one pass, the optimiser's steps included."""
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
    begin, words = time.perf_counter(), 0
    for batch in batches:
        optimiser.zero_grad()
        loss(batch).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        words += batch.num_tokens
    return words / (time.perf_counter() - begin)


def sentences_per_second(model: Seq2SeqModel, batches: PairBatches, rows: int) -> float:
    """Decoding so many sentences at once."""
    order = np.argsort(batches.rows(np.arange(DECODED)).source_lengths)
    begin = time.perf_counter()
    for first in range(0, DECODED, rows):
        batch = batches.rows(order[first : first + rows])
        state = model.encode(batch.sources, batch.source_lengths)
        beam_search(model, state, width=BEAM, stop=EOS_ID, max_tokens=MAX_TOKENS, length_penalty=0.6)
    return DECODED / (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("pairs", 3000), ("hidden", 256), ("words", 6000), ("rounds", 3), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sources, targets = make_pairs(options.pairs, options.words)
    batches = PairBatches(sources, targets, tokens=ROWS * 14)
    config = Seq2SeqConfig(hidden=options.hidden)
    ours = Seq2SeqModel(
        config, NetInputs(options.words, rng=torch.Generator().manual_seed(1)), source_vocab_size=options.words
    )
    plain = {
        name: Textbook(options.hidden, options.words, at_once=name == "one call") for name in ("steps", "one call")
    }
    best: dict[str, float] = {}

    def note(name: str, speed: float) -> None:
        best[name] = max(best.get(name, 0.0), speed)

    for _ in range(options.rounds):
        for name, net in plain.items():
            note(f"textbook, {name}", words_per_second(net, net, as_they_come(batches)))
        with kept_memory():
            note("ours", words_per_second(lambda batch: ours.batch_loss(batch, None)[0].total, ours, one_pass(batches)))
        ours.eval()
        note("beam, one by one", sentences_per_second(ours, batches, 1))
        note("beam, batched", sentences_per_second(ours, batches, 64))
        ours.train()
    print(f"hidden {options.hidden}, {options.words:,} words, {options.threads} threads, best of {options.rounds}")
    for name in ("textbook, steps", "textbook, one call", "ours"):
        print(f"training  {name:<20} {best[name]:>8,.0f} words/s   {best['ours'] / best[name]:.2f} x slower than ours")
    for name in ("beam, one by one", "beam, batched"):
        ratio = best["beam, batched"] / best[name]
        print(f"decoding  {name:<20} {best[name]:>8.1f} sentences/s   {ratio:.2f} x slower than batched")


if __name__ == "__main__":
    main()
