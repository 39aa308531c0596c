"""Texts as vectors, from any net: what its layers make of every token, and one vector for all of a text.

N texts · B rows of a batch · T tokens · D width of a layer
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, get_args

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError, UsageError
from elman.tasks.foundation import FOUNDATION_HINT, Foundation
from elman.text.readers import SKIP_HINT, Sources, TextLine, as_texts, read_texts
from elman.text.rows import like_length, pad_all
from elman.text.settings import Errors
from elman.text.units.vocabulary import EOS_ID, UNK_ID

if TYPE_CHECKING:
    from elman.nets.layer import LayerVectors

Pooling = Literal["last", "mean", "max"]
READ_TOKENS = 8000  # at once, padding counted
WINDOW = 2048  # tokens of one text that are read at once: a longer one is read in pieces
MARGIN = 256  # tokens read before and behind a piece by models that look ahead


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
            raise UsageError(
                f"there is no pool {pool!r}", code="bad-value", hint=f"pools: {', '.join(get_args(Pooling))}"
            )
        many = as_texts(texts)
        self.record.data.watch("\n".join(many))
        found = self._encode_rows([self._encode_row(text) for text in many], layer=layer, pool=pool)
        if isinstance(texts, str):
            return found[0]
        return found if pool is None else np.stack(found) if found else self.encode([""], layer=layer, pool=pool)[:0]

    def count_tokens(self, text: str) -> int:
        """The tokens of a text that vectors are made of."""
        return len(self._encode_row(text))

    def encode_lines(
        self,
        sources: Sources,
        *,
        layer: int | None = None,
        pool: Pooling | None = "mean",
        errors: Errors | None = None,
    ) -> Iterator[tuple[str, Array]]:
        """Every line of some files and its vector (or its tokens' vectors), in order, a block of lines at a time.

        Files are read as `predict` reads them, and `errors` are treated so; a line that is passed over is an empty one.
        """
        for lines in self._read_rows(sources, self.record.data.reading(errors)):
            vectors = self._encode_rows([row for _, row in lines], layer=layer, pool=pool)
            yield from zip((text for text, _ in lines), vectors, strict=True)

    def _read_rows(self, sources: Sources, reading: Any) -> Iterator[list[tuple[str, Any]]]:
        """The texts on the lines of some files, and each as `_encode_row` gives it, a block of lines at a time."""
        for lines in read_texts(sources, reading, separator=getattr(reading, "separator", None)):
            yield [self._read_row(line, reading) for line in lines]

    def _read_row(self, line: TextLine, reading: Any) -> tuple[str, Any]:
        try:
            return line.text, self._encode_row(line.text)
        except DataError as error:  # a reserved symbol
            if reading.skip_bad:
                return "", self._encode_row("")
            raise DataError(f"{line.place}: {error.what}", code=error.code, hint=f"{error.hint}; {SKIP_HINT}") from None

    def foundation(self) -> Foundation:
        """Its words and cells, for a net of another task to begin with; an error where it has none to give."""
        where = self.directory or "this"
        raise UsageError(
            f"{where} holds a model for {self.record.task}, which is no foundation",
            code="not-for-this-model",
            hint=FOUNDATION_HINT,
        )

    def _encode_row(self, text: str) -> Array:
        """A text as ids, without an end."""
        where = self.directory or "this"
        raise UsageError(
            f"{where} holds a model for {self.record.task} that is no net: it has no vectors",
            code="not-for-this-model",
            hint="nets have: elman train lm --model lstm, for one",
        )

    def _layer_vectors(self, rows: Sequence[Any]) -> list[LayerVectors]:
        """What each layer makes of every token of some rows, the words first."""
        net = getattr(self, "net", None)
        found: list[LayerVectors] = net.vectors(*pad_all(rows))  # type: ignore[union-attr]
        return found

    def _encode_rows(self, rows: Sequence[Any], *, layer: int | None, pool: Pooling | None) -> list[Array]:
        filled = [i for i, row in enumerate(rows) if 0 < len(row) <= WINDOW]
        found = {i: self._encode_long(row, layer, pool) for i, row in enumerate(rows) if len(row) > WINDOW}
        batches = [
            [filled[place] for place in chunk]
            for chunk in like_length([len(rows[i]) for i in filled], tokens=READ_TOKENS)
        ]
        for batch in batches:
            chosen = self._vectors([rows[i] for i in batch], layer)
            for i, values_TD in zip(batch, chosen.values, strict=True):
                found[i] = pooled(values_TD[: len(rows[i])], pool, chosen.reads_back)
        # where all are empty, one unknown word says how wide a vector is
        width = found[min(found)].shape[-1] if found else self._vectors([self.unknown_row], layer).values.shape[-1]
        nothing = np.zeros((0, width) if pool is None else width, dtype=np.float32)
        return [found.get(i, nothing) for i in range(len(rows))]

    def _encode_long(self, row: Any, layer: int | None, pool: Pooling | None) -> Array:
        """A text of which only a piece is in memory at a time."""
        total = _Pool(pool)
        for values_TD, reads_back in self._pieces(row, layer):
            total.add(values_TD, reads_back)
        return total.result()

    def _pieces(self, row: Any, layer: int | None) -> Iterator[tuple[Array, Array | None]]:
        """The vectors of a long text, so many tokens at a time.

        What reads onward alone carries its state from piece to piece; what looks ahead reads windows, each with some
        tokens before and behind it.
        """
        read_pieces = getattr(getattr(self, "net", None), "vector_pieces", None)
        if read_pieces is not None:
            for layers in read_pieces(row, WINDOW):
                chosen = _as_arrays(_choose(layers, layer, self.directory))
                yield chosen.values[0], chosen.reads_back
            return
        for begin in range(0, len(row), WINDOW - 2 * MARGIN):
            end, first = min(begin + WINDOW - 2 * MARGIN, len(row)), max(0, begin - MARGIN)
            chosen = self._vectors([row[first : end + MARGIN]], layer, is_whole=end + MARGIN >= len(row))
            yield chosen.values[0, begin - first : end - first], chosen.reads_back

    def _vectors(self, rows: Sequence[Any], layer: int | None, *, is_whole: bool = True) -> _Vectors:
        """What a layer makes of some rows. is_whole: they reach to the ends of their lines, which some nets read too."""
        import torch

        ended = [np.append(row, EOS_ID) for row in rows] if self.reads_end and is_whole else rows
        with torch.inference_mode():
            return _as_arrays(_choose(self._layer_vectors(ended), layer, self.directory))


class _Vectors(NamedTuple):
    """A layer's vectors of some rows, as arrays."""

    values: Array  # (B, T, D)
    reads_back: Array | None  # (D,)


def _as_arrays(chosen: LayerVectors) -> _Vectors:
    reads_back = None if chosen.reads_back is None else chosen.reads_back.cpu().numpy()
    return _Vectors(chosen.values.transpose(0, 1).float().cpu().numpy(), reads_back)


class _Pool:
    """One vector for the tokens of a text that come in pieces: what `pooled` gives for all of them at once."""

    def __init__(self, pool: Pooling | None) -> None:
        self._pool = pool
        self._num_tokens = 0
        self._parts: list[Array] = []  # of `pool` so far; with None, of every piece

    def add(self, values_TD: Array, reads_back: Array | None) -> None:
        """One more piece."""
        before, after = self._num_tokens, self._num_tokens + len(values_TD)
        self._num_tokens = after
        part = pooled(values_TD, self._pool, reads_back)
        if self._pool is None or not self._parts:
            self._parts.append(part)
        elif self._pool == "mean":
            share = np.float64(len(values_TD) / after)
            self._parts = [self._parts[0] + (part - self._parts[0]) * share]
        elif self._pool == "max":
            self._parts = [np.maximum(self._parts[0], part)]
        elif before and reads_back is not None:  # what comes from the end was known at the very first token
            self._parts = [np.where(reads_back, self._parts[0], part)]
        else:
            self._parts = [part]

    def result(self) -> Array:
        """Of all of them."""
        return np.concatenate(self._parts) if self._pool is None else self._parts[0].astype(np.float32)


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
        raise UsageError(
            f"{where} has no layer {layer}", code="bad-value", hint=f"layers: 0 (the words) to {len(layers) - 1}"
        )
    if not layers[number].values.shape[-1]:
        raise UsageError(
            f"{directory or 'this model'} has no vectors: it is n-gram features alone", code="not-for-this-model"
        )
    return layers[number]
