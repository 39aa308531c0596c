"""Elman and GRU layers, and the feed-forward layer."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn import Parameter

from elman.nets.config import Reset
from elman.nets.dropout import drop_weights
from elman.nets.int8 import Int8Matrix, linear
from elman.nets.layer import LayerState, SteppedLayer, draw_weights
from elman.nets.operators import Operator, reordered
from elman.nets.scan import Activation, ElmanScan, GruScan, Recurrence, ResetFirstGruScan
from elman.nets.trace import Step, Use


class ElmanLayer(SteppedLayer):
    """The simple recurrent layer of Elman (1990), plain, additive or with a single gate: see `ElmanScan`."""

    num_states = 1
    state_names = ("h",)
    int8_weights = ("weight_in", "weight_back")

    def __init__(
        self, inputs: int, hidden: int, *, recurrence: Recurrence, activation: Activation, dtype: torch.dtype
    ) -> None:
        super().__init__(hidden)
        self.recurrence: Recurrence = recurrence
        self.activation: Activation = activation
        gates = (2 if recurrence == "gated" else 1) * hidden
        self.weight_in = Parameter(torch.zeros(gates, inputs, dtype=dtype))
        self.weight_back = Parameter(torch.zeros(gates, hidden, dtype=dtype))
        self.bias = Parameter(torch.zeros(gates, dtype=dtype))

    def initialise(self, rng: torch.Generator) -> None:
        """Uniform weights; a plain layer with ReLU starts from the identity (Le, Jaitly & Hinton 2015).

        An additive layer starts by forgetting a quarter of its state per step: otherwise it grows with every token.
        """
        draw_weights(rng, self.weight_in, self.weight_back, inputs=self.hidden)
        with torch.no_grad():
            self.bias.zero_()
            if self.activation == "relu" and self.recurrence == "plain":
                self.weight_back.copy_(torch.eye(self.hidden))
            if self.recurrence == "additive":
                self.weight_back.mul_(0.4).sub_(0.25 * torch.eye(self.hidden))

    def forward(self, inputs_TBI: Tensor, state: LayerState, weight_drop: float = 0.0) -> tuple[Tensor, LayerState]:
        """-> (T, B, H), (h,)"""
        if torch.compiler.is_exporting():
            return self._export(inputs_TBI, state)
        if isinstance(self.weight_in, Int8Matrix):
            return self.forward_by_steps(inputs_TBI, state)
        values_TBG = F.linear(inputs_TBI, self.weight_in, self.bias)
        weight_back = drop_weights(self.weight_back, weight_drop)
        outputs_TBH: Tensor = ElmanScan.apply(  # type: ignore[no-untyped-call]
            values_TBG, weight_back, state[0], self.recurrence, self.activation
        )
        return outputs_TBH, (outputs_TBH[-1],)

    def read_inputs(self, inputs: Tensor) -> Tensor:
        """W x + b"""
        return linear(inputs, self.weight_in, self.bias)

    def step(self, values_BG: Tensor, state: LayerState) -> Step:
        """See `ElmanScan`."""
        h_BH = state[0]
        back_BG = linear(h_BH, self.weight_back)
        values_BG = values_BG + back_BG
        use = Use(h_BH, back_BG, slice(None))
        if self.recurrence != "gated":
            new_BH = activated(values_BG, self.activation)
            after_BH = h_BH + new_BH if self.recurrence == "additive" else new_BH
            return Step(after_BH, (after_BH,), {}, [use])
        update_BH = values_BG[:, : self.hidden].sigmoid()
        new_BH = activated(values_BG[:, self.hidden :], self.activation)
        after_BH = torch.lerp(h_BH, new_BH, update_BH)
        return Step(after_BH, (after_BH,), {"update": update_BH, "candidate": new_BH}, [use])

    def operator(self) -> Operator:
        """See `SteppedLayer`; of a plain layer only."""
        if self.recurrence != "plain":
            return super().operator()
        activations = [self.activation.capitalize()]
        bias_back = torch.zeros_like(self.bias)
        return Operator("RNN", self.weight_in, self.weight_back, self.bias, bias_back, {"activations": activations})

    def multiply_adds(self) -> float:
        """Multiply-adds for one step of one row."""
        return float(self.weight_in.numel() + self.weight_back.numel())


class GruLayer(SteppedLayer):
    """A gated recurrent unit (Cho et al. 2014): see `GruScan`, and `ResetFirstGruScan` for reset=before."""

    num_states = 1
    state_names = ("h",)
    int8_weights = ("weight_in", "weight_back")

    def __init__(self, inputs: int, hidden: int, *, reset: Reset = None, dtype: torch.dtype) -> None:
        super().__init__(hidden)
        self.reset_first = reset == "before"
        self.weight_in = Parameter(torch.zeros(3 * hidden, inputs, dtype=dtype))
        self.weight_back = Parameter(torch.zeros(3 * hidden, hidden, dtype=dtype))
        self.bias = Parameter(torch.zeros(3 * hidden, dtype=dtype))
        if not self.reset_first:
            self.bias_back = Parameter(torch.zeros(hidden, dtype=dtype))

    def initialise(self, rng: torch.Generator) -> None:
        """Uniform weights, no biases."""
        draw_weights(rng, self.weight_in, self.weight_back, inputs=self.hidden)
        with torch.no_grad():
            self.bias.zero_()
            if not self.reset_first:
                self.bias_back.zero_()

    def forward(self, inputs_TBI: Tensor, state: LayerState, weight_drop: float = 0.0) -> tuple[Tensor, LayerState]:
        """-> (T, B, H), (h,)"""
        if torch.compiler.is_exporting():
            return self._export(inputs_TBI, state)
        if isinstance(self.weight_in, Int8Matrix):
            return self.forward_by_steps(inputs_TBI, state)
        values_TBG = F.linear(inputs_TBI, self.weight_in, self.bias)
        weight_back = drop_weights(self.weight_back, weight_drop)
        outputs_TBH: Tensor
        if self.reset_first:
            outputs_TBH = ResetFirstGruScan.apply(values_TBG, weight_back, state[0])  # type: ignore[no-untyped-call]
        else:
            outputs_TBH = GruScan.apply(  # type: ignore[no-untyped-call]
                values_TBG, weight_back, self.bias_back, state[0]
            )
        return outputs_TBH, (outputs_TBH[-1],)

    def read_inputs(self, inputs: Tensor) -> Tensor:
        """W x + b"""
        return linear(inputs, self.weight_in, self.bias)

    def step(self, values_BG: Tensor, state: LayerState) -> Step:
        """See `GruScan`. The update gate is how much is kept."""
        h_BH, hidden = state[0], self.hidden
        gates = slice(0, 2 * hidden) if self.reset_first else slice(None)
        back_BG = linear(h_BH, self.weight_back[gates])
        uses = [Use(h_BH, back_BG, gates)]
        reset_BH, update_BH = (values_BG[:, : 2 * hidden] + back_BG[:, : 2 * hidden]).sigmoid().chunk(2, dim=1)
        if self.reset_first:
            kept_BH = reset_BH * h_BH
            inner_BH = linear(kept_BH, self.weight_back[2 * hidden :])
            uses.append(Use(kept_BH, inner_BH, slice(2 * hidden, None)))
        else:
            inner_BH = reset_BH * (back_BG[:, 2 * hidden :] + self.bias_back)
        new_BH = (values_BG[:, 2 * hidden :] + inner_BH).tanh()
        after_BH = torch.lerp(new_BH, h_BH, update_BH)
        return Step(after_BH, (after_BH,), {"reset": reset_BH, "update": update_BH, "candidate": new_BH}, uses)

    def operator(self) -> Operator:
        """See `SteppedLayer`: update, reset, candidate."""
        bias_back = torch.zeros_like(self.bias)
        if not self.reset_first:
            bias_back = torch.cat([bias_back[self.hidden :], self.bias_back])
        weight_in, weight_back, bias = (
            reordered(weight, (1, 0, 2)) for weight in (self.weight_in, self.weight_back, self.bias)
        )
        attributes = {"linear_before_reset": int(not self.reset_first)}
        return Operator("GRU", weight_in, weight_back, bias, bias_back, attributes)

    def multiply_adds(self) -> float:
        """Multiply-adds for one step of one row."""
        return float(self.weight_in.numel() + self.weight_back.numel())


class DenseLayer(SteppedLayer):
    """act(W x + b) at each step, without a state."""

    num_states = 0

    def __init__(self, inputs: int, hidden: int, *, activation: Activation, dtype: torch.dtype) -> None:
        super().__init__(hidden)
        self.activation: Activation = activation
        self.weight = Parameter(torch.zeros(hidden, inputs, dtype=dtype))
        self.bias = Parameter(torch.zeros(hidden, dtype=dtype))

    def initialise(self, rng: torch.Generator) -> None:
        """Uniform weights, no bias."""
        draw_weights(rng, self.weight, inputs=self.weight.shape[1])
        with torch.no_grad():
            self.bias.zero_()

    def forward(self, inputs_TBI: Tensor, state: LayerState, weight_drop: float = 0.0) -> tuple[Tensor, LayerState]:
        """-> (T, B, H), ()"""
        return activated(F.linear(inputs_TBI, self.weight, self.bias), self.activation), state

    def read_inputs(self, inputs: Tensor) -> Tensor:
        """W x + b"""
        return F.linear(inputs, self.weight, self.bias)

    def step(self, values_BG: Tensor, state: LayerState) -> Step:
        """act(W x + b)"""
        return Step(activated(values_BG, self.activation), state)

    def multiply_adds(self) -> float:
        """Multiply-adds for one step of one row."""
        return float(self.weight.numel())


def activated(values: Tensor, activation: Activation) -> Tensor:
    """The activation of values."""
    match activation:
        case "tanh":
            return values.tanh()
        case "sigmoid":
            return values.sigmoid()
        case "relu":
            return values.relu()
