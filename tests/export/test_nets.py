"""Every net's graphs, run by onnxruntime, say what the net says: whatever its family and its settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from elman.export.onnx import ROUNDINGS, TOLERANCE, Runner, convert
from elman.nets.graphs import Graph, NetGraphs, float64_runner
from elman.nets.inputs import NetInputs
from elman.tasks.tag.config import TaggerConfig
from elman.tasks.tag.net import TaggerModel
from tests.tasks.lm import zoo
from tests.tasks.masked import test_net as masked
from tests.tasks.seq2seq import test_net as pairs

STEPS = 60  # that are compared here; an export compares 1,000

# Those of the zoo that differ in what a graph is made of; but the first few, they are slow tests.
DISTINCT = ("lstm", "maxent, adaptive", "transformer, two heads")
OTHERS = (
    *("gru, reset first", "rnn gated", "rnn additive", "residual", "highway", "dense", "layer norm", "tied, projected"),
    *("adaptive, tied", "sampled", "maxent, learned start", "maxent alone", "learned start", "frozen vectors"),
    *("window direct", "window highway", "window maxent", "transformer, wide window", "transformer, adaptive"),
)
DISTINCT_PAIRS = ("additive",)
OTHER_PAIRS = tuple(pairs.ZOO)[::4]


def runner_of(found: NetGraphs) -> Runner:
    return Runner({graph.name: convert(graph) for graph in found.graphs})


def every(distinct: tuple[str, ...], others: tuple[str, ...]) -> list[Any]:
    return [*distinct, *(pytest.param(name, marks=pytest.mark.slow) for name in others if name not in distinct)]


@pytest.mark.parametrize("name", every(DISTINCT, OTHERS))
def test_the_step_of_a_language_model_is_its_own(name: str) -> None:
    found = zoo.build(name).exported()
    runner = runner_of(found)
    rounding = found.difference(float64_runner(found.graphs), STEPS)  # 1.3e-5 with a layer norm over five units
    assert found.difference(runner.run, STEPS) < max(TOLERANCE, ROUNDINGS * rounding)
    assert rounding < 1e-4
    assert set(found.start) == set(found.state)
    session = runner.sessions["model"]
    assert {port.name: port.shape[0] for port in session.get_inputs()} == dict.fromkeys(
        ["tokens", *found.state], "batch"
    )


@pytest.mark.parametrize("name", every(DISTINCT_PAIRS, OTHER_PAIRS))
def test_the_encoder_and_the_decoder_of_pairs_are_their_own(name: str) -> None:
    found = pairs.build(name).exported()
    assert [graph.name for graph in found.graphs] == ["encoder", "decoder"]
    assert found.difference(runner_of(found).run, STEPS) < TOLERANCE


TAGGERS = [
    {"output": "crf", "characters": "rnn", "layers": 2},
    {"output": "softmax", "characters": "cnn", "family": "gru", "bidirectional": False},
    {"output": "crf", "characters": "none", "family": "rnn"},
    {"output": "softmax", "characters": "none", "family": "gru", "reset": "before"},
]


@pytest.mark.parametrize("settings", [TAGGERS[0], *(pytest.param(one, marks=pytest.mark.slow) for one in TAGGERS[1:])])
def test_the_scores_of_a_tagger_are_its_own(settings: dict[str, Any]) -> None:
    usual = {"hidden": 5, "embedding": 4, "character_embedding": 3, "character_hidden": 2}
    net = TaggerModel(
        TaggerConfig.model_validate({**usual, **settings}),
        NetInputs(7, rng=torch.Generator().manual_seed(0), dtype=torch.float64),
        num_characters=9,
        labels=["O", "B-X", "I-X"],
    ).eval()
    found = net.exported()
    runner = runner_of(found)
    assert found.difference(runner.run, STEPS) < TOLERANCE
    if net.crf is not None:
        inputs = {name: tensor.numpy() for name, tensor in found.graphs[0].inputs.items()}
        np.testing.assert_array_equal(
            runner.run("model", inputs)["transitions"], net.crf.table().detach().to(torch.float32).numpy()
        )


@pytest.mark.parametrize("name", every(masked.FAMILIES, ("rnn",)))
def test_what_a_masked_model_restores_is_its_own(name: str) -> None:
    found = masked.build(name).exported()
    assert found.difference(runner_of(found).run, STEPS) < TOLERANCE


def test_a_graph_that_says_something_else_is_found_out() -> None:
    net = zoo.build("rnn", dtype=torch.float32)
    found = net.exported()
    runner = runner_of(found)
    with torch.no_grad():
        net.head.bias += torch.arange(6) * 1e-4  # type: ignore[union-attr, operator]
    assert 1e-5 < found.difference(runner.run, STEPS) < 1e-2


def test_a_graph_that_gives_no_numbers_is_found_out() -> None:
    found = zoo.build("rnn").exported()

    def run(name: str, inputs: dict[str, Any]) -> dict[str, Any]:
        return {"log_probs": np.full((3, 6), np.nan), "new_h_1": inputs["h_1"]}

    assert found.difference(run, 2) == float("inf")  # type: ignore[arg-type]


def test_what_a_net_loses_by_rounding_is_known() -> None:
    """A trained LSTM of 320 units is up to 8e-6 off in float32 and its graph 1.2e-5: that is no reason to refuse it."""
    found = zoo.build("lstm", dtype=torch.float32).exported()
    lost = found.difference(float64_runner(found.graphs), STEPS)
    assert 0 < lost < 1e-5
    exact = zoo.build("lstm", dtype=torch.float64)
    assert exact.exported().difference(float64_runner([exact.exported().graphs[0]]), STEPS) < 1e-5


def test_a_graph_holds_nothing_of_where_it_was_made() -> None:
    graph: Graph = zoo.build("rnn").exported().graphs[0]
    content = convert(graph)
    assert b".py" not in content
    assert b"/home" not in content and b"site-packages" not in content
    assert convert(graph) == content
