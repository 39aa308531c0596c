"""An exported LSTM in onnxruntime, token by token, against eager PyTorch and elman itself: one run, one thread, best of several.

    python benchmarks/onnx_step.py [--hidden 650] [--layers 2] [--words 10000] [--tokens 60] [--rounds 5]

The step as `elman export --format onnx` writes it (Gemm), and the same net with one LSTM operator a layer; each in float32 and
with onnxruntime's dynamic 8-bit quantisation (MatMulInteger, DynamicQuantizeLSTM). Eager is that of benchmarks/generate.py. All
draw by `elman.lm.search.sample`, but for eager PyTorch. The largest difference is of log-probabilities, from the net's own.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from generate import Eager, seconds_of
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import Tensor

from elman.export.onnx import convert
from elman.lm.search import sample
from elman.nets.graphs import BATCH, Graph, TensorModule
from elman.nets.inputs import NetInputs
from elman.tasks.lm.families.int8_net import Int8Model
from elman.tasks.lm.families.recurrent import RecurrentConfig
from elman.tasks.lm.families.recurrent_net import RecurrentModel


class OnnxModel:
    """A graph of a step as a language model: its state is the last log-probabilities and what is carried, (B, …) each."""

    def __init__(self, path: Path, net: RecurrentModel) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.names = [port.name for port in self.session.get_inputs()]
        self.rank = len(self.session.get_inputs()[0].shape)
        self.vocab_size, self.net = net.vocab_size, net

    def start(self, rows: int) -> tuple[Any, ...]:
        """As if the end of a line had just been read."""
        carried = tuple(leaf.numpy() for leaf in self.net.start_training(rows))
        return self.advance(np.ones(rows, dtype=np.int64), (None, *carried))

    def predict(self, state: tuple[Any, ...]) -> Any:
        """-> (B, V)"""
        return state[0]

    def advance(self, tokens: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
        """Read one token per row."""
        tokens = np.asarray(tokens, dtype=np.int64)
        read = (tokens if self.rank == 1 else tokens[None], *state[1:])
        return tuple(self.session.run(None, dict(zip(self.names, read, strict=True))))


def by_operators(net: RecurrentModel) -> Graph:
    """Several steps at once, so that each layer is one LSTM operator; the log-probabilities after the last."""

    def read(net: RecurrentModel, tokens_TB: Tensor, *carried: Tensor) -> tuple[Tensor, ...]:
        outputs_TBH, after = net.stack(net.embedding(tokens_TB), carried)
        return net.head.log_probs(outputs_TBH[-1]), *after

    carried = {name: leaf.clone() for name, leaf in zip(net.carried_names(), net.start_training(2), strict=True)}
    return Graph(
        "operators",
        TensorModule(net, read),
        {"tokens": torch.ones(2, 2, dtype=torch.int64), **carried},
        {"tokens": {0: "length", 1: BATCH}, **{name: {0: BATCH} for name in carried}},
        ["log_probs", *(f"new_{name}" for name in carried)],
    )


def write(graph: Graph, folder: Path) -> tuple[Path, Path]:
    """A graph with its constants folded, and the same quantised."""
    plain, folded, small = (folder / f"{graph.name}{end}.onnx" for end in ("", "_folded", "_int8"))
    plain.write_bytes(convert(graph))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folded)
    onnxruntime.InferenceSession(plain, options, providers=["CPUExecutionProvider"])
    quantize_dynamic(folded, small, weight_type=QuantType.QInt8, per_channel=True)
    return plain, small


def difference(one: Any, other: Any, steps: int = 200) -> float:
    """The largest of two models' log-probabilities over the same text."""
    tokens = np.random.default_rng(0).integers(0, one.vocab_size, (steps, 1))
    states: Sequence[Any] = [one.start(1), other.start(1)]
    worst = 0.0
    for token in tokens:
        states = [model.advance(token, state) for model, state in zip((one, other), states, strict=True)]
        worst = max(worst, float(np.abs(one.predict(states[0]) - other.predict(states[1])).max()))
    return worst


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("hidden", 650), ("layers", 2), ("words", 10_000), ("tokens", 60), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    hidden, layers, words, tokens = arguments.hidden, arguments.layers, arguments.words, arguments.tokens
    rng = torch.Generator().manual_seed(1)
    config = RecurrentConfig(hidden=hidden, layers=layers)
    ours = RecurrentModel(config, NetInputs(words, rng=rng), reset_lines=False).eval()
    eager = Eager(hidden, layers, words)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        step, small_step = write(ours.exported().graphs[0], Path(folder))
        operators, small_operators = write(by_operators(ours), Path(folder))
        models: dict[str, Any] = {
            "elman float32": ours,
            "elman int8": Int8Model.of(ours),
            "onnxruntime, step": OnnxModel(step, ours),
            "onnxruntime, step, int8": OnnxModel(small_step, ours),
            "onnxruntime, LSTM": OnnxModel(operators, ours),
            "onnxruntime, LSTM, int8": OnnxModel(small_operators, ours),
        }

    def draw(lm: Any) -> Callable[[], object]:
        return lambda: list(sample(lm, lm.start(1), rng=np.random.default_rng(1), max_tokens=tokens))

    actions = {
        "eager nn.LSTM": lambda: eager.generate(tokens),
        "eager nn.LSTMCell": lambda: eager.generate_by_cells(tokens),
    }
    best = seconds_of(actions | {name: draw(lm) for name, lm in models.items()}, arguments.rounds)
    print(f"{layers} x {hidden}, {words:,} words, one thread, onnxruntime {onnxruntime.__version__}")
    for name, seconds in best.items():
        against = " ".join(f"{best[peer] / seconds:6.2f} x {peer}" for peer in actions)
        apart = f"  largest difference {difference(models[name], ours):.1g}" if name in models else ""
        print(f"{name:24} {tokens / seconds:7,.0f} tokens/s {against}{apart}")


if __name__ == "__main__":
    main()
