"""How often words follow each other in a text, beside what a model makes of it; and how much of another text is new.

W words · N n-grams
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from elman import charts
from elman.core.arrays import Array
from elman.explain.explanation import Explanation, Line, Span, bar, shown
from elman.explain.kind import Kind, KindOptions, name_of
from elman.explain.reading import refuse_empty
from elman.text.units.vocabulary import EOS_ID, UNK, UNK_ID

ORDERS = 5
LABEL = 12  # characters of a word at the left
ACROSS = 96  # characters of a line


class CountsOptions(KindOptions):
    """Settings of `counts`."""

    data: Path | None = Field(None, description="text that is counted; the model's training text if not given")
    other: Path | None = Field(
        None, description="text whose n-grams are looked for in it; the model's validation text if not given"
    )
    words: int = Field(10, ge=1, le=100, description="different words of the table, at most")


class Counts(Kind[CountsOptions]):
    """The bigram table of a few words, raw and as the model smooths it, and the share of unseen n-grams by order."""

    options = CountsOptions

    def explain(self, models: Sequence[Any], texts: Sequence[str], options: CountsOptions) -> Explanation:
        """Rows are words, columns the words that may follow."""
        model = models[0].language_model()
        read = model.tokenizer.encode_text("\n".join(texts))
        ids = np.array(list(dict.fromkeys(read[read != EOS_ID].tolist())), dtype=np.int64)
        refuse_empty(ids.tolist())
        left_out, ids = len(ids) - len(ids[: options.words]), ids[: options.words]
        training = model.training_text(options.data)
        words = [UNK if i == UNK_ID else shown(model.tokenizer.decode([int(i)])) for i in ids]
        counts_WW, totals_W = count_bigrams(training.ids, ids)
        probs_WW = _probabilities(model, ids)
        other = model.read_ids(options.other) if options.other is not None else training.heldout_ids
        unseen = [] if other is None else unseen_shares(training.ids, other, vocab_size=model.tokenizer.vocab_size)
        notes = [f"counted in {training.where}: {len(training.ids):,} tokens", *training.notes]
        notes.append("probabilities are those after the word at the beginning of a line")
        notes += [f"{left_out} more words were left out (words={options.words})"] if left_out else []
        if UNK_ID in ids:
            notes.append(f"words that the model does not know are one word, {UNK}")
        if other is None:
            notes.append("no second text is known: other=FILE gives one whose n-grams are looked for")
        title = f"How often words follow each other in {Path(training.where).name}"
        return Explanation(
            kind="counts",
            title=title,
            data={
                "words": words,
                "counts": counts_WW.tolist(),
                "totals": totals_W.tolist(),
                "probabilities": [[float(f"{p:.6g}") for p in row] for row in probs_WW.tolist()],
                "zero_share": float((counts_WW == 0).mean()),
                "unseen": unseen,
            },
            picture=charts.count_tables(
                counts_WW.tolist(), probs_WW.tolist(), words=words, unseen=unseen, title=title, model=name_of(models[0])
            ),
            drawing=_draw(words, counts_WW, totals_W, probs_WW, unseen, name_of(models[0])),
            notes=notes,
        )


def count_bigrams(ids: Array, words: Array) -> tuple[Array, Array]:
    """How often each word stands directly before each, and how often it stands at all. -> (W, W), (W,)"""
    places = np.full(max(int(ids.max(initial=0)), int(words.max())) + 1, -1)
    places[words] = np.arange(len(words))
    found = places[ids]
    pairs = np.flatnonzero((found[:-1] >= 0) & (found[1:] >= 0))
    flat = np.bincount(found[pairs] * len(words) + found[pairs + 1], minlength=len(words) ** 2)
    return flat.reshape(len(words), len(words)), np.bincount(found[found >= 0], minlength=len(words))


def unseen_shares(data: Array, text: Array, *, vocab_size: int) -> list[dict[str, Any]]:
    """Of the n-grams of a text, those within a line and its end, how many are never in the data: for orders 1 to 5."""
    both = np.concatenate([data, text]).astype(np.int64)
    is_text = np.arange(len(both)) >= len(data)
    codes, is_within = both, np.ones(len(both), dtype=bool)  # of the n-gram that begins at each place
    found = []
    for order in range(1, ORDERS + 1):
        if order > 1:
            is_within = (
                is_within[:-1] & (both[order - 2 : -1] != EOS_ID) & ~(is_text[order - 1 :] & ~is_text[: 1 - order])
            )
            codes = np.unique(codes[:-1] * vocab_size + both[order - 1 :], return_inverse=True)[1]
        begins_in_text = is_text[: len(codes)]
        asked = codes[is_within & begins_in_text]
        unseen = int(np.count_nonzero(~np.isin(asked, codes[is_within & ~begins_in_text])))
        share = unseen / len(asked) if len(asked) else None
        found.append({"order": order, "ngrams": len(asked), "unseen": unseen, "share": share})
    return found


def _probabilities(model: Any, ids: Array) -> Array:
    """p(next | word), each word read at the beginning of a line. -> (W, W)"""
    rows = [np.exp(model.lm.predict(model.after(int(word), model.start()))[0][ids].astype(np.float64)) for word in ids]
    return np.stack(rows)


def _draw(
    words: Sequence[str], counts: Array, totals: Array, probs: Array, unseen: Sequence[dict[str, Any]], name: str
) -> list[Line]:
    width = max(7, min(12, (ACROSS - LABEL - 8) // len(words) - 1))
    num_columns = max(1, (ACROSS - LABEL - 8) // (width + 1))
    lines: list[Line] = [[Span(f"times the column follows the row, [0] for never; below, p(column | row) of {name}")]]
    for first in range(0, len(words), num_columns):
        some = range(first, min(first + num_columns, len(words)))
        heading = "".join(f" {words[column][:width]:>{width}}" for column in some)
        lines.append([Span(f"{'':{LABEL}} {'total':>7}{heading}")])
        for row, word in enumerate(words):
            cells = [_count_span(int(counts[row, column]), int(counts.max()), width) for column in some]
            lines.append([Span(f"{word[:LABEL]:<{LABEL}} {int(totals[row]):>7,}"), *cells])
            lines.append(
                [
                    Span(
                        " " * (LABEL + 8)
                        + "".join(f" {charts.short(float(probs[row, column])):>{width}}" for column in some)
                    )
                ]
            )
    if unseen:
        lines.append([Span("n-grams of the other text that are never here")])
        lines += [
            [
                Span(
                    f"{one['order']}-grams  {one['share'] or 0:>6.1%} of {one['ngrams']:>9,}  {bar(one['share'] or 0, 40)}"
                )
            ]
            for one in unseen
        ]
    return lines


def _count_span(count: int, highest: int, width: int) -> Span:
    if not count:
        return Span(f" {'[0]':>{width}}", -0.4)
    return Span(f" {count:>{width},}", 0.1 + 0.7 * np.log1p(count) / np.log1p(highest))
