"""Gradients: equal to slopes measured by moving a state a little, and parts that add up to autograd's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elman
from elman.core.errors import DataError
from elman.explain import explain
from elman.explain.gradients import _by_distance, _faded, jacobian, largest_values

LINE = "a b c a b c a b"
SETTINGS = {"model.hidden": 6, "model.embedding": 5}


def make_model(folder: Path, name: str, **settings: Any) -> elman.Model:
    data = folder / "text.txt"
    data.write_text("a b c a b c\nc b a\n" * 40)
    family = name.partition(" ")[0]
    more = {f"model.{key}": value for key, value in settings.items()}
    return elman.train(
        "lm", data, model=family, valid="none", epochs=1, settings=SETTINGS | more, out=folder / name.replace(" ", "-")
    )


FAMILIES: dict[str, dict[str, Any]] = {
    "rnn": {},
    "rnn additive": {"recurrence": "additive"},
    "gru": {},
    "lstm": {},
    "lstm deep": {"layers": 2, "skip": "residual"},
}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_size_by_distance_is_the_slope_of_the_loss(tmp_path: Path, name: str) -> None:
    model = make_model(tmp_path, name, **FAMILIES[name])
    found = model.explain(LINE, kind="gradients", losses=1000).data["models"][0]
    net: Any = model.lm
    net.double()
    reading = model.reading(LINE)
    states = net.start_training(1)
    read = net._read_for(reading.chosen)
    num_tokens = len(reading.chosen)
    # of a deep net only the top layer, which nothing but its own next step and the output reads
    top = found["layers"][-len(states) // FAMILIES[name].get("layers", 1) :]
    first = len(states) - len(top)
    gates = reading.trace(reading.words())[0].layers[-1].gates
    slopes = np.zeros((len(top), num_tokens, num_tokens))
    with torch.no_grad():
        for k in range(num_tokens):
            after = net._read(read[: k + 1], states, is_noisy=False)
            for place in range(len(top)):
                for unit in range(6):
                    moved = []
                    for step in (1e-6, -1e-6):
                        carried = [leaf.clone() for leaf in after.carried]
                        carried[first + place][0, unit] += step
                        if place == 1:  # a cell's c is read through its h: h = o tanh(c)
                            slope = gates["output"][k] * (1 - carried[first + 1].tanh() ** 2)
                            carried[first][0, unit] += step * slope[0, unit]
                        moved.append(_losses(net, read[k + 1 :], reading.chosen[k + 1 :], tuple(carried)))
                    slopes[place, k + 1 :, k] += ((moved[0] - moved[1]) / 2e-6) ** 2
    sizes = np.sqrt(slopes)
    for place, layer in enumerate(top):
        wanted = [np.mean([sizes[place, t, t - d] for t in range(d, num_tokens)]) for d in range(1, num_tokens)]
        np.testing.assert_allclose(layer["by_distance"][1:], wanted, rtol=2e-3, atol=1e-7)


def _losses(net: Any, read_TB: torch.Tensor, targets: Any, carried: Any) -> Any:
    outputs = net._read(read_TB, carried, is_noisy=False) if len(read_TB) else None
    if outputs is None:
        return np.zeros(0)
    log_probs = net.head.log_probs(outputs.features[:, 0])
    return -log_probs[range(len(targets)), targets].numpy()


def test_the_uses_of_a_weight_add_up_to_its_gradient(tmp_path: Path) -> None:
    model = make_model(tmp_path, "gru")
    net: Any = model.lm
    found = model.explain(LINE, kind="gradients", losses=1000).data["models"][0]["uses"][0]
    reading = model.reading(LINE)
    _, scores = reading.trace(reading.words())
    loss = -scores[range(len(reading.chosen)), reading.chosen].sum()
    (grad,) = torch.autograd.grad(loss, [net.stack.layers[0].weight_back])
    assert found["sum"] == pytest.approx(float(grad.norm()), rel=1e-4)
    assert len(found["by_step"]) == len(reading.tokens)


def test_the_jacobian_of_an_elman_layer_is_its_formula(tmp_path: Path) -> None:
    """d h_t / d h_t-1 = diag(1 - h_t^2) U"""
    model = make_model(tmp_path, "rnn")
    net: Any = model.lm
    reading = model.reading(LINE)
    traced, _ = reading.trace(reading.words())
    steps = traced.layers[0].states["h"]
    weight = net.stack.layers[0].weight_back.detach().numpy()
    wanted = (1 - steps[3].detach().numpy()[0] ** 2)[:, None] * weight
    np.testing.assert_allclose(jacobian([steps[3]], [steps[2]]), wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("size", [10, 150])
def test_the_largest_values_are_those_of_linear_algebra(size: int) -> None:
    rng = np.random.default_rng(0)
    left, _ = np.linalg.qr(rng.normal(size=(size, size)))
    matrix = left @ np.diag(0.8 ** np.arange(size)) @ np.linalg.inv(left) + 0.01 * rng.normal(size=(size, size))
    singular, eigen = largest_values(matrix)
    assert singular == pytest.approx(np.linalg.svd(matrix)[1][0], rel=1e-3)
    assert eigen == pytest.approx(np.abs(np.linalg.eigvals(matrix)).max(), rel=1e-2)


def test_distance_counts_from_the_loss_back_and_for_two_ways_to_either_side() -> None:
    sizes = np.array([[1.0, 0, 0], [0.5, 2, 0], [0.25, 1, 3]])
    np.testing.assert_allclose(_by_distance(sizes, np.arange(3)), [2, 0.75, 0.25])
    sizes[0, 2] = 9.0
    np.testing.assert_allclose(_by_distance(sizes, np.arange(3))[2], (9 + 0.25) / 2)


def test_a_gradient_has_faded_where_it_stays_below_a_hundredth() -> None:
    assert _faded(np.array([1.0, 0.5, 0.001, 0.2, 0.001])) == 4
    assert _faded(np.array([1.0, 0.5])) is None
    assert _faded(np.zeros(3)) is None


def test_layers_of_a_window_are_shown_by_depth_and_words_by_distance(tmp_path: Path) -> None:
    model = make_model(tmp_path, "window", window=3, layers=3)
    found = model.explain(LINE, kind="gradients").data["models"][0]
    assert [row["name"] for row in found["depth"]] == ["words", "layer 1", "layer 2", "layer 3"]
    by_distance = found["layers"][0]["by_distance"]
    assert min(by_distance[:3]) > 0 and not any(by_distance[3:])  # nothing from outside of the window


def test_every_net_has_gradients_and_what_is_left_out_is_said(tmp_path: Path) -> None:
    models = [make_model(tmp_path, "rnn"), make_model(tmp_path, "transformer", attention_heads=2, hidden=8)]
    found = explain(models, ["a b c " * 30], kind="gradients", options={"losses": 5, "tokens": 20})
    assert [one["model"] for one in found.data["models"]] == ["rnn", "transformer"]
    assert any("first 20 of 91" in note for note in found.notes) and any("5 of 91" in note for note in found.notes)
    assert {row["layer"] for row in found.picture["data"]["values"]} >= {"rnn, layer 1 h", "transformer, layer 1"}
    assert "eigenvalue" in str(found)


@pytest.mark.parametrize("kind", ["surprisal", "gradients", "saliency", "states", "gates", "neighbours"])
def test_a_net_whose_training_diverged_is_refused(tmp_path: Path, kind: str) -> None:
    model = make_model(tmp_path, "gru")
    with torch.no_grad():
        model.net.embedding.weight.fill_(float("nan"))
    with pytest.raises(DataError, match="not numbers"):
        model.explain("a b", kind=kind)
