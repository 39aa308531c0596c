"""Recurrences over time with hand-written gradients.

Autograd would add one small matrix product per step to the gradient of the recurrent weights; here the errors of all
steps are stored and the gradient is one large product. Under `torch.autocast` they stay in float32: their products are
small, and conversions would cost what they save. T steps · B rows · H hidden · G gates and candidates
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor
from torch.amp import custom_fwd
from torch.autograd.function import once_differentiable

Activation = Literal["tanh", "sigmoid", "relu"]
Recurrence = Literal["plain", "additive", "gated"]
Forward = TypeVar("Forward", bound=Callable[..., Tensor])


def _in_float32(forward: Forward) -> Forward:
    made: Forward = custom_fwd(forward, device_type="cpu", cast_inputs=torch.float32)
    return made


def activate_(values: Tensor, activation: Activation) -> Tensor:
    """Apply the activation in place."""
    match activation:
        case "tanh":
            return values.tanh_()
        case "sigmoid":
            return values.sigmoid_()
        case "relu":
            return values.relu_()


def through_activation(grad: Tensor, activated: Tensor, activation: Activation) -> Tensor:
    """The gradient of an activation's input, from the gradient of its output and the output itself."""
    below: Tensor
    match activation:
        case "tanh":
            below = torch.ops.aten.tanh_backward(grad, activated)
        case "sigmoid":
            below = torch.ops.aten.sigmoid_backward(grad, activated)
        case "relu":
            below = torch.ops.aten.threshold_backward(grad, activated, 0)
    return below


class ElmanScan(torch.autograd.Function):
    """The Elman recurrence and two variants on the way to the GRU.

    n = act(x + U h)      plain: h' = n      additive: h' = h + n      gated: h' = (1 - z) h + z n, z = sigmoid(x + U h)

    values_TBG: W x + b of all steps; G = H, or gated 2 H (the gate first). weight_GH: U. -> (T, B, H)
    """

    @staticmethod
    @_in_float32
    def forward(
        ctx: Any,
        values_TBG: Tensor,
        weight_GH: Tensor,
        start_BH: Tensor,
        recurrence: Recurrence,
        activation: Activation,
    ) -> Tensor:
        hidden = start_BH.shape[1]
        outputs_TBH = values_TBG.new_empty(*values_TBG.shape[:2], hidden)
        gates_TBG = outputs_TBH if recurrence == "plain" else torch.empty_like(values_TBG)
        h_BH = start_BH
        for values_BG, gates_BG, output_BH in zip(values_TBG, gates_TBG, outputs_TBH, strict=True):
            torch.addmm(values_BG, h_BH, weight_GH.t(), out=gates_BG)
            match recurrence:
                case "plain":
                    activate_(gates_BG, activation)
                case "additive":
                    torch.add(h_BH, activate_(gates_BG, activation), out=output_BH)
                case "gated":
                    gate_BH = gates_BG[:, :hidden].sigmoid_()
                    torch.lerp(h_BH, activate_(gates_BG[:, hidden:], activation), gate_BH, out=output_BH)
            h_BH = output_BH
        ctx.save_for_backward(weight_GH, start_BH, outputs_TBH, gates_TBG)
        ctx.kind = (recurrence, activation)
        return outputs_TBH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_TBH: Tensor) -> tuple[Tensor | None, ...]:
        weight_GH, start_BH, outputs_TBH, gates_TBG = ctx.saved_tensors
        recurrence, activation = ctx.kind
        hidden = start_BH.shape[1]
        errors_TBG = torch.empty_like(gates_TBG)
        later_BH = torch.zeros_like(start_BH)  # the gradient from the next step
        for t in range(len(grad_TBH) - 1, -1, -1):
            grad_BH = later_BH.add_(grad_TBH[t])
            gates_BG = gates_TBG[t]
            if recurrence == "gated":
                gate_BH, new_BH = gates_BG[:, :hidden], gates_BG[:, hidden:]
                h_BH = outputs_TBH[t - 1] if t else start_BH
                through_gate_BH = grad_BH * gate_BH
                errors_TBG[t, :, :hidden] = through_activation(grad_BH * (new_BH - h_BH), gate_BH, "sigmoid")
                errors_TBG[t, :, hidden:] = through_activation(through_gate_BH, new_BH, activation)
                later_BH = grad_BH.sub_(through_gate_BH).addmm_(errors_TBG[t], weight_GH)
            else:
                errors_TBG[t] = through_activation(grad_BH, gates_BG, activation)
                if recurrence == "additive":
                    later_BH = grad_BH.addmm_(errors_TBG[t], weight_GH)
                else:
                    later_BH = torch.mm(errors_TBG[t], weight_GH)
        return errors_TBG, _weight_gradient(errors_TBG, start_BH, outputs_TBH), later_BH, None, None


class GruScan(torch.autograd.Function):
    """The gated recurrent unit as PyTorch and cuDNN compute it; the gates in their order: reset, update, candidate.

    r, z = sigmoid(x + U h) · n = tanh(x + r (U h + b)) · h' = (1 - z) n + z h

    values_TBG: W x + b of all steps, G = 3 H. weight_GH: U. bias_H: the candidate's inner b. -> (T, B, H)
    """

    @staticmethod
    @_in_float32
    def forward(ctx: Any, values_TBG: Tensor, weight_GH: Tensor, bias_H: Tensor, start_BH: Tensor) -> Tensor:
        num_steps, num_rows, _ = values_TBG.shape
        hidden = start_BH.shape[1]
        outputs_TBH = values_TBG.new_empty(num_steps, num_rows, hidden)
        gates_TBG = torch.empty_like(values_TBG)  # r z n
        inner_TBH = torch.empty_like(outputs_TBH)  # U h + b of the candidate, before the reset
        back_BG = values_TBG.new_empty(num_rows, 3 * hidden)
        h_BH = start_BH
        for t in range(num_steps):
            gates_BG, values_BG = gates_TBG[t], values_TBG[t]
            torch.mm(h_BH, weight_GH.t(), out=back_BG)
            torch.add(back_BG[:, 2 * hidden :], bias_H, out=inner_TBH[t])
            torch.add(values_BG[:, : 2 * hidden], back_BG[:, : 2 * hidden], out=gates_BG[:, : 2 * hidden]).sigmoid_()
            reset_BH, update_BH = gates_BG[:, :hidden], gates_BG[:, hidden : 2 * hidden]
            new_BH = gates_BG[:, 2 * hidden :]
            torch.addcmul(values_BG[:, 2 * hidden :], reset_BH, inner_TBH[t], out=new_BH).tanh_()
            h_BH = torch.lerp(new_BH, h_BH, update_BH, out=outputs_TBH[t])
        ctx.save_for_backward(weight_GH, start_BH, outputs_TBH, gates_TBG, inner_TBH)
        return outputs_TBH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_TBH: Tensor) -> tuple[Tensor | None, ...]:
        weight_GH, start_BH, outputs_TBH, gates_TBG, inner_TBH = ctx.saved_tensors
        hidden = start_BH.shape[1]
        errors_TBG = torch.empty_like(gates_TBG)  # gradient of W x + b
        back_TBG = torch.empty_like(gates_TBG)  # gradient of U h + b: the candidate scaled by the reset gate
        later_BH = torch.zeros_like(start_BH)
        for t in range(len(grad_TBH) - 1, -1, -1):
            grad_BH = later_BH.add_(grad_TBH[t])
            reset_BH, update_BH, new_BH = gates_TBG[t].split(hidden, dim=1)
            h_BH = outputs_TBH[t - 1] if t else start_BH
            kept_BH = grad_BH * update_BH
            error_BH = through_activation(grad_BH - kept_BH, new_BH, "tanh")
            errors_BG = errors_TBG[t]
            errors_BG[:, 2 * hidden :] = error_BH
            errors_BG[:, hidden : 2 * hidden] = through_activation(grad_BH * (h_BH - new_BH), update_BH, "sigmoid")
            errors_BG[:, :hidden] = through_activation(error_BH * inner_TBH[t], reset_BH, "sigmoid")
            back_TBG[t, :, : 2 * hidden] = errors_BG[:, : 2 * hidden]
            torch.mul(error_BH, reset_BH, out=back_TBG[t, :, 2 * hidden :])
            later_BH = kept_BH.addmm_(back_TBG[t], weight_GH)
        bias_grad_H = back_TBG[:, :, 2 * hidden :].sum((0, 1))
        return errors_TBG, _weight_gradient(back_TBG, start_BH, outputs_TBH), bias_grad_H, later_BH


class ResetFirstGruScan(torch.autograd.Function):
    """The gated recurrent unit as Cho et al. (2014) write it: the state is reset before it is multiplied.

    r, z = sigmoid(x + U h) · n = tanh(x + U (r h)) · h' = (1 - z) n + z h

    values_TBG: W x + b of all steps, G = 3 H in the order of `GruScan`. weight_GH: U. -> (T, B, H)
    """

    @staticmethod
    @_in_float32
    def forward(ctx: Any, values_TBG: Tensor, weight_GH: Tensor, start_BH: Tensor) -> Tensor:
        num_steps, num_rows, _ = values_TBG.shape
        hidden = start_BH.shape[1]
        of_gates, of_new = weight_GH[: 2 * hidden].t(), weight_GH[2 * hidden :].t()
        outputs_TBH = values_TBG.new_empty(num_steps, num_rows, hidden)
        gates_TBG = torch.empty_like(values_TBG)  # r z n
        left_TBH = torch.empty_like(outputs_TBH)  # r h
        h_BH = start_BH
        for t in range(num_steps):
            gates_BG, values_BG = gates_TBG[t], values_TBG[t]
            gates_BG[:, : 2 * hidden] = torch.addmm(values_BG[:, : 2 * hidden], h_BH, of_gates).sigmoid_()
            reset_BH, update_BH = gates_BG[:, :hidden], gates_BG[:, hidden : 2 * hidden]
            new_BH = gates_BG[:, 2 * hidden :]
            torch.mul(reset_BH, h_BH, out=left_TBH[t])
            new_BH.copy_(torch.addmm(values_BG[:, 2 * hidden :], left_TBH[t], of_new).tanh_())
            h_BH = torch.lerp(new_BH, h_BH, update_BH, out=outputs_TBH[t])
        ctx.save_for_backward(weight_GH, start_BH, outputs_TBH, gates_TBG, left_TBH)
        return outputs_TBH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_TBH: Tensor) -> tuple[Tensor | None, ...]:
        weight_GH, start_BH, outputs_TBH, gates_TBG, left_TBH = ctx.saved_tensors
        hidden = start_BH.shape[1]
        errors_TBG = torch.empty_like(gates_TBG)
        later_BH = torch.zeros_like(start_BH)
        for t in range(len(grad_TBH) - 1, -1, -1):
            grad_BH = later_BH.add_(grad_TBH[t])
            reset_BH, update_BH, new_BH = gates_TBG[t].split(hidden, dim=1)
            h_BH = outputs_TBH[t - 1] if t else start_BH
            kept_BH = grad_BH * update_BH
            errors_BG = errors_TBG[t]
            errors_BG[:, 2 * hidden :] = through_activation(grad_BH - kept_BH, new_BH, "tanh")
            errors_BG[:, hidden : 2 * hidden] = through_activation(grad_BH * (h_BH - new_BH), update_BH, "sigmoid")
            left_grad_BH = torch.mm(errors_BG[:, 2 * hidden :], weight_GH[2 * hidden :])
            errors_BG[:, :hidden] = through_activation(left_grad_BH * h_BH, reset_BH, "sigmoid")
            later_BH = kept_BH.addcmul_(left_grad_BH, reset_BH)
            later_BH.addmm_(errors_BG[:, : 2 * hidden], weight_GH[: 2 * hidden])
        of_gates = _weight_gradient(errors_TBG[:, :, : 2 * hidden], start_BH, outputs_TBH)
        of_new = torch.mm(errors_TBG[:, :, 2 * hidden :].flatten(0, 1).t(), left_TBH.flatten(0, 1))
        return errors_TBG, torch.cat([of_gates, of_new]), later_BH


def _weight_gradient(errors_TBG: Tensor, start_BH: Tensor, outputs_TBH: Tensor) -> Tensor:
    """The gradient of U: each step's errors times the state before it, all steps in one product. -> (G, H)"""
    first_GH = torch.mm(errors_TBG[0].t(), start_BH)
    return first_GH.addmm_(errors_TBG[1:].flatten(0, 1).t(), outputs_TBH[:-1].flatten(0, 1))
