"""Texts as vectors, from any net: what its layers make of every token, and one vector for all of a text.

N texts · B rows of a batch · T tokens · D width of a layer
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.tasks.foundation import FOUNDATION_HINT, Foundation
from elman.tasks.options import Errors, PredictOptions
from elman.text.readers import Reader, Sources, as_texts
from elman.text.rows import like_length, pad_all
from elman.text.settings import DataConfig
from elman.text.units.vocabulary import EOS_ID, UNK_ID

if TYPE_CHECKING:
    from elman.nets.layer import LayerVectors

Pooling = Literal["last", "mean", "max"]
READ_TOKENS = 8000  # at once, padding counted


class Encodes:
    """A model that gives texts vectors, where it is a net: `_encode_row` and `_net` are all that a kind of models says."""

    record: Any
    directory: Path | None
    reads_end: ClassVar[bool] = False  # whether the end of a line is read behind its tokens; it has no vector
    unknown_row: ClassVar[Any] = np.array([UNK_ID])  # one unknown word, as `_encode_row` would give it

    def encode(self, texts: str | Sequence[str], *, layer: int | None = None, pool: Pooling | None = "mean") -> Any:
        """A vector for each text, (N, D) float32; for a single string (D,). With pool=None a list of (T, D), a row a token.

        layer: 0 is the words, the highest one (also None) what the output reads. pool=last is what was known at a text's
        end; of layers that read both ways, at either end. A text without tokens has zeros.
        """
        if pool is not None and pool not in get_args(Pooling):
            raise UsageError(f"there is no pool {pool!r}", hint=f"pools: {', '.join(get_args(Pooling))}")
        many = as_texts(texts)
        found = list(self._encode_texts(many, layer=layer, pool=pool))
        if isinstance(texts, str):
            return found[0]
        return found if pool is None else np.stack(found) if found else self.encode([""], layer=layer, pool=pool)[:0]

    def encode_lines(
        self,
        sources: Sources,
        *,
        layer: int | None = None,
        pool: Pooling | None = "mean",
        errors: Errors | None = None,
    ) -> Iterator[tuple[str, Array]]:
        """Every line of some files and its vector (or its tokens' vectors), in order, a block of lines at a time.

        errors: as of `predict`; a line that is passed over is an empty one.
        """
        options = PredictOptions(errors=errors)
        reading = DataConfig.model_validate({"errors": self.record.data.errors, "skip_bad": False})
        for block in Reader(sources, options.reading(reading), on_bad=options.on_bad).blocks():
            lines = [line.decode() for line in block.split()]
            yield from zip(lines, self.encode(lines, layer=layer, pool=pool), strict=True)

    def foundation(self) -> Foundation:
        """Its words and cells, for a net of another task to begin with; an error where it has none to give."""
        where = self.directory or "this"
        raise UsageError(f"{where} holds a model for {self.record.task}, which is no foundation", hint=FOUNDATION_HINT)

    def _encode_row(self, text: str) -> Array:
        """A text as ids, without an end."""
        where = self.directory or "this"
        raise UsageError(
            f"{where} holds a model for {self.record.task} that is no net: it has no vectors",
            hint="nets have: elman train lm --model lstm, for one",
        )

    def _layer_vectors(self, rows: Sequence[Array]) -> list[LayerVectors]:
        """What each layer makes of every token of some rows, the words first."""
        net = getattr(self, "net", None)
        tokens, lengths = pad_all([np.append(row, EOS_ID) for row in rows] if self.reads_end else rows)
        found: list[LayerVectors] = net.vectors(tokens, lengths)  # type: ignore[union-attr]
        return found

    def _encode_texts(self, texts: Sequence[str], *, layer: int | None, pool: Pooling | None) -> list[Array]:
        import torch

        rows = [self._encode_row(text) for text in texts]
        filled = [i for i, row in enumerate(rows) if len(row)]
        found: dict[int, Array] = {}
        # where all are empty, one unknown word says how wide a vector is
        for chunk in like_length([len(rows[i]) for i in filled] or [1], tokens=READ_TOKENS):
            with torch.inference_mode():
                batch = [rows[filled[place]] for place in chunk] if filled else [self.unknown_row]
                chosen = _choose(self._layer_vectors(batch), layer, self.directory)
                values_BTD = chosen.values.transpose(0, 1).to(torch.float32).cpu().numpy()
                reads_back = None if chosen.reads_back is None else chosen.reads_back.cpu().numpy()
            for place, row, values_TD in zip(chunk, batch, values_BTD, strict=True):
                found[filled[place] if filled else -1] = pooled(values_TD[: len(row)], pool, reads_back)
        width = next(iter(found.values())).shape[-1]
        nothing = np.zeros((0, width) if pool is None else width, dtype=np.float32)
        return [found.get(i, nothing) for i in range(len(texts))]


def pooled(values_TD: Array, pool: Pooling | None, reads_back: Array | None = None) -> Array:
    """One vector for at least one token. reads_back (D,): numbers that come from the end, and are known at the beginning."""
    match pool:
        case None:
            return values_TD.copy()
        case "mean":
            return np.asarray(values_TD.mean(axis=0))
        case "max":
            return np.asarray(values_TD.max(axis=0))
        case "last":
            ends_D = values_TD[-1] if reads_back is None else np.where(reads_back, values_TD[0], values_TD[-1])
            return np.array(ends_D)


def nearest(vectors: Array, query: Array, count: int) -> list[tuple[int, float]]:
    """The rows most like a query by the cosine of the angle between them, the nearest first; zeros are like nothing."""
    sizes = np.linalg.norm(vectors, axis=1) * np.linalg.norm(query)
    cosines = (vectors @ query) / np.where(sizes > 0, sizes, 1.0)
    best = np.argsort(-cosines, kind="stable")[:count]
    return [(int(row), float(cosines[row])) for row in best]


def _choose(layers: Sequence[LayerVectors], layer: int | None, directory: Path | None) -> LayerVectors:
    number = len(layers) - 1 if layer is None else layer
    if not 0 <= number < len(layers):
        where = directory or "this model"
        raise UsageError(f"{where} has no layer {layer}", hint=f"layers: 0 (the words) to {len(layers) - 1}")
    if not layers[number].values.shape[-1]:
        raise UsageError(f"{directory or 'this model'} has no vectors: it is n-gram features alone")
    return layers[number]
