"""LSTM layers by PyTorch's fused kernel (oneDNN on a CPU), which runs at 93-98% of sgemm's peak."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Parameter

from elman.nets.dropout import drop_weights
from elman.nets.int8 import Int8Matrix, linear
from elman.nets.layer import LayerState, SteppedLayer, draw_weights
from elman.nets.operators import Operator, reordered
from elman.nets.trace import Step, Use

# Below this many steps a loop over single cells is faster: the fused kernel reorders all weights at every call, which for
# one step of hidden 512 takes 6 ms against 0.2 ms for the step itself.
MIN_FUSED_STEPS = 16
SATURATING = 1e4  # a pre-activation at which a gate is exactly 0 or 1, and its gradient exactly 0


class LstmLayer(SteppedLayer):
    """An LSTM with forget gates (Gers et al. 2000), the gates in PyTorch's order: input, forget, candidate, output.

    i, f, o = sigmoid(W x + U h + b) · c' = f c + i tanh(W x + U h + b) · h' = o tanh(c')
    """

    num_states = 2
    state_names = ("h", "c")
    int8_weights = ("weight_in", "weight_back")
    _no_bias: Tensor

    def __init__(self, inputs: int, hidden: int, *, forget_bias: float, dtype: torch.dtype) -> None:
        super().__init__(hidden)
        self.forget_bias = forget_bias
        self.weight_in = Parameter(torch.zeros(4 * hidden, inputs, dtype=dtype))
        self.weight_back = Parameter(torch.zeros(4 * hidden, hidden, dtype=dtype))
        self.bias = Parameter(torch.zeros(4 * hidden, dtype=dtype))
        # The kernel takes two biases; only their sum matters, so one is learned and one stays zero.
        self.register_buffer("_no_bias", torch.zeros(4 * hidden, dtype=dtype), persistent=False)

    def initialise(self, rng: torch.Generator) -> None:
        """Uniform weights, and a forget gate that starts open (Jozefowicz et al. 2015)."""
        draw_weights(rng, self.weight_in, self.weight_back, inputs=self.hidden)
        with torch.no_grad():
            self.bias.zero_()
            self.bias[self.hidden : 2 * self.hidden] = self.forget_bias

    def forward(
        self,
        inputs_TBI: Tensor,
        state: LayerState,
        weight_drop: float = 0.0,
        *,
        is_padding_TB: Tensor | None = None,
    ) -> tuple[Tensor, LayerState]:
        """-> (T, B, H), (h, c). At padding the cell state is kept and h is 0."""
        if torch.compiler.is_exporting():
            return self._export(inputs_TBI, state, None if is_padding_TB is None else (~is_padding_TB).sum(0))
        if isinstance(self.weight_in, Int8Matrix):
            return self.forward_by_steps(inputs_TBI, state)
        weight_back = drop_weights(self.weight_back, weight_drop)
        weight_in: Tensor = self.weight_in
        h_BH, c_BH = state
        if is_padding_TB is not None:
            inputs_TBI = torch.cat([inputs_TBI, is_padding_TB[:, :, None].to(inputs_TBI.dtype)], dim=-1)
            weight_in = torch.cat([weight_in, self._padding_weights()], dim=-1)
        if len(inputs_TBI) == 1 or (len(inputs_TBI) < MIN_FUSED_STEPS and not torch.is_grad_enabled()):
            outputs = []
            for inputs_BI in inputs_TBI:
                h_BH, c_BH = torch.lstm_cell(inputs_BI, (h_BH, c_BH), weight_in, weight_back, self.bias, self._no_bias)
                outputs.append(h_BH)
            return torch.stack(outputs), (h_BH, c_BH)
        weights = [weight_in, weight_back, self.bias, self._no_bias]
        before = (h_BH[None].contiguous(), c_BH[None].contiguous())
        outputs_TBH, h_1BH, c_1BH = torch._VF.lstm(
            inputs_TBI, before, weights, True, 1, 0.0, False, False, False
        )  # biases, layers, dropout, is training, both directions, batch first
        return outputs_TBH, (h_1BH[0], c_1BH[0])

    def _padding_weights(self) -> Tensor:
        """Input weights of a padding flag: they close the input and output gates, open the forget gate. -> (4 H, 1)"""
        gates_4 = self.weight_in.new_tensor([-SATURATING, SATURATING, 0.0, -SATURATING])
        return gates_4.repeat_interleave(self.hidden)[:, None]

    def read_inputs(self, inputs: Tensor) -> Tensor:
        """W x + b"""
        return linear(inputs, self.weight_in, self.bias)

    def step(self, values_BG: Tensor, state: LayerState) -> Step:
        """The formula above."""
        h_BH, c_BH = state
        back_BG = linear(h_BH, self.weight_back)
        gates_BG = values_BG + back_BG
        # one sigmoid of all four: three of them take longer than the one that is not needed
        input_BH, forget_BH, _, output_BH = gates_BG.sigmoid().chunk(4, dim=1)
        new_BH = gates_BG[:, 2 * self.hidden : 3 * self.hidden].tanh()
        c_BH = torch.addcmul(forget_BH * c_BH, input_BH, new_BH)
        gates = {"input": input_BH, "forget": forget_BH, "output": output_BH, "candidate": new_BH}
        h_after_BH = output_BH * c_BH.tanh()
        return Step(h_after_BH, (h_after_BH, c_BH), gates, [Use(h_BH, back_BG, slice(None))])

    def operator(self) -> Operator:
        """See `SteppedLayer`: input, output, forget, candidate."""
        weight_in, weight_back, bias = (
            reordered(weight, (0, 3, 1, 2)) for weight in (self.weight_in, self.weight_back, self.bias)
        )
        return Operator("LSTM", weight_in, weight_back, bias, self._no_bias)

    def multiply_adds(self) -> float:
        """Multiply-adds for one step of one row."""
        return float(self.weight_in.numel() + self.weight_back.numel())
