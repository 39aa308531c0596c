"""How surprised a language model is by each token of a text, and what it would have preferred."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import Field

from elman import pictures
from elman.core.arrays import Array
from elman.explain.explanation import Explanation, Line, Span, bar, shown
from elman.explain.kind import Explainable, Kind, KindOptions, names_of
from elman.lm.protocol import refuse_nan
from elman.lm.shaping import likeliest

BAR = 24  # characters of the longest bar
PICTURE_TOKENS = 200  # tokens that stand side by side in a picture


class SurprisalOptions(KindOptions):
    """Settings of `surprisal`."""

    preferred: int = Field(3, ge=1, le=100, description="likeliest tokens that are named at each place")
    tokens: int = Field(2000, ge=1, le=100_000, description="of a longer text only the first so many tokens are read")


class Surprisal(Kind[SurprisalOptions]):
    """Nats per token; of mixtures the share of each member, of n-grams the order that answered."""

    options = SurprisalOptions
    compares = True

    def explain(self, models: Sequence[Any], texts: Sequence[str], options: SurprisalOptions) -> Explanation:
        """One line a token."""
        text = "\n".join(texts)
        found = [_surprisal(model, text, options) for model in models]
        names = names_of(models)
        rows = [
            {"place": place, "token": shown(row["token"]), "nats": row["nats"], "model": name}
            for name, one in zip(names, found, strict=True)
            for place, row in enumerate(one["tokens"][:PICTURE_TOKENS])
        ]
        title = f"Surprisal of “{text[:60]}”"
        notes = [
            f"{name}: only the first {len(one['tokens']):,} tokens were read (tokens={options.tokens})"
            for name, one in zip(names, found, strict=True)
            if one.pop("is_cut")
        ]
        num_tokens = len(found[0]["tokens"])
        notes += [f"a picture has the first {PICTURE_TOKENS} tokens"] if num_tokens > PICTURE_TOKENS else []
        unknown = sum(row["unknown"] for row in found[0]["tokens"])
        notes += [f"{unknown} of the tokens are unknown to {names[0]}"] if unknown else []
        return Explanation(
            kind="surprisal",
            title=title,
            data={"models": [{"model": name, **one} for name, one in zip(names, found, strict=True)]},
            picture=pictures.token_bars(
                rows, tokens=[row["token"] for row in rows[: min(num_tokens, PICTURE_TOKENS)]], title=title
            ),
            drawing=[line for name, one in zip(names, found, strict=True) for line in _draw(name, one)],
            notes=notes,
        )


def _surprisal(model: Explainable, text: str, options: SurprisalOptions) -> dict[str, Any]:
    """Every token, its nats and what would have been likelier."""
    language_model = model.language_model()
    read = language_model.trace(text, most=options.tokens)
    nats = -refuse_nan(read.trace.log_probs).astype(np.float64)
    orders, shares = (read.trace.arrays.get(name) for name in ("orders", "shares"))
    best = _preferred(language_model, read.ids, options.preferred)
    rows = []
    for place, token in enumerate(read.tokens):
        row: dict[str, Any] = {
            "token": token,
            "nats": round(float(nats[place]), 6) if math.isfinite(nats[place]) else None,
            "unknown": bool(language_model.is_unknown(read.ids[place])),
            "preferred": best[place],
        }
        if orders is not None:
            row["order"] = int(orders[place])
        if shares is not None:
            row["shares"] = [round(float(share), 4) for share in shares[place]]
        rows.append(row)
    mean = float(nats.mean())
    found: dict[str, Any] = {"tokens": rows, "perplexity": math.exp(mean) if mean < 709 else None}
    found["is_cut"] = len(read.ids) < len(language_model.ids_of(text))
    if shares is not None:
        found["members"] = language_model.member_names()
    return found


def _preferred(model: Any, ids: Array, count: int) -> list[list[tuple[str, float]]]:
    """The likeliest tokens at each place and their probabilities."""
    state, found = model.start(), []
    for place, token in enumerate(ids.tolist()):
        log_probs = model.lm.predict(state)[0]
        best = likeliest(log_probs, count)
        found.append([(model.symbol(int(i), ids[:place]), round(math.exp(float(log_probs[i])), 6)) for i in best])
        state = model.after(token, state)
    return found


def _draw(name: str, found: dict[str, Any]) -> list[Line]:
    rows = found["tokens"]
    highest = max([row["nats"] for row in rows if row["nats"] is not None], default=1.0) or 1.0
    width = max([len(shown(row["token"])) for row in rows], default=1)
    perplexity = found["perplexity"]
    lines: list[Line] = [[Span(f"{name}: perplexity {'infinite' if perplexity is None else f'{perplexity:.4g}'}")]]
    for row in rows:
        share = 1.0 if row["nats"] is None else row["nats"] / highest
        nats = "    inf" if row["nats"] is None else f"{row['nats']:7.3f}"
        best = ", ".join(f"{shown(token)} {probability:.3f}" for token, probability in row["preferred"])
        order = f" order {row['order']} " if "order" in row else ""
        member = ""
        if "shares" in row:
            most = int(np.argmax(row["shares"]))
            member = f" {found['members'][most]} {row['shares'][most]:.0%} "
        mark = "?" if row["unknown"] else " "
        lines.append(
            [
                Span(f"{shown(row['token']):>{width}}{mark}", share),
                Span(f" {nats} {bar(share, BAR):<{BAR}}{order}{member}  {best}"),
            ]
        )
    return lines
