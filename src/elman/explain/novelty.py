"""Which stretches of a text, or of what a model writes, stand in its training text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from elman import charts
from elman.core.arrays import Array
from elman.explain.explanation import Explanation, Line, Span, bar
from elman.explain.kind import Kind, KindOptions
from elman.explain.reading import refuse_empty
from elman.text.index import Match, TextIndex, copied_shares

LEAST_WORDS, LEAST_LETTERS = 5, 25  # tokens of a span that is marked, for units of words and of letters
ORDERS = 10  # n-grams are looked for up to so many tokens
LONGEST = 5_000  # tokens that are looked at
ACROSS = 96  # characters of a line
SHADE = 0.5
LISTED = 20  # spans that are listed in the drawing


class NoveltyOptions(KindOptions):
    """Settings of `novelty`."""

    data: Path | None = Field(None, description="text that is searched; the model's training text if not given")
    least: int | None = Field(
        None,
        ge=1,
        description=f"tokens of a copied span, at least; {LEAST_WORDS}, of letters {LEAST_LETTERS} if not given",
    )
    tokens: int = Field(200, ge=1, le=LONGEST, description="tokens that the model writes where no text is given")
    temperature: float = Field(1.0, ge=0, description="of what the model writes")


class Novelty(Kind[NoveltyOptions]):
    """The longest match in the training text at every token, spans that are copied, and the share of copied n-grams."""

    options = NoveltyOptions
    needs_text = False

    def explain(self, models: Sequence[Any], texts: Sequence[str], options: NoveltyOptions) -> Explanation:
        """Of the text, or of what the model writes."""
        model = models[0].language_model()
        index = model.training_index(options.data)
        notes = []
        if not texts:
            texts = [model.generate(tokens=options.tokens, temperature=options.temperature, seed=options.seed)]
            notes.append(f"written by the model, seed {options.seed}")
        ids = model.tokenizer.encode_text("\n".join(texts))
        refuse_empty(ids.tolist())
        if len(ids) > LONGEST:
            notes.append(f"looked at are the first {LONGEST:,} of {len(ids):,} tokens")
        if len(ids) > charts.MAX_PIECES:
            notes.append(f"a picture shows the first {charts.MAX_PIECES} tokens")
        found = look_for(index, model, ids[:LONGEST], least=options.least)
        unknown = sum(bool(model.is_unknown(token)) for token in ids[:LONGEST].tolist())
        notes += [f"{unknown} of the tokens are unknown, so they stand nowhere"] if unknown else []
        title = f"What stands in the training text ({len(index.ids):,} tokens)"
        return Explanation(
            kind="novelty",
            title=title,
            data={"tokens": found.tokens(), **found.as_json()},
            picture=charts.copied_text(
                found.pieces,
                is_copied=found.is_copied().tolist(),
                shares=found.shares,
                title=title,
                least=found.least,
            ),
            drawing=_draw(found),
            notes=notes,
        )


@dataclass(frozen=True)
class Copied:
    """What of a text stands in another one."""

    pieces: Sequence[str]  # what each token adds to the text
    longest: Array  # how many tokens from each on stand there
    matches: Sequence[Match]  # spans of at least so many tokens, none over another
    shares: Sequence[dict[str, float | int]]  # of n-grams
    least: int

    def is_copied(self) -> Array:
        """Whether a token is in a span. -> (T,)"""
        found = np.zeros(len(self.pieces), dtype=bool)
        for match in self.matches:
            found[match.begin : match.end] = True
        return found

    def tokens(self) -> list[dict[str, Any]]:
        """Every token, and how many from it on stand there."""
        return [
            {"token": piece, "longest": int(length)} for piece, length in zip(self.pieces, self.longest, strict=True)
        ]

    def as_json(self) -> dict[str, Any]:
        """Spans and shares."""
        spans = [
            {
                **{"begin": one.begin, "end": one.end, "line": one.line, "times": one.times},
                "text": "".join(self.pieces[one.begin : one.end]).strip(" "),
            }
            for one in self.matches
        ]
        return {
            "least": self.least,
            "spans": spans,
            "copied_share": float(self.is_copied().mean()) if len(self.pieces) else None,
            "ngrams": list(self.shares),
        }

    def marked(self) -> list[Span]:
        """The text, its copied spans between « and » and shaded. The marks stand beside words, not beside ends of lines."""
        spans = [range(one.begin, one.end) for one in self.matches]
        written = [[place for place in span if self.pieces[place].strip()] or list(span) for span in spans]
        begins, ends = {some[0] for some in written}, {some[-1] for some in written}
        is_copied = self.is_copied()
        found = []
        for place, piece in enumerate(self.pieces):
            word = piece.lstrip(" ")
            found.append(Span(piece[: len(piece) - len(word)]))
            text = ("«" if place in begins else "") + word + ("»" if place in ends else "")
            found.append(Span(text, SHADE if is_copied[place] else 0.0))
        return found


def look_for(index: TextIndex, model: Any, ids: Array, *, least: int | None = None) -> Copied:
    """What of some ids stands in an indexed text."""
    if least is None:
        least = LEAST_LETTERS if model.tokenizer.units in ("char", "byte") else LEAST_WORDS
    longest = index.longest(ids)
    matches = list(index.matches(longest, ids, least=least))
    return Copied(model.pieces(ids), longest, matches, copied_shares(longest, orders=ORDERS), least)


def lines_of(spans: Sequence[Span], *, width: int | None = None) -> list[Line]:
    """Spans cut into lines at newlines; and before the word that would pass a width."""
    lines: list[list[Span]] = [[]]
    used = 0
    for span in spans:
        for number, part in enumerate(span.text.split("\n")):
            if number or (width is not None and used + len(part) > width and part.strip()):
                lines.append([])
                used = 0
            if part and (used or part.strip()):
                lines[-1].append(Span(part, span.shade))
                used += len(part)
    return list(lines)


def _draw(found: Copied) -> list[Line]:
    lines = lines_of(found.marked(), width=ACROSS)
    share = found.as_json()["copied_share"]
    in_spans = f"{share:.0%} of {len(found.pieces):,} tokens are in «spans» of {found.least} or more"
    lines += [[Span("")], [Span(f"{in_spans} that stand in the training text")]]
    spans = sorted(found.as_json()["spans"], key=lambda one: one["begin"] - one["end"])
    for one in spans[:LISTED]:
        times = "once" if one["times"] == 1 else f"{one['times']:,} times"
        start = f"{one['end'] - one['begin']:>5} tokens, {times}, first in line {one['line']:,}: "
        text = one["text"].replace("\n", "↵")
        lines.append(
            [Span(start), Span(text if len(start + text) <= ACROSS else text[: ACROSS - len(start) - 1] + "…")]
        )
    lines += [[Span(f"      and {len(spans) - LISTED} more")]] if len(spans) > LISTED else []
    for row in found.shares:
        name = f"{row['order']}-grams"
        lines.append([Span(f"{name:>8} copied {row['share']:>6.1%} {bar(float(row['share']), 40)}")])
    return lines
