"""A model as ONNX: its graphs, its tokenizer, what there is to know of them (JSON), and a program that uses them.

Nothing is written before onnxruntime has run the graphs and predicts what the model itself predicts.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import signal
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elman import __version__, store
from elman.core import files
from elman.core.arrays import Array
from elman.core.errors import DataError, ElmanError, UsageError, WriteError
from elman.core.stored import holds_model, read_manifest
from elman.tasks.base import TaskModel

if TYPE_CHECKING:
    from elman.nets.graphs import Graph, NetGraphs
    from elman.tasks.exported import Exported

FACTS = "export.json"
EXAMPLE = "example.py"
STEPS = 1000  # that are compared with the model itself
TOLERANCE = 1e-5  # largest difference of log-probabilities and states
ROUNDINGS = 4.0  # times what the net itself loses in float32, where that is more
NEEDED = ("onnx", "onnxscript", "onnxruntime")
TALKATIVE = ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")  # loggers
MAX_BYTES = (1 << 31) - 1  # of a protobuf message
TYPES = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(bool)": "bool"}


@dataclass(frozen=True)
class Checked:
    """How well what was written was checked."""

    steps: int
    difference: float  # the largest over these steps


def export_onnx(model: TaskModel[Any], out: str | Path, *, overwrite: bool = False) -> Checked:
    """Write a model as ONNX into a directory: all of it, once it was found right, or nothing."""
    _refuse_missing()
    out = Path(out)
    _refuse_others(out)
    exported = model.exported()
    with store.reserve(out, overwrite=overwrite):
        graphs = {graph.name: convert(graph) for graph in exported.net.graphs}
        runner = Runner(graphs)
        difference = _checked(exported.net, runner)
        facts = _facts(model, exported, runner, difference)
        contents: dict[str, files.Content] = {
            **{f"{name}.onnx": content for name, content in graphs.items()},
            **exported.files,
            FACTS: (json.dumps(facts, indent=1, ensure_ascii=False) + "\n").encode(),
            EXAMPLE: exported.example.encode(),
        }
        files.commit(out, contents)
    return Checked(STEPS, difference)


def _checked(net: NetGraphs, runner: Runner) -> float:
    """The largest difference of the graphs from the net; an error where it is no rounding."""
    from elman.nets.graphs import float64_runner

    difference = net.difference(runner.run, STEPS)
    if difference <= TOLERANCE:
        return difference
    # of large nets the net itself is 1e-5 away from what it would be without rounding (docs/log.md)
    rounding = net.difference(float64_runner(net.graphs), STEPS)
    if difference <= ROUNDINGS * rounding:
        return difference
    raise ElmanError(
        f"the exported graphs differ from the model by {difference:.3g} over {STEPS:,} steps, more than {TOLERANCE:g};"
        " nothing was written",
        code="export-differs",
        hint="update onnx, onnxscript and onnxruntime; if it stays, please report it with the model's config.json",
    )


def _refuse_missing() -> None:
    for name in NEEDED:
        try:
            importlib.import_module(name)
        except ImportError:
            raise ElmanError(
                f"--format onnx needs {name}, which is not installed",
                code="missing-package",
                hint="pip install 'elman[export]'",
            ) from None


def _refuse_others(directory: Path) -> None:
    """--overwrite replaces what was exported, never a model."""
    if holds_model(directory):
        with contextlib.suppress(DataError):
            if FACTS in read_manifest(directory).files:
                return
        raise WriteError(f"{directory} holds a model", code="out-exists", hint="choose another directory with --out")


# -------------------------------------------------------------------------------------------------------------- graphs


def convert(graph: Graph) -> bytes:
    """A graph in the format's own bytes. A signal waits until the exporter is done: it takes one for a failure of its own."""
    import torch

    from elman.training.signals import Signals

    names = list(graph.inputs)
    with Signals() as signals, _quiet(), torch.no_grad():
        program: Any = torch.onnx.export(
            graph.module,
            (tuple(graph.inputs.values()),),
            dynamo=True,
            verbose=False,
            input_names=names,
            output_names=list(graph.outputs),
            dynamic_shapes=(tuple(graph.axes[name] for name in names),),
        )
    if signals.caught is not None:
        signal.raise_signal(signals.caught)
    proto = program.model_proto
    if proto.ByteSize() > MAX_BYTES:
        raise UsageError(
            f"the graph {graph.name} is larger than 2 GB, which ONNX cannot have in one file", code="not-for-this-model"
        )
    _strip(proto)
    content: bytes = proto.SerializeToString(deterministic=True)
    return content


def _strip(proto: Any) -> None:
    """Remove what only tells where in our source a node came from."""
    for part in (proto.graph, *proto.functions):
        for node in part.node:
            node.ClearField("metadata_props")
            node.ClearField("doc_string")
        part.ClearField("metadata_props")
        part.ClearField("value_info")
    for tensor in (*proto.graph.input, *proto.graph.output, *proto.graph.initializer):
        tensor.ClearField("metadata_props")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter says of itself: of packages that are not there, and of its own future."""
    loggers = [logging.getLogger(name) for name in TALKATIVE]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


class Runner:
    """Graphs in onnxruntime, by their names."""

    def __init__(self, graphs: Mapping[str, bytes]) -> None:
        import onnxruntime

        self.sessions = {
            name: onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
            for name, content in graphs.items()
        }

    def run(self, name: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of a graph."""
        session = self.sessions[name]
        outputs = session.run(None, dict(inputs))
        return {port.name: array for port, array in zip(session.get_outputs(), outputs, strict=True)}


# --------------------------------------------------------------------------------------------------------------- facts


def _facts(model: TaskModel[Any], exported: Exported, runner: Runner, difference: float) -> dict[str, Any]:
    """All that a program has to know to use the graphs."""
    import onnxruntime

    net = exported.net
    return {
        "format": "onnx",
        "elman": __version__,
        "task": model.record.task,
        "graphs": {
            f"{name}.onnx": {"inputs": _ports(session.get_inputs()), "outputs": _ports(session.get_outputs())}
            for name, session in runner.sessions.items()
        },
        **({"state": dict(net.state)} if net.state else {}),
        **({"start": dict(net.start)} if net.start else {}),
        **exported.facts,
        "checked": {"steps": STEPS, "largest_difference": difference, "onnxruntime": onnxruntime.__version__},
    }


def _ports(ports: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"name": port.name, "type": TYPES[port.type], "shape": port.shape} for port in ports]
