"""Matrices of 8-bit integers."""

from __future__ import annotations

import pytest
import torch

from elman.nets import int8
from elman.nets.int8 import Int8Matrix, rounded


def test_each_row_is_rounded_to_its_own_127_steps() -> None:
    values, scales = rounded(torch.tensor([[1.27, -0.5, 0.004], [0.0, 0.0, 0.0], [-254.0, 2.0, 100.0]]))
    assert values.tolist() == [[127, -50, 0], [0, 0, 0], [-127, 1, 50]]
    assert scales[[0, 2]].tolist() == pytest.approx([0.01, 2.0])


def test_a_product_is_that_of_the_rounded_numbers() -> None:
    rng = torch.Generator().manual_seed(0)
    weight, inputs, bias = (torch.randn(size, generator=rng) for size in ((7, 5), (2, 3, 5), (7,)))
    matrix = Int8Matrix.of(weight)
    flat, scales = rounded(inputs.reshape(6, 5))
    expected = (flat * scales[:, None]) @ matrix.rows(torch.arange(7)).t() + bias
    torch.testing.assert_close(matrix.product(inputs, bias), expected.reshape(2, 3, 7))
    torch.testing.assert_close(matrix.product(inputs, bias), inputs @ weight.t() + bias, atol=0.1, rtol=0)


def test_a_matrix_of_one_column_is_multiplied_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch._int_mm` reads memory that is not its own there: a word had another probability at every call."""
    weight, inputs = torch.tensor([[1.0], [-3.0], [2.0]]), torch.tensor([[2.0], [0.5]])
    for packs in (True, False):
        monkeypatch.setattr(int8, "packs_exactly", lambda packs=packs: packs)
        torch.testing.assert_close(Int8Matrix.of(weight).product(inputs), inputs @ weight.t())


def test_a_row_alone_has_the_product_of_the_row_among_others() -> None:
    rng = torch.Generator().manual_seed(0)
    weight, inputs = torch.randn(70, 65, generator=rng), torch.randn(33, 65, generator=rng)
    inputs[3] = 0
    matrix = Int8Matrix.of(weight)
    products = matrix.product(inputs)
    assert torch.equal(torch.cat([matrix.product(row[None]) for row in inputs]), products)
    assert torch.equal(matrix[10:20].product(inputs), products[:, 10:20])
    assert matrix[10:20] is matrix[10:20], "made anew at every step"


def test_every_way_to_multiply_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """By packed weights, by plain ones, and where the processor's 8-bit products are cut off by floats."""
    rng = torch.Generator().manual_seed(0)
    weight, inputs = torch.randn(30, 200, generator=rng), torch.randn(4, 200, generator=rng)
    products = []
    for name in ("", "packs_exactly", "multiplies_exactly"):
        if name:
            monkeypatch.setattr(int8, name, lambda: False)
        products.append(Int8Matrix.of(weight).product(inputs))
    torch.testing.assert_close(products[0], products[1])
    torch.testing.assert_close(products[0], products[2])


def test_torch_packs_8_bit_integers_for_fbgemm() -> None:
    """What packs and multiplies them is private, and to go: a torch without it is slower, and this says so."""
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        pytest.skip("needs a torch built with fbgemm, as those for x86 are")
    packed = int8.pack(torch.ones(3, 2, dtype=torch.int8), torch.ones(3))
    products = int8.packed_product(torch.tensor([[1.0, -1.0], [1.0, 1.0]]), packed)
    torch.testing.assert_close(products[:, 0], torch.tensor([0.0, 2.0]))
    if torch.cpu._is_vnni_supported():  # others cut large sums off at 16 bits on the way
        assert int8.packs_exactly()


def test_torch_multiplies_8_bit_integers_exactly() -> None:
    """`torch._int_mm` is private: where it changes, this says so."""
    rng = torch.Generator().manual_seed(0)
    for rows, columns, inner in ((1, 13, 7), (33, 5, 2), (2, 64, 300), (0, 3, 4)):
        left = torch.randint(-127, 128, (rows, inner), dtype=torch.int8, generator=rng)
        right = torch.randint(-127, 128, (columns, inner), dtype=torch.int8, generator=rng)
        assert torch.equal(torch._int_mm(left, right.t()).long(), left.long() @ right.long().t())
