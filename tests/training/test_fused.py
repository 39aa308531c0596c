"""PyTorch's private functions still do what training needs of them, and nothing else in training calls one."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import elman.training
from elman.training import fused

PACKAGE = Path(elman.training.__file__).parent
PRIVATE = {
    "scale_": ["_foreach_mul_"],
    "shift_": ["_foreach_add_"],
    "add_": ["_foreach_add_"],
    "add": ["_foreach_add"],
    "add_squares_": ["_foreach_addcmul_"],
    "square_roots": ["_foreach_sqrt"],
    "divide": ["_foreach_div"],
    "move_towards_": ["_foreach_lerp_"],
    "adam_": ["_fused_adam_", "_fused_adamw_"],
}


def broken(name: str) -> str:
    return (
        f"PyTorch {torch.__version__} has changed {' or '.join('torch.' + private for private in PRIVATE[name])}: "
        f"rewrite {name} in src/elman/training/fused.py, in the worst case as a loop over the tensors"
    )


def tensors(seed: int) -> list[Tensor]:
    """Of several shapes; all positive, so that roots and quotients exist."""
    rng = torch.Generator().manual_seed(seed)
    return [torch.rand(shape, generator=rng, dtype=torch.float64) + 0.1 for shape in ((3, 2), (4,), ())]


CASES: list[tuple[str, tuple[Any, ...], dict[str, float], Callable[..., Tensor]]] = [
    ("scale_", (0.3,), {}, lambda x: x * 0.3),
    ("shift_", (0.3,), {}, lambda x: x + 0.3),
    ("add_", (tensors(1),), {"factor": -0.3}, lambda x, y: x - 0.3 * y),
    ("add_", (tensors(1),), {}, lambda x, y: x + y),
    ("add", (tensors(1),), {"factor": 0.3}, lambda x, y: x + 0.3 * y),
    ("add_squares_", (tensors(1),), {"factor": 0.3}, lambda x, y: x + 0.3 * y * y),
    ("square_roots", (), {}, lambda x: x.sqrt()),
    ("divide", (tensors(1),), {}, lambda x, y: x / y),
    ("move_towards_", (tensors(1),), {"weight": 0.3}, lambda x, y: x + 0.3 * (y - x)),
]


@pytest.mark.parametrize(("name", "arguments", "options", "formula"), CASES)
def test_each_operation_is_its_formula_on_every_tensor(
    name: str, arguments: tuple[Any, ...], options: dict[str, float], formula: Callable[..., Tensor]
) -> None:
    given = tensors(0)
    others = [argument for argument in arguments if isinstance(argument, list)]
    wanted = [formula(*parts) for parts in zip(given, *others, strict=True)]
    try:
        result = getattr(fused, name)(given, *arguments, **options)
    except (AttributeError, TypeError, RuntimeError) as error:
        pytest.fail(f"{broken(name)} ({error})")
    is_in_place = name.endswith("_")
    assert (result is None) == is_in_place, broken(name)
    for found, expected in zip(given if is_in_place else result, wanted, strict=True):
        assert torch.allclose(found, expected, rtol=1e-12, atol=0), broken(name)
    if not is_in_place:
        assert all(torch.equal(x, y) for x, y in zip(given, tensors(0), strict=True)), broken(name)


@pytest.mark.parametrize("is_decoupled", [False, True])
def test_adam_is_the_formula_of_kingma_and_ba(is_decoupled: bool) -> None:
    """The third step: m and v by their moving averages, corrected by 1 - beta^3; decay inside or outside of g."""
    rate, beta1, beta2, decay, epsilon = 0.1, 0.9, 0.99, 0.05, 1e-8
    parameters, gradients, means, squares = (tensors(seed) for seed in range(4))
    counts = [torch.tensor(3.0) for _ in parameters]
    wanted = []
    for w, g, m, v in zip(parameters, gradients, means, squares, strict=True):
        slope = g if is_decoupled else g + decay * w
        mean, square = beta1 * m + (1 - beta1) * slope, beta2 * v + (1 - beta2) * slope**2
        start = w * (1 - rate * decay) if is_decoupled else w
        update = rate * mean / (1 - beta1**3) / ((square / (1 - beta2**3)).sqrt() + epsilon)
        wanted.append((start - update, mean, square))
    try:
        fused.adam_(
            parameters, gradients, means, squares, counts, rate=rate, beta1=beta1, beta2=beta2, weight_decay=decay,
            epsilon=epsilon, is_decoupled=is_decoupled,
        )  # fmt: skip
    except (AttributeError, TypeError, RuntimeError) as error:
        pytest.fail(f"{broken('adam_')} ({error})")
    for found, expected in zip(zip(parameters, means, squares, strict=True), wanted, strict=True):
        for mine, theirs in zip(found, expected, strict=True):
            assert torch.allclose(mine, theirs, rtol=1e-9, atol=0), broken("adam_")
    assert all(float(count) == 3.0 for count in counts), broken("adam_")
    assert all(math.isfinite(float(p.sum())) for p in parameters)


def private_names(path: Path) -> set[str]:
    """The private attributes of torch that a file uses: `torch._x`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "torch"
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
    }


def test_private_functions_of_torch_are_called_only_here() -> None:
    found = {path.name: names for path in sorted(PACKAGE.glob("*.py")) if (names := private_names(path))}
    assert found == {"fused.py": {name for names in PRIVATE.values() for name in names}}
