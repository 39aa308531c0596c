"""A language model as the foundation of another task: its words and cells, and the copying of what fits.

A forward model gives its cells to the forward direction alone, a `bilm` and a masked one to both. What does not fit (a
second layer that read one direction, where the new one reads both) is drawn afresh, and said.
E width of a word · V words of the foundation · H hidden, of one direction
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.text.units.letters import SPACE_MARK
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS_ID, UNK_ID

if TYPE_CHECKING:
    from elman.nets.embedding import Embedding
    from elman.nets.encoder import BidirectionalStack
    from elman.nets.unidirectional import UnidirectionalStack

FOUNDATION_HINT = "--init takes a recurrent model of lm, bilm or masked: elman train lm TEXT --model lstm makes one"
FAMILIES = ("rnn", "gru", "lstm")
Cells = Mapping[str, Array]  # the weights of one layer of one direction, by their names in it
Direction = Literal["onward", "backward"]


@dataclass(frozen=True)
class Foundation:
    """What a recurrent language model gives to others."""

    name: str  # where it is
    tokenizer: Tokenizer
    family: str
    hidden: int
    vectors: Array  # (V, E)
    onward: Sequence[Cells]  # layers from the words up, as far as they can be used elsewhere
    backward: Sequence[Cells]
    reads_both: bool  # whether a layer above the first reads both directions of the one below

    @property
    def embedding(self) -> int:
        """The width of a word."""
        return int(self.vectors.shape[1])

    def word_rows(self, *, lower_case: bool) -> dict[str, int]:
        """Which row of `vectors` each word has, as words are written; of two that are written alike the more frequent."""
        found: dict[str, int] = {}
        symbols = list(enumerate(self.tokenizer.tokens))[EOS_ID + 1 :]
        is_marked = self.tokenizer.units == "word"
        for row, symbol in symbols:
            found.setdefault(symbol.removeprefix(SPACE_MARK) if is_marked else symbol, row)
        if lower_case:
            for word, row in list(found.items()):
                found.setdefault(word.lower(), row)
            found = {word: row for word, row in found.items() if word == word.lower()}
        return found

    def rows_for(self, words: Sequence[str], *, lower_case: bool) -> Array:
        """The row of each of a net's words: those that are not known begin as the foundation's unknown word. -> (W,)"""
        import numpy as np

        known = self.word_rows(lower_case=lower_case)
        rows = [known.get(word, known.get(word.lower(), UNK_ID)) for word in words]
        rows[: EOS_ID + 1] = range(EOS_ID + 1)
        return np.array(rows, dtype=np.int64)


@dataclass(frozen=True)
class Given:
    """A foundation, and which of its rows each word of a new net begins with, (W,)."""

    foundation: Foundation
    rows: Array

    def copy_into(self, net: Any, embedding: Embedding, stack: BidirectionalStack | UnidirectionalStack) -> Taken:
        """Copy words and cells into a net's encoder. Their shapes were settled before it was built."""
        import torch

        base = self.foundation
        touched: list[Any] = [embedding.weight]
        with torch.no_grad():
            embedding.weight.copy_(torch.from_numpy(base.vectors[self.rows]))
            layers: dict[Direction, int] = {"onward": 0, "backward": 0}
            is_plain = base.onward and not stack.stack.norms  # cells were trained on words that were not normed
            for number, layer in enumerate(stack.stack.parts if is_plain else ()):
                parts: dict[Direction, Any] = {"onward": getattr(layer, "onward", None) or layer.layer}
                if hasattr(layer, "backward"):
                    parts["backward"] = layer.backward
                for direction, part in parts.items():
                    given = base.onward if direction == "onward" else base.backward
                    reads_alike = base.reads_both == (len(parts) == 2) and stack.stack.skip == "none"
                    if number < len(given) and (number == 0 or reads_alike):
                        touched += _copy_cells(part, given[number])
                        layers[direction] += 1
        ids = {id(weight) for weight in touched}
        names = tuple(name for name, parameter in net.named_parameters() if id(parameter) in ids)
        return Taken(names, _sentence(base, layers))


@dataclass(frozen=True)
class Taken:
    """What a net got from its foundation."""

    names: tuple[str, ...]  # of its parameters
    sentence: str


def _copy_cells(layer: Any, cells: Cells) -> list[Any]:
    """Copy the weights of a layer; what it reads beside the words has no weight yet. -> the parameters"""
    import torch

    parameters = dict(layer.named_parameters())
    for name, parameter in parameters.items():
        given = torch.from_numpy(cells[name].copy()).to(parameter.dtype)
        if name == "weight_in" and given.shape[1] < parameter.shape[1]:
            parameter.zero_()
            parameter[:, : given.shape[1]] = given
        else:
            parameter.copy_(given)
    return list(parameters.values())


def _sentence(base: Foundation, layers: Mapping[Direction, int]) -> str:
    counts = [(layers["onward"], "forward"), (layers["backward"], "backward")]
    cells = [f"{count} {name} layer{'s' * (count > 1)}" for count, name in counts if count]
    what = f"{', '.join(['words', *cells[:-1]])} and {cells[-1]}" if cells else "words alone"
    return f"taken from {base.name}: {what}"


def make_foundation(
    model: Any,
    tokenizer: Tokenizer,
    *,
    vectors: Array | None,
    onward: Sequence[Cells],
    backward: Sequence[Cells] = (),
    reads_both: bool = False,
) -> Foundation:
    """What a recurrent model gives: of its layers those that plain ones can go on with."""
    config, name = model.record.model, str(model.directory or "the model")
    if getattr(config, "nets", 1) > 1:
        raise UsageError(
            f"{name} holds {config.nets} nets, and --init goes on with one",
            code="not-for-this-model",
            hint="train it with --set model.nets=1",
        )
    if config.family not in FAMILIES or not config.hidden or vectors is None:
        raise UsageError(
            f"{name} holds a {config.family}, which has no cells to give",
            code="not-for-this-model",
            hint=FOUNDATION_HINT,
        )
    usable = _usable_layers(config)
    return Foundation(
        name, tokenizer, config.family, config.hidden, vectors, onward[:usable], backward[:usable], reads_both
    )


def cells_of(tensors: Mapping[str, Array], prefix: str, within: str = "") -> list[Cells]:
    """The weights of each layer of a stack, by their names in it. within: what stands behind a layer's number."""
    found: list[Cells] = []
    while True:
        begin = f"{prefix}{len(found)}.{within}"
        cells = {name.removeprefix(begin): array for name, array in tensors.items() if name.startswith(begin)}
        if not cells:
            return found
        found.append(cells)


def _usable_layers(config: Any) -> int:
    """All; the first, where something leads past the others; none, where its cells are not the usual ones."""
    kinds = (getattr(config, "activation", None), getattr(config, "recurrence", None))
    resets_before = getattr(config, "reset", None) == "before"
    if config.layer_norm or resets_before or kinds[0] not in (None, "tanh") or kinds[1] not in (None, "plain"):
        return 0
    return int(config.layers) if config.skip == "none" else 1
