"""What models put into a gap of a text, and how many facts of a file they know (FACTS as LAMA asks for them)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from elman import charts
from elman.core.arrays import Array
from elman.core.errors import DataError, UsageError
from elman.explain.explanation import Explanation, Line, Span, bar, shorten, shown
from elman.explain.facts import Fact, by_relation, read_facts, relation_names
from elman.explain.filling import Filler
from elman.explain.kind import Kind, KindOptions, names_of
from elman.text.gaps import MASK, Gapped, read_gaps, same_mask, words_for_gap
from elman.text.units.vocabulary import UNK_ID

ROWS = 64  # sentences that are read at once
SIDE_BY_SIDE = 3  # models in a row of the drawing
AROUND = 80  # characters of a text on either side of its gap in the drawing
WORD, BAR = 13, 7  # characters of a word and of the longest bar there
MEASURES = {"p_at_1": "P@1", "p_at_10": "P@10", "mrr": "MRR"}
FORMATS = {"P@1": "~%", "P@10": "~%", "MRR": "~g"}


class ClozeOptions(KindOptions):
    """Settings of `cloze`."""

    best: int = Field(10, ge=1, le=1000, description="words that are shown for each gap")
    method: Literal["prefix", "sentence"] = Field(
        "prefix",
        description="how left-to-right models fill a gap: by what stands before it, or by the whole sentence with each word",
    )
    candidates: int = Field(
        100,
        ge=0,
        description="words tried with method=sentence, the best by what stands before; 0 is every common word",
    )
    facts: Path | None = Field(None, description="file of facts (LAMA's JSONL or relation, subject, object, sentence)")
    templates: Path | None = Field(None, description="file of templates with [X] and [Y], instead of facts' sentences")
    lower: bool = Field(False, description="read everything in lower case, for models of such text")


class Cloze(Kind[ClozeOptions]):
    """Words for a gap, ranked by several models over the words that all of them know; or P@1, P@10 and MRR on facts."""

    options = ClozeOptions
    compares = True
    needs_text = False

    def explain(self, models: Sequence[Any], texts: Sequence[str], options: ClozeOptions) -> Explanation:
        """The best words of each model, or with `facts` its numbers."""
        names = names_of(models)
        fillers = [model.filler() for model in models]
        if options.method == "sentence":
            for name, filler in zip(names, fillers, strict=True):
                if filler.sentence_log_probs is None:
                    what = f"{name} reads both sides of a gap"
                    raise UsageError(what, code="does-not-apply", hint="method=sentence is for left-to-right models")
        if options.templates is not None and options.facts is None:
            raise UsageError("templates are for facts", code="does-not-apply", hint="give facts=FILE too")
        if options.facts is not None:
            if texts:
                raise UsageError(
                    "there are a text and a file of facts", code="options-conflict", hint="give one of them"
                )
            return _explain_facts(names, fillers, options)
        if not texts:
            raise UsageError("cloze needs a text", code="missing-option", hint="give one with a [MASK], or facts=FILE")
        return _explain_texts(names, fillers, texts, options)


class _Common:
    """The words that every model can write in a gap (Petroni et al. 2019: only those are compared)."""

    def __init__(self, fillers: Sequence[Filler]) -> None:
        self._fillers = fillers
        self._found: dict[bool, tuple[dict[str, int], list[Array]]] = {}

    def at(self, text: Gapped) -> tuple[Mapping[str, int], list[Array]]:
        """Their places in the list of common words, and for each model their ids, for the first gap of a text."""
        is_spaced = text.is_spaced[0]
        if is_spaced not in self._found:
            words = [words_for_gap(filler.tokenizer, is_spaced=is_spaced) for filler in self._fillers]
            common = [word for word in words[0] if all(word in others for others in words[1:])]
            if not common:
                raise DataError(
                    "the models have no word in common", code="models-differ", hint="compare models with like units"
                )
            ids = [np.array([known[word] for word in common]) for known in words]
            self._found[is_spaced] = {word: place for place, word in enumerate(common)}, ids
        return self._found[is_spaced]


def _prepared(text: str, options: ClozeOptions) -> str:
    """With gaps as `<mask>`, and in lower case if that is wanted."""
    text = same_mask(text)
    return MASK.join(part.lower() for part in text.split(MASK)) if options.lower else text


# --------------------------------------------------------------------------------------------------------------- texts


def _explain_texts(
    names: Sequence[str], fillers: Sequence[Filler], texts: Sequence[str], options: ClozeOptions
) -> Explanation:
    common = _Common(fillers)
    found = [_fill(_prepared(text, options), names, fillers, common, options) for text in texts]
    lists = {
        (one["model"] if len(texts) == 1 else f"{one['model']}: {row['text'][:40]}"): [
            (shown(word["word"]), word["log_prob"]) for word in one["words"]
        ]
        for row in found
        for one in row["models"]
    }
    title = "What stands in the gap" if len(texts) > 1 else texts[0][:90]
    return Explanation(
        kind="cloze",
        title=title,
        data={"method": options.method, "texts": found},
        picture=charts.ranked_bars(lists, title=title, subtitle="log-probabilities beside the bars"),
        drawing=[line for row in found for line in _draw_text(row)],
        notes=_text_notes(found, fillers, options),
    )


def _fill(
    text: str, names: Sequence[str], fillers: Sequence[Filler], common: _Common, options: ClozeOptions
) -> dict[str, Any]:
    """The best words of every model for the first gap of a text."""
    rows = []
    num_common = 0
    for place, (name, filler) in enumerate(zip(names, fillers, strict=True)):
        gapped = read_gaps(text, filler.tokenizer)
        places, ids = common.at(gapped)
        num_common = len(places)
        words, model_ids = list(places), ids[place]
        log_probs = filler.log_probs([gapped])[0][model_ids].astype(np.float64)
        order = np.argsort(-log_probs, kind="stable")
        tried = None
        if options.method == "sentence":
            order = order[: options.candidates or None]
            assert filler.sentence_log_probs is not None
            whole = filler.sentence_log_probs(gapped, model_ids[order])
            tried, order = len(order), order[np.argsort(-whole, kind="stable")]
            log_probs = np.full(len(words), -np.inf)
            log_probs[order] = np.sort(whole)[::-1]
        best = [
            {"word": words[i], "log_prob": round(float(log_probs[i]), 6) if math.isfinite(log_probs[i]) else None}
            for i in order[: options.best]
        ]
        unknown = int(np.count_nonzero(gapped.ids == UNK_ID))
        rows.append({"model": name, "how": filler.how, "unknown": unknown, "words": best})
        if tried is not None:
            rows[-1] |= {"how": "whole sentence", "candidates": tried}
    return {"text": text, "common_words": num_common, "models": rows}


def _text_notes(found: Sequence[Mapping[str, Any]], fillers: Sequence[Filler], options: ClozeOptions) -> list[str]:
    notes = []
    if len(fillers) > 1:
        notes.append(f"ranked are the {found[0]['common_words']:,} words that all models know")
    for row in found:
        for one in row["models"]:
            if one["unknown"]:
                notes.append(f"{one['model']} does not know {one['unknown']} of the words around the gap")
        if row["text"].count(MASK) > 1:
            notes.append("only the first gap is looked at; the others are unknown words, or hidden too")
    if options.method == "sentence":
        tried = found[0]["models"][0]["candidates"]
        best = f"the {tried:,} best by what stands before the gap" if options.candidates else "every common word"
        notes.append(f"log-probabilities are those of the whole sentence; tried were {best}")
    elif any(filler.sentence_log_probs is not None for filler in fillers) and any(
        row["text"].split(MASK, 1)[1].strip(" .") for row in found
    ):
        notes.append("left-to-right models read only what stands before the gap (method=sentence reads all of it)")
    if any("two directions" in filler.how for filler in fillers):
        notes.append("the mean of two directions' log-probabilities is no probability: it does not sum to one")
    return list(dict.fromkeys(notes))


def _draw_text(row: Mapping[str, Any]) -> list[Line]:
    """Models side by side, a line a rank."""
    lines: list[Line] = [[Span(_around_gap(row["text"]))]]
    width = 3 + WORD + 10 + BAR
    for first in range(0, len(row["models"]), SIDE_BY_SIDE):
        some = row["models"][first : first + SIDE_BY_SIDE]
        lines.append([Span(f"{one['model'][: width - 2]:<{width}}") for one in some])
        lines.append([Span(f"{'(' + one['how'][: width - 4] + ')':<{width}}") for one in some])
        for rank in range(max(len(one["words"]) for one in some)):
            line = []
            for one in some:
                if rank >= len(one["words"]):
                    line.append(Span(" " * width))
                    continue
                word, best = one["words"][rank], one["words"][0]["log_prob"]
                number = word["log_prob"]
                share = 0.0 if number is None or best is None else math.exp(number - best)
                text = f"{rank + 1:>2} {shown(word['word'])[:WORD]:<{WORD}}"
                line += [
                    Span(text, share * 0.8),
                    Span(f" {'never' if number is None else f'{number:.3f}':>8} {bar(share, BAR):<{BAR}}"),
                ]
            lines.append(line)
    return [*lines, [Span("")]] if len(row["models"]) > SIDE_BY_SIDE else lines


def _around_gap(text: str) -> str:
    """A text that fits into a line or two; of a longer one what stands next to its first gap."""
    before, mask, behind = text.partition(MASK)
    if len(before) > AROUND:
        before = "…" + before[-AROUND:]
    return before + mask + shorten(behind, AROUND)


# --------------------------------------------------------------------------------------------------------------- facts


def _explain_facts(names: Sequence[str], fillers: Sequence[Filler], options: ClozeOptions) -> Explanation:
    assert options.facts is not None
    given = read_facts(options.facts, options.templates)
    common = _Common(fillers)
    facts, left_out = _askable(given, fillers, common, options)
    if not facts:
        what = f"nothing of {options.facts} can be asked: {_said(left_out)}"
        raise DataError(
            what, code="no-known-word", hint="lower=true reads everything in lower case, for models of such text"
        )
    rows: list[dict[str, Any]] = []
    for place, (name, filler) in enumerate(zip(names, fillers, strict=True)):
        ranks = _ranks(facts, filler, common, place, options)
        rows.append({"model": name, "how": filler.how, **by_relation(facts, ranks)})
    called = {} if options.templates is None else relation_names(options.templates)
    names_of_all = {relation: f"{relation} {called.get(relation, '')}".strip() for relation in rows[0]["relations"]}
    bars = [
        {
            "relation": names_of_all.get(relation, relation),
            "model": row["model"],
            **{MEASURES[key]: numbers[key] for key in MEASURES},
        }
        for row in rows
        for relation, numbers in [("all", row), *row["relations"].items()]
    ]
    num_common = len(common.at(read_gaps(facts[0].sentence, fillers[0].tokenizer))[0])
    notes = [f"{len(facts):,} of {len(given):,} facts were asked, over {num_common:,} common words"]
    notes += [f"left out: {_said(left_out)}"] if any(left_out.values()) else []
    if options.method == "sentence" and options.candidates:
        notes.append(
            f"whole sentences rank the {options.candidates:,} best by what stands before; others follow as they were"
        )
    title = f"Facts of {options.facts.name}"
    return Explanation(
        kind="cloze",
        title=title,
        data={
            "method": options.method,
            "facts": len(given),
            "asked": len(facts),
            "common_words": num_common,
            "left_out": left_out,
            "names": called,
            "models": rows,
        },
        picture=charts.grouped_bars(bars, title=title, down="relation", measures=FORMATS, colour="model"),
        drawing=_draw_facts(rows, names_of_all),
        notes=notes,
    )


def _askable(
    facts: Sequence[Fact], fillers: Sequence[Filler], common: _Common, options: ClozeOptions
) -> tuple[list[Fact], dict[str, int]]:
    """Facts with a gap whose object is one common word; how many were left out, and why."""
    kept, left_out = [], {"no_gap": 0, "object_not_one_common_word": 0}
    for fact in facts:
        answer, sentence = (fact.object.lower() if options.lower else fact.object), _prepared(fact.sentence, options)
        if not sentence:
            left_out["no_gap"] += 1
        elif answer not in common.at(read_gaps(sentence, fillers[0].tokenizer))[0]:
            left_out["object_not_one_common_word"] += 1
        else:
            kept.append(Fact(fact.relation, answer, sentence))
    return kept, left_out


def _ranks(facts: Sequence[Fact], filler: Filler, common: _Common, place: int, options: ClozeOptions) -> Array:
    """The rank of every right answer among the common words; of equally likely ones it is the last. -> (N,)"""
    ranks = np.zeros(len(facts), dtype=np.int64)
    gapped = [read_gaps(fact.sentence, filler.tokenizer) for fact in facts]
    order = sorted(range(len(facts)), key=lambda number: len(gapped[number].ids))
    for first in range(0, len(order), ROWS):
        some = order[first : first + ROWS]
        for number, row in zip(some, filler.log_probs([gapped[number] for number in some]), strict=True):
            places, ids = common.at(gapped[number])
            log_probs, right = row[ids[place]], places[facts[number].object]
            ranks[number] = np.count_nonzero(log_probs >= log_probs[right])
            if options.method == "sentence":
                best = np.argsort(-log_probs, kind="stable")[: options.candidates or None]
                if right in best:
                    assert filler.sentence_log_probs is not None
                    whole = filler.sentence_log_probs(gapped[number], ids[place][best])
                    ranks[number] = np.count_nonzero(whole >= whole[best == right][0])
    return ranks


def _said(left_out: Mapping[str, int]) -> str:
    words = {
        "no_gap": "have no sentence with a gap",
        "object_not_one_common_word": "have an object that is not one common word",
    }
    return ", ".join(f"{count:,} {words[why]}" for why, count in left_out.items() if count)


def _draw_facts(rows: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> list[Line]:
    width = max(8, *(len(row["model"]) for row in rows))
    relation_width = max(8, *(len(name) for name in names.values()))
    heading = f"{'':{width}} {'relation':<{relation_width}} {'facts':>7} " + " ".join(
        f"{name:>7}" for name in MEASURES.values()
    )
    lines: list[Line] = [[Span(heading)]]
    for row in rows:
        for relation, numbers in [("all", row), *row["relations"].items()]:
            values = " ".join(f"{numbers[key]:>7.1%}" if key != "mrr" else f"{numbers[key]:>7.4f}" for key in MEASURES)
            name = row["model"] if relation == "all" else ""
            called = names.get(relation, relation)
            lines.append(
                [
                    Span(f"{name:<{width}} {called:<{relation_width}} {numbers['facts']:>7,} {values}  "),
                    Span(bar(numbers["p_at_1"], 20)),
                ]
            )
    return lines
