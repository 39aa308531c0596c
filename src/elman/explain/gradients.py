"""How far back gradients reach: d loss_t / d h_k by the distance t - k, for every layer, on the user's own text.

Also: the recurrent Jacobian's largest singular value and eigenvalue, on which it depends whether gradients vanish or explode
over many steps; the gradient of a weight that is used at every step as the sum over its uses; the gradient by depth.
T tokens · B = 1 row · R losses that are looked at · H hidden · N numbers of a state
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from elman import pictures
from elman.core.arrays import Array
from elman.explain.explanation import Explanation, Line, Span, bar
from elman.explain.kind import Kind, KindOptions, names_of
from elman.explain.reading import Reading
from elman.explain.row_gradients import Predictions
from elman.nets.trace import LayerTrace, NetTrace

FADED = 0.01  # the share of a gradient's size at distance 0 below which it counts as gone
KRYLOV = 30  # dimensions of the space in which the largest eigenvalue of a large Jacobian is sought
SHOWN_DISTANCES = (0, 1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200, 300, 500)


class GradientsOptions(KindOptions):
    """Settings of `gradients`."""

    losses: int = Field(32, ge=1, le=1000, description="tokens whose loss is looked at, spread over the text")
    tokens: int = Field(512, ge=2, le=10_000, description="of a longer text only the first so many tokens are read")
    jacobians: int = Field(4, ge=0, le=100, description="steps whose recurrent Jacobian is computed")


class Gradients(Kind[GradientsOptions]):
    """The size of gradients by distance, by depth and by use."""

    options = GradientsOptions
    compares = True

    def explain(self, models: Sequence[Any], texts: Sequence[str], options: GradientsOptions) -> Explanation:
        """One curve a layer and model."""
        text = "\n".join(texts)
        names = names_of(models)
        found, notes = [], []
        for name, model in zip(names, models, strict=True):
            reading = model.reading(text)
            found.append({"model": name, **_measure(reading, options)})
            notes += [f"{name}: {note}" for note in found[-1].pop("notes")]
        rows = [
            {"distance": distance, "gradient": size, "layer": f"{one['model']}, {layer['name']}"}
            for one in found
            for layer in one["layers"]
            for distance, size in enumerate(layer["by_distance"])
            if size
        ]
        title = "Size of the gradient of a loss by how far back"
        picture = pictures.line_chart(rows, x="distance", y="gradient", colour="layer", title=title, log_y=True)
        return Explanation("gradients", title, {"models": found}, picture, _draw(found), notes)


def _measure(reading: Reading, options: GradientsOptions) -> dict[str, Any]:
    """All numbers of one model and text."""
    traced, predictions, places = _losses(reading, options)
    steps = {"words": [traced.words], **_states(traced)}
    grads = iter(predictions.gradients([node for nodes in steps.values() for node in nodes]))
    sizes = {name: _sizes([next(grads) for _ in nodes]) for name, nodes in steps.items()}
    notes = []
    if len(reading.tokens) > len(traced.words):
        notes.append(f"only the first {options.tokens:,} of {len(reading.tokens):,} tokens were read")
    if len(places) < len(reading.rows):
        notes.append(f"{len(places):,} of {len(reading.rows):,} losses were looked at")
    layers = []
    for name, sizes_RT in sizes.items():
        curve = _by_distance(sizes_RT, places)
        layers.append({"name": name, "by_distance": [_number(size) for size in curve], "faded": _faded(curve)})
    total = -predictions.scores.sum()
    return {
        "tokens": len(traced.words),
        "layers": layers,
        "depth": [{"name": name, "gradient": _number(_norm_of(total, nodes))} for name, nodes in steps.items()],
        "uses": _uses(total, traced.layers),
        "jacobians": _jacobians(traced.layers, options.jacobians),
        "notes": notes,
    }


def _losses(reading: Reading, options: GradientsOptions) -> tuple[NetTrace, Predictions, Array]:
    """What was recorded, the predictions that are looked at, and the place of each among the tokens."""
    with torch.enable_grad():
        # what reads both ways is read whole: without its end it is another text
        limit = options.tokens if reading.is_causal else None
        words = reading.words().detach()[:limit].requires_grad_()
        traced, scores = reading.trace(words)
        num_rows = min(len(scores), len(reading.chosen))
        rows = np.unique(np.linspace(0, num_rows - 1, min(options.losses, num_rows)).round().astype(np.int64))
        predictions = Predictions(reading, traced, scores, rows)
    # one prediction for each token that is read, or all of them about the whole text
    is_by_token = len(scores) == len(words)
    return traced, predictions, rows if is_by_token else np.full(len(rows), len(words) - 1)


def _states(traced: NetTrace) -> dict[str, list[Tensor]]:
    """The nodes of the graph for each layer: its states, or its outputs where it has none."""
    found: dict[str, list[Tensor]] = {}
    for number, layer in enumerate(traced.layers, 1):
        if layer.states:
            found |= {f"layer {number} {name}": list(steps) for name, steps in layer.states.items()}
        else:
            found[f"layer {number}"] = list(layer.outputs)
    return found


def _sizes(grads: Sequence[Tensor]) -> Array:
    """The size of the gradient of every loss by every step; one may be of all steps, (R, T, 1, E). -> (R, T)"""
    sizes = [grad.norm(dim=-1).flatten(1) for grad in grads]
    return torch.cat(sizes, dim=1).to(torch.float64).numpy()


def _norm_of(total: Tensor, nodes: Sequence[Tensor]) -> float:
    """The size of the gradient of the sum of all losses by all steps together."""
    grads = torch.autograd.grad(total, list(nodes), retain_graph=True, allow_unused=True)
    return math.sqrt(sum(float(grad.square().sum()) for grad in grads if grad is not None))


def _by_distance(sizes_RT: Array, places: Array) -> Array:
    """The mean size at each distance between a loss and a step. -> (distances,)"""
    distances = np.abs(places[:, None] - np.arange(sizes_RT.shape[1]))
    # of a model that cannot look ahead there is nothing on the other side
    is_ahead = np.arange(sizes_RT.shape[1]) > places[:, None]
    counted = ~is_ahead if not sizes_RT[is_ahead].any() else np.ones_like(is_ahead)
    totals = np.bincount(distances[counted], weights=sizes_RT[counted])
    return np.asarray(totals / np.maximum(1, np.bincount(distances[counted])))


def _faded(curve: Array) -> int | None:
    """The first distance from which on the gradient stays below a hundredth of what it is at the loss itself."""
    if not len(curve) or curve[0] == 0:
        return None
    is_large = np.flatnonzero(curve >= FADED * curve[0])
    first = int(is_large[-1]) + 1
    return first if first < len(curve) else None


def _uses(total: Tensor, layers: Sequence[LayerTrace]) -> list[dict[str, Any]]:
    """Of each recurrent weight: the size of each step's part of its gradient, and of their sum."""
    found = []
    for number, layer in enumerate(layers, 1):
        if not layer.uses or not layer.uses[0]:
            continue
        products = [use.product for step in layer.uses for use in step]
        grads = iter(torch.autograd.grad(total, products, retain_graph=True, allow_unused=True))
        parts: list[float] = []
        width = sum(use.product.shape[1] for use in layer.uses[0])
        whole = torch.zeros(width, layer.uses[0][0].operand.shape[1], dtype=total.dtype)
        for step in layer.uses:
            part = torch.zeros_like(whole)
            for use in step:
                grad = next(grads)
                if grad is not None:
                    part[use.rows] += grad.t() @ use.operand.detach()
            parts.append(_number(float(part.norm())))
            whole += part
        found.append({"name": f"layer {number}", "by_step": parts, "sum": _number(float(whole.norm()))})
    return found


def _jacobians(layers: Sequence[LayerTrace], count: int) -> list[dict[str, Any]]:
    """The largest singular value and eigenvalue of d state_t / d state_t-1, the mean over some steps."""
    found = []
    for number, layer in enumerate(layers, 1):
        steps = list(zip(*layer.states.values(), strict=True))
        is_one_way = not any("." in name for name in layer.states)
        if len(steps) < 2 or not count or not layer.uses or not is_one_way:
            continue
        places = np.unique(np.linspace(1, len(steps) - 1, min(count, len(steps) - 1)).round().astype(int))
        values = [largest_values(jacobian(steps[place], steps[place - 1])) for place in places.tolist()]
        singular, eigen = np.array(values).mean(axis=0)
        found.append({"name": f"layer {number}", "singular": _number(singular), "eigen": _number(eigen)})
    return found


def jacobian(after: Sequence[Tensor], before: Sequence[Tensor]) -> Array:
    """d after / d before of one row, all states side by side. -> (N, N)"""
    whole = torch.cat([state[0] for state in after])
    each = torch.eye(len(whole), dtype=whole.dtype)
    grads = torch.autograd.grad(
        whole, list(before), grad_outputs=each, is_grads_batched=True, retain_graph=True, allow_unused=True
    )
    parts = [
        torch.zeros(len(whole), state.shape[1], dtype=whole.dtype) if grad is None else grad[:, 0]
        for grad, state in zip(grads, before, strict=True)
    ]
    return torch.cat(parts, dim=1).to(torch.float64).numpy()


def largest_values(matrix: Array) -> tuple[float, float]:
    """The largest singular value and the largest eigenvalue by size; of a large matrix by Krylov spaces."""
    size = len(matrix)
    if size <= 2 * KRYLOV:
        return float(np.linalg.norm(matrix, 2)), float(np.abs(np.linalg.eigvals(matrix)).max(initial=0))
    singular = math.sqrt(max(0.0, _krylov(matrix.T @ matrix)))
    return singular, _krylov(matrix)


def _krylov(matrix: Array) -> float:
    """The largest eigenvalue by size, by Arnoldi's iteration."""
    rng = np.random.default_rng(0)
    basis = np.zeros((KRYLOV + 1, len(matrix)))
    projected = np.zeros((KRYLOV + 1, KRYLOV))
    start = rng.normal(size=len(matrix))
    basis[0] = start / np.linalg.norm(start)
    for k in range(KRYLOV):
        vector = matrix @ basis[k]
        for _ in range(2):  # twice is enough to be orthogonal
            shares = basis[: k + 1] @ vector
            projected[: k + 1, k] += shares
            vector -= shares @ basis[: k + 1]
        length = float(np.linalg.norm(vector))
        if length < 1e-12:
            return float(np.abs(np.linalg.eigvals(projected[: k + 1, : k + 1])).max())
        projected[k + 1, k] = length
        basis[k + 1] = vector / length
    return float(np.abs(np.linalg.eigvals(projected[:KRYLOV])).max())


def _number(value: float) -> float:
    return float(f"{float(value):.6g}")


def _draw(found: Sequence[dict[str, Any]]) -> list[Line]:
    """For each layer a bar a distance, by the logarithm: each character less is half a power of ten."""
    lines: list[Line] = []
    for one in found:
        for layer in one["layers"]:
            curve = layer["by_distance"]
            faded = layer["faded"]
            end = "" if faded is None else f", below {FADED:.0%} from {faded} tokens on"
            lines.append([Span(f"{one['model']}, {layer['name']}{end}")])
            highest = max(curve, default=0.0)
            for distance in (d for d in SHOWN_DISTANCES if d < len(curve)):
                size = curve[distance]
                share = 0.0 if not size or not highest else max(0.0, 1 + math.log10(size / highest) / 8)
                lines.append([Span(f"{distance:6d} back {size:10.3g} "), Span(bar(share, 32))])
        for row in one["jacobians"]:
            values = f"largest singular value {row['singular']:.3g}, eigenvalue {row['eigen']:.3g}"
            lines.append([Span(f"{one['model']}, {row['name']}: one step multiplies by at most {values}")])
    return lines
