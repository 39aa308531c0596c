"""What we use of PyTorch's private functions in nets: where they change, this says so."""

from __future__ import annotations

import torch

from elman.nets.lstm import LstmLayer

BROKEN = f"torch {torch.__version__} has changed torch._VF.lstm, which elman.nets.lstm uses for its fused kernel"


def test_the_fused_lstm_is_called_as_torch_declares_it() -> None:
    assert hasattr(torch._VF, "lstm"), BROKEN
    layer = LstmLayer(3, 4, forget_bias=1.0, dtype=torch.float64)
    layer.initialise(torch.Generator().manual_seed(0))
    words = torch.randn(5, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    state = tuple(torch.zeros(2, 4, dtype=torch.float64) for _ in range(2))
    outputs, after = layer(words, state)
    step_outputs, now = [], state
    for word in words:
        one, now = layer(word[None], now)
        step_outputs.append(one)
    torch.testing.assert_close(outputs, torch.cat(step_outputs), msg=BROKEN)
    torch.testing.assert_close(after[0], now[0], msg=BROKEN)
