"""A training step of our LSTM against the plain PyTorch way, in one run, taking turns, best of several.

    python benchmarks/train_step.py [--rounds 10] [--hidden 256,512] [--words 10000,33000] [--threads 2] [--keep]

Plain: nn.Embedding, nn.LSTM, nn.Linear, F.cross_entropy, forward and backward. Ours: `RecurrentModel.loss`, the same
sizes, the same exact full softmax, forward and backward, under `kept_memory` as in every training; in float32, and in bfloat16
as a plan chooses it where the processor has it. Evaluation: the same
without gradients, against `RecurrentModel.score`. Each has a process of its own, so that neither changes how the other
gets its memory; with --keep the plain way gets `kept_memory` too, which is most of what it lacks. The peak is the best
product of two 1536 x 1536 matrices seen in the same run.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.connection import Connection

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from elman.nets.inputs import NetInputs
from elman.nets.memory import kept_memory
from elman.tasks.lm.families.recurrent import RecurrentConfig
from elman.tasks.lm.families.recurrent_net import RecurrentModel

ROWS, TOKENS, PEAK_SIZE = 64, 35, 1536
ROLES = ("plain step", "our step", "our bfloat16 step", "plain evaluation", "our evaluation", "peak")


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


def build_ours(hidden: int, vocab_size: int) -> RecurrentModel:
    """Ours, of the same sizes."""
    rng = torch.Generator().manual_seed(1)
    return RecurrentModel(RecurrentConfig(hidden=hidden), NetInputs(vocab_size, rng=rng), reset_lines=False)


def make_action(role: str, hidden: int, vocab_size: int) -> Callable[[], object]:
    """What is timed."""
    tokens_BT = torch.randint(vocab_size, (ROWS, TOKENS + 1), generator=torch.Generator().manual_seed(2))
    inputs, targets = tokens_BT[:, :-1].contiguous(), tokens_BT[:, 1:].contiguous()
    if role == "peak":
        square = torch.randn(PEAK_SIZE, PEAK_SIZE)
        product = torch.empty_like(square)
        return lambda: torch.mm(square, square, out=product)
    if role.startswith("plain"):
        plain = Plain(hidden, vocab_size)
        inputs_TB, targets_TB = inputs.t().contiguous(), targets.t().contiguous()

        def step_plain() -> None:
            plain.zero_grad()
            plain(inputs_TB, targets_TB).backward()

        return step_plain if role == "plain step" else torch.inference_mode()(lambda: plain(inputs_TB, targets_TB))
    ours = build_ours(hidden, vocab_size)
    start, begin = ours.start_training(ROWS), ours.start(ROWS)

    def step_ours() -> None:
        ours.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=role == "our bfloat16 step"):
            loss, _ = ours.loss(inputs, targets, None, start)
        loss.total.backward()

    lengths = np.full(ROWS, TOKENS)
    return step_ours if role.endswith("step") else lambda: ours.score(targets.numpy(), lengths, begin)


def work(role: str, hidden: int, vocab_size: int, threads: int, keep: bool, pipe: Connection) -> None:
    """A process that runs its action whenever it is told to, and says how long it took."""
    torch.set_num_threads(threads)
    with ExitStack() as stack:
        if role in ("our step", "our bfloat16 step") or keep:
            stack.enter_context(kept_memory())
        action = make_action(role, hidden, vocab_size)
        action()
        pipe.send(None)
        while pipe.recv():
            start = time.perf_counter()
            action()
            pipe.send(time.perf_counter() - start)


def best_seconds(hidden: int, vocab_size: int, options: argparse.Namespace) -> dict[str, float]:
    """The least time of each, taken in turns so that a busy machine is busy for all of them."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = {}, []
    for role in ROLES:
        pipes[role], theirs = context.Pipe()
        arguments = (role, hidden, vocab_size, options.threads, options.keep, theirs)
        processes.append(context.Process(target=work, args=arguments, daemon=True))
        processes[-1].start()
        pipes[role].recv()
    best = dict.fromkeys(ROLES, float("inf"))
    for _ in range(options.rounds):
        for role, pipe in pipes.items():
            time.sleep(0.05)  # until the threads of the one before have gone to sleep
            pipe.send(True)
            best[role] = min(best[role], pipe.recv())
    for pipe in pipes.values():
        pipe.send(False)
    for process in processes:
        process.join()
    return best


def compare(hidden: int, vocab_size: int, options: argparse.Namespace) -> None:
    """One line of the table."""
    seconds = best_seconds(hidden, vocab_size, options)
    num_tokens = ROWS * TOKENS
    peak = 2 * PEAK_SIZE**3 / seconds["peak"]
    flops = 2 * build_ours(hidden, vocab_size).count_flops() * num_tokens  # forward; backward takes twice as much
    cells = [
        f"{hidden:6d}",
        f"{vocab_size:6d}",
        f"{1000 * seconds['plain step']:8.0f}",
        f"{1000 * seconds['our step']:7.0f}",
        f"{seconds['plain step'] / seconds['our step']:6.2f}x",
        f"{3 * flops / seconds['our step'] / peak:9.2f}",
        f"{num_tokens / seconds['our step']:9.0f}",
        f"{1000 * seconds['our bfloat16 step']:9.0f}",
        f"{seconds['plain step'] / seconds['our bfloat16 step']:6.2f}x",
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
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    print(
        f"{ROWS} rows x {TOKENS} tokens, {options.threads} threads, torch {torch.__version__}; best of {options.rounds}"
    )
    print("hidden  words plain ms ours ms  ratio  of peak  tokens/s bfloat16   ratio evaluation   of peak GFLOP/s")
    for hidden in map(int, options.hidden.split(",")):
        for vocab_size in map(int, options.words.split(",")):
            compare(hidden, vocab_size, options)


if __name__ == "__main__":
    main()
