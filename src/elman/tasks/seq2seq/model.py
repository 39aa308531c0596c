"""A model of pairs: a line in, a line out. Searches, copies unknown words through attention, and measures itself."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import model_validator

from elman import pictures
from elman.core.arrays import Array
from elman.core.errors import DataError, UsageError
from elman.explain.kind import OF_WORDS, of_cells
from elman.explain.reading import AttentionMap, Reading
from elman.lm.search import Hypothesis, beam_search
from elman.store import LabelRecord
from elman.tasks.base import EvaluateOptions, NetModel, PredictOptions, ShouldStop
from elman.tasks.exported import Exported
from elman.tasks.measuring import part_notes, rows_in_time
from elman.tasks.seq2seq.assets import Tokenizers
from elman.tasks.seq2seq.config import PairsConfig, Seq2SeqConfig
from elman.tasks.seq2seq.data import MAX_LENGTH, PairBatches, encode_pairs
from elman.tasks.seq2seq.exporting import export_translator
from elman.tasks.seq2seq.inside import PairReading, symbols
from elman.tasks.seq2seq.metrics import Marks, Written
from elman.tasks.seq2seq.reading import read_only_sources, read_pairs
from elman.tasks.seq2seq.translations import BEAM, LENGTH_PENALTY, SearchOptions, Translation, Translations
from elman.tasks.word_vectors import written_words
from elman.text.batches import one_pass
from elman.text.columns import join_columns
from elman.text.readers import Sources, as_texts
from elman.text.rows import pad_all
from elman.text.tables import Pairs
from elman.text.units.forms import normalize
from elman.text.units.surfaces import surfaces
from elman.text.units.vocabulary import EOS_ID, UNK, UNK_ID

SEARCH_ROWS = 320  # hypotheses (sources times beam width) decoded in one batch
SCORE_TOKENS = 4000
MAX_LOGITS = 4_000_000  # logits a decoding step may hold in memory, over the whole batch


class Seq2SeqRecord(LabelRecord[PairsConfig, Seq2SeqConfig]):
    """The record of a model of pairs."""

    @model_validator(mode="before")
    @classmethod
    def _wired_as_it_was(cls, values: Any) -> Any:
        """Models and runs of version 0.1.0 with context=fixed: their sum reaches the output alone, and no record says so."""
        model = values.get("model") if isinstance(values, dict) else None
        if isinstance(model, dict) and model.get("context") == "fixed":
            return values | {"model": {"fixed_reaches": "output"} | model}
        return values


class Translator(NetModel[Seq2SeqRecord, Tokenizers]):
    """Encoder and decoder with their tokenizers."""

    predict_takes = frozenset(
        {"beam", "n_best", "length_penalty", "prefix", "max_tokens", "alignments", "keep_unknown", "truncate"}
    )
    evaluate_takes = frozenset({"beam", "targets"})

    def __init__(self, record: Seq2SeqRecord, assets: Tokenizers, net: Any, directory: Path | None = None) -> None:
        super().__init__(record, assets, net, directory)
        self.source, self.target = assets
        self.data = record.data
        self.config = record.model

    def exported(self) -> Exported:
        """An encoder, and the decoder's step."""
        return export_translator(self)

    def vocabulary(self) -> str:
        """The symbols of both sides."""
        sides = (f"{side.vocab_size:,} ({side.units})" for side in (self.source, self.target))
        return f"{' to '.join(sides)} symbols"

    # ---------------------------------------------------------------------------------------------------- translating

    def predict(
        self,
        text: str | Sequence[str],
        *,
        beam: int = BEAM,
        length_penalty: float = LENGTH_PENALTY,
        prefix: str = "",
        max_tokens: int | None = None,
    ) -> Any:
        """The best target of a source, or a list of them for a list of sources."""
        options = SearchOptions(beam=beam, length_penalty=length_penalty, prefix=prefix, max_tokens=max_tokens)
        found = self.translate([self.source_text(line) for line in as_texts(text)], options)
        return found[0][0].text if isinstance(text, str) else [best[0].text for best in found]

    def _predict_lines(self, sources: Sources, options: PredictOptions) -> Iterator[Translations]:
        """The targets of every line; a blank line's target is blank."""
        searching = self._search_options(options)
        number = 0
        for lines in read_only_sources(sources, self.data.reading(options.errors)):
            texts, places = [line.text or "" for line in lines], [line.place for line in lines]
            for text, best in zip(texts, self.translate(texts, searching, places=places), strict=True):
                number += 1
                yield Translations(number, text, best, options)

    reads_end = True

    def _encode_row(self, text: str) -> Array:
        """A source as ids; of one that is too long the beginning."""
        return self._source_row(self.source_text(text.replace("\n", " ")))

    def _source_row(self, source: str, place: str = "the source") -> Array:
        source = normalize(source, self.data.normalize).strip()
        return self._encode(source, place, SearchOptions(truncates=True))[0][:-1]

    def _read_rows(self, sources: Sources, reading: PairsConfig) -> Iterator[list[tuple[str, Array]]]:
        """The sources of some files."""
        for lines in read_only_sources(sources, reading):
            yield [(line.text or "", self._source_row(line.text or "", line.place)) for line in lines]

    def kinds(self, text: str = "") -> tuple[str, ...]:
        """Where the decoder looked, what the target is made of, and what the layers do."""
        layers = ("states",) if self.config.family == "transformer" else of_cells(self.config.cell)
        return ("attention", "saliency", *layers, "gradients", *OF_WORDS)

    def pair_reading(self, text: str, target: str | None = None) -> PairReading:
        """A source and its target, or the best one that a search finds, as the net reads them."""
        text = normalize(self.source_text(text), self.data.normalize)
        if target is None:
            target = self.translate([text], SearchOptions(truncates=True, copies_unknown=False))[0][0].text
        source = self._encode(text.strip(), "the source", SearchOptions(truncates=True))[0]
        ids = np.append(self.target.encode(target), EOS_ID).astype(np.int64)
        return PairReading(self.net, source, ids, symbols(self.source, source), symbols(self.target, ids))

    def reading(self, text: str) -> Reading:
        """A source as the net reads it; what is predicted is its best target."""
        return self.pair_reading(text).of_source(tuple(self.target.tokens))

    def word_vectors(self) -> tuple[Sequence[str], Array]:
        """Those of the source."""
        tensors = self.tensors()
        return written_words(self.source, tensors.get("source_embedding.weight", tensors["embedding.weight"]))

    def attention_maps(self, text: str, target: str | None = None) -> list[AttentionMap]:
        """Where the decoder looked while it wrote each target token; without attention, what it has of the source."""
        pair = self.pair_reading(text, target)
        return pair.attention_maps()

    def _search_options(self, options: PredictOptions) -> SearchOptions:
        has_attention = self.config.context == "attention"
        return SearchOptions(
            beam=options.beam or max(BEAM, options.n_best or 1),
            n_best=options.n_best or 1,
            length_penalty=LENGTH_PENALTY if options.length_penalty is None else options.length_penalty,
            prefix=options.prefix,
            max_tokens=options.max_tokens,
            copies_unknown=not options.keep_unknown,
            with_attention=(options.details and has_attention) or options.alignments,
            truncates=options.truncate,
        )

    def source_text(self, line: str, place: str = "the source") -> str:
        """A source as the model reads it: a line, or the columns it was trained on with tabs between them."""
        columns = line.split("\t")
        if self.data.spelled and line.strip() and len(columns) != len(self.data.source):
            raise DataError(
                f"{place} has {len(columns)} columns, expected {len(self.data.source)}",
                code="malformed-line",
                hint=f"the model reads columns {', '.join(map(str, self.data.source))} of a table, with tabs between them",
            )
        return join_columns(columns, self.data.source, self.data.spelled) if line.strip() else ""

    def translate(
        self, sources: Sequence[str], options: SearchOptions | None = None, *, places: Sequence[str] = ()
    ) -> list[list[Translation]]:
        """The best targets of every source, best first. `places` says where a source stands, for errors."""
        options = options or SearchOptions()
        _check_options(options, self.config)
        texts = [normalize(source, self.data.normalize).strip() for source in sources]
        encoded = [self._encode(text, places[i] if places else "the source", options) for i, text in enumerate(texts)]
        prefix = self.target.encode(options.prefix).astype(np.int64)
        found = [[Translation("", 0.0, (), ())] for _ in sources]
        filled = [i for i, text in enumerate(texts) if text]
        most = max(1, min(SEARCH_ROWS, MAX_LOGITS // self.target.vocab_size) // options.beam)
        order = sorted(filled, key=lambda i: len(encoded[i][0]))
        for chunk in (order[first : first + most] for first in range(0, len(order), most)):
            hypotheses = self._search([encoded[i][0] for i in chunk], prefix, options)
            for i, found_here in zip(chunk, hypotheses, strict=True):
                ids, is_cut = encoded[i]
                found[i] = [
                    replace(one, is_cut=is_cut) for one in self._translations(texts[i], ids, found_here, options)
                ]
        return found

    def _encode(self, source: str, place: str, options: SearchOptions) -> tuple[Array, bool]:
        """A source as ids, its end included, and whether it was cut."""
        try:
            ids = self.source.encode(source).astype(np.int64)
        except DataError as error:
            raise DataError(f"{place}: {error.what}", code=error.code, hint=error.hint) from None
        limit = max(MAX_LENGTH, self.data.max_length or 0)
        if len(ids) > limit and not (options.truncates or self.data.too_long == "truncate"):
            raise DataError(
                f"{place} has {len(ids):,} tokens, more than {limit:,}",
                code="line-too-long",
                hint="--truncate cuts it; a model trained with a larger data.max_length reads longer ones",
            )
        return np.append(ids[:limit], EOS_ID), len(ids) > limit

    def _search(self, rows: Sequence[Array], prefix: Array, options: SearchOptions) -> Iterator[list[Hypothesis]]:
        sources, lengths = pad_all(rows)
        state = self.net.encode(sources, lengths)
        nats = np.zeros(len(rows))
        if len(prefix):
            prefixes = np.tile(prefix, (len(rows), 1))
            scored, state = self.net.score(prefixes, np.full(len(rows), len(prefix)), state)
            nats = -scored.sum(axis=1, dtype=np.float64)
        found = beam_search(
            self.net,
            state,
            width=options.beam,
            stop=EOS_ID,
            max_tokens=options.max_tokens or self._max_tokens(int(lengths.max())),
            length_penalty=options.length_penalty,
            n_best=options.n_best,
        )
        for hypotheses, cost in zip(found, nats, strict=True):
            yield [Hypothesis((*prefix.tolist(), *h.tokens), h.nats + cost, h.is_finished) for h in hypotheses]

    def _max_tokens(self, source_length: int) -> int:
        return 10 + math.ceil((self.config.length_ratio or 3.0) * source_length)

    def _translations(
        self, source: str, ids: Array, hypotheses: Sequence[Hypothesis], options: SearchOptions
    ) -> list[Translation]:
        """Texts of hypotheses; attention is read off afterwards, where somebody wants it or a word is to be copied."""
        words = surfaces(source, self.source.units) if options.copies_unknown else None
        has_attention = self.config.context == "attention"
        found = []
        for hypothesis in hypotheses:
            tokens = np.array(hypothesis.tokens, dtype=np.int64)
            can_copy = has_attention and words is not None and self.target.units in ("space", "word")
            weights = None
            if has_attention and (options.with_attention or (can_copy and (tokens == UNK_ID).any())):
                weights = self.net.attention_weights(ids[None], np.array([len(ids)]), tokens[None])[0]
            copied = _copied(tokens, weights, words) if can_copy and weights is not None and words else {}
            found.append(
                Translation(
                    self._text(tokens, copied),
                    hypothesis.nats,
                    tuple(self.target.tokens[i] for i in tokens.tolist()),
                    self._symbols(ids, words),
                    weights if options.with_attention else None,
                )
            )
        return found

    def _symbols(self, ids: Array, words: Sequence[str] | None) -> tuple[str, ...]:
        """The tokens of a source; unknown words as they stand in it."""
        symbols = [self.source.tokens[i] for i in ids.tolist()]
        for place, word in enumerate(words or ()):
            if place < len(symbols) and symbols[place] == UNK:
                symbols[place] = word
        return tuple(symbols)

    def _text(self, tokens: Array, copied: Mapping[int, str]) -> str:
        decoder = self.target.decoder()
        pieces = []
        for place, token in enumerate(tokens.tolist()):
            if token == EOS_ID:
                break
            piece = decoder.push(token)
            pieces.append(piece.replace(UNK, copied[place]) if place in copied else piece)
        return "".join([*pieces, decoder.finish()])

    # ------------------------------------------------------------------------------------------------------ measuring

    def _evaluate(self, data: Sources, options: EvaluateOptions) -> dict[str, Any]:
        """BLEU, chrF, exact match and edits of what it writes, by length too, and the perplexity of the references."""
        pairs = read_pairs(data, self.data.reading(options.errors), targets=options.targets)
        corpus, notes = encode_pairs(pairs, self.source, self.target, self.data, is_training=False)
        found = self.translation_numbers(pairs, beam=options.beam, should_stop=lambda: False)
        assert found is not None
        found |= pairs.left_out()
        found |= self.reference_perplexity(corpus.source.ids, corpus.target.ids, should_stop=lambda: False)
        notes = [*found.get("notes", ()), *notes]
        return found | ({"notes": notes} if notes else {})

    def pictures(self, numbers: Mapping[str, Any]) -> list[dict[str, Any]]:
        """BLEU by the length of the source."""
        return [pictures.by_length({str(self.directory): numbers["by_length"]})]

    def translation_numbers(self, pairs: Pairs, *, beam: int | None, should_stop: ShouldStop) -> dict[str, Any] | None:
        """How good the targets that it writes are, for as long as there is time; None where there was none at all."""
        if beam is not None and beam < 1:
            raise UsageError(f"a beam of width {beam} holds nothing", code="bad-value", hint="give at least 1")
        sources, references = pairs.by_source()
        options = SearchOptions(beam=beam or BEAM)
        marks = Marks.of_texts([text for texts in references for text in texts], units=self.target.units)
        for chunk in rows_in_time(len(sources), should_stop):
            texts = self.translate([sources[i] for i in chunk], options, places=[f"source {i + 1}" for i in chunk])
            marks.add([self._written(sources[i], texts[j][0], references[i]) for j, i in enumerate(chunk)])
        if not len(marks):
            return None
        notes = part_notes(len(marks), len(sources), "sources")
        return {
            **marks.numbers(),
            "by_length": marks.by_length(),
            "signature": self.signature(options),
            **marks.signatures(),
            **({"notes": notes} if notes else {}),
        }

    def _written(self, source: str, found: Translation, references: Sequence[str]) -> Written:
        encoded = [self.target.encode(reference) for reference in references]
        length = len(self.source.encode(source))
        return Written(found.text, references, self.target.encode(found.text), encoded, length)

    def reference_perplexity(self, source_ids: Array, target_ids: Array, *, should_stop: ShouldStop) -> dict[str, Any]:
        """Of the references, each given its source: every token and its end. Nothing where there was no time for all."""
        import torch

        nats, tokens = 0.0, 0
        for batch in one_pass(PairBatches(source_ids, target_ids, tokens=SCORE_TOKENS)):
            if should_stop():
                return {}
            with torch.inference_mode():  # all of a batch in one call: the sum that `score` gives, twice as fast
                loss, _ = self.net.batch_loss(batch, None)
            nats += float(loss.nats)
            tokens += loss.tokens
        mean = nats / tokens
        return {"perplexity": math.exp(mean) if mean < 709 else None, "nats_per_token": mean, "tokens": tokens}

    def signature(self, options: SearchOptions) -> str:
        """All that moves the numbers besides model and texts."""
        from elman import __version__

        parts = {
            "source": self.source.units,
            "target": self.target.units,
            "vocab": f"{self.source.vocab_size}-{self.target.vocab_size}",
            "beam": options.beam,
            "alpha": options.length_penalty,
            "unk": "copied" if options.copies_unknown else "kept",
            "version": __version__,
        }
        return "|".join(f"{key}:{value}" for key, value in parts.items())


def _check_options(options: SearchOptions, model: Seq2SeqConfig) -> None:
    if options.with_attention and model.context != "attention":
        raise UsageError(
            f"a model with context={model.context} has no attention to show",
            code="not-for-this-model",
            hint="leave it out",
        )


def _copied(tokens: Array, weights: Array, words: Sequence[str]) -> dict[int, str]:
    """For every unknown token the source word that attention looked at most when it was written."""
    places = np.flatnonzero(tokens == UNK_ID)
    return {int(place): words[int(weights[place, : len(words)].argmax())] for place in places}
