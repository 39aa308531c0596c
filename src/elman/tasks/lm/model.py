"""A loaded model: text in, text and numbers out. Knows nothing of families."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import UsageError, no_such
from elman.core.prefetch import prefetch
from elman.counts.spelling import SpellingModel
from elman.lm import evaluate as evaluation
from elman.lm.protocol import refuse_nan
from elman.lm.search import beam_search, sample
from elman.lm.shaping import Shaping, likeliest
from elman.lm.stopping import until
from elman.tasks.base import EvaluateOptions, Prediction, PredictOptions, TaskModel
from elman.tasks.foundation import Foundation, cells_of, make_foundation
from elman.tasks.lm.exporting import ExportsStep
from elman.tasks.lm.family import Saveable
from elman.tasks.lm.inside import LooksInside
from elman.tasks.lm.quantising import to_int8
from elman.tasks.lm.record import LmRecord
from elman.tasks.lm.scoring import LineScorer, Score, ScoredRows
from elman.tasks.lm.writing import WritesText
from elman.tasks.text_task import TextAssets
from elman.text.corpus import Corpus, read_blocks, without_reserved
from elman.text.index import TextIndex
from elman.text.readers import LineBlock, Reader, Sources, as_sources, as_texts
from elman.text.settings import Errors
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS, EOS_ID, UNK_ID

EVALUATION_TOKENS = 1 << 16  # of a text that is ids already are read at once
DYNAMIC_NAMES = (  # of numbers that dynamic evaluation changes
    *("perplexity", "perplexity_low", "perplexity_high", "nats_per_token"),
    *("bits_per_byte", "bits_per_byte_without_spelling", "signature"),
)


@dataclass(frozen=True, repr=False)
class Model(LooksInside, WritesText, ExportsStep, TaskModel[LmRecord]):
    """A language model with its tokenizer and its record."""

    record: LmRecord
    tokenizer: Tokenizer
    lm: Saveable
    directory: Path | None = None
    num_bytes: int | None = None  # of its files
    spelling: SpellingModel | None = None  # of unknown words
    index: Callable[[], TextIndex] | None = None  # of its training text, where it was asked for

    evaluate_takes = frozenset({"reset_lines", "dynamic", "dynamic_rate"})

    def vocabulary(self) -> str:
        """Its symbols, and what they are."""
        return f"{self.record.vocab_size:,} symbols ({self.tokenizer.units})"

    def language_model(self) -> Model:
        """Itself."""
        return self

    def _predict_lines(self, sources: Sources, options: PredictOptions) -> Iterator[Prediction]:
        """A language model has no answer to a line: it continues it, or says how likely it is."""
        where = self.directory or "this"
        raise UsageError(
            f"{where} holds a language model, and predict is for taggers, classifiers, translators and readers",
            code="not-for-this-model",
            hint="elman generate continues a text, elman next shows what may follow, elman score says how likely it is",
        )

    @property
    def net(self) -> Any:
        """The language model, where it is a net."""
        return self.lm

    def foundation(self) -> Foundation:
        """Words and forward cells, where there are any."""
        tensors = self.tensors()
        return make_foundation(
            self, self.tokenizer, vectors=tensors.get("embedding.weight"), onward=cells_of(tensors, "stack.layers.")
        )

    def _encode_row(self, text: str) -> Array:
        """The ids of a text, where there is a net to read them."""
        return self.tokenizer.encode_text(text) if hasattr(self.lm, "vectors") else super()._encode_row(text)

    def tensors(self) -> dict[str, Array]:
        """Weights or tables."""
        return self.lm.tensors()

    def files(self) -> dict[str, bytes]:
        """The tokenizer's, how unknown words are spelled, and the index of the training text."""
        return TextAssets(self.tokenizer, self.spelling, self.index).files()

    def next(self, text: str = "", *, k: int = 10) -> list[tuple[str, float]]:
        """The k likeliest next symbols after a text, with their probabilities; `</s>` is the end of the line."""
        if k < 1:
            raise UsageError(f"k is {k}", code="bad-value", hint="give at least 1")
        prompt, state = self._read(text)
        log_probs = refuse_nan(self.lm.predict(state)[0])
        best = likeliest(log_probs, k)
        return [(self.symbol(int(i), prompt.ids), math.exp(float(log_probs[i]))) for i in best]

    @overload
    def score(self, text: str) -> Score: ...

    @overload
    def score(self, text: list[str] | tuple[str, ...]) -> list[Score]: ...

    def score(self, text: str | list[str] | tuple[str, ...]) -> Score | list[Score]:
        """The cost of a text: every token and the end of every line, read as the model reads (stream or lines).

        Of several texts, each alone: a list of scores.
        """
        if not isinstance(text, str):
            return [self.score(one) for one in as_texts(text)]
        text = text.removesuffix("\n")
        self.record.data.watch(text)
        ids = self.ids_of(text)
        if self.record.data.reset_lines:
            lines = np.split(ids, np.flatnonzero(ids == EOS_ID)[:-1] + 1)
            nats = evaluation.score_lines(self.lm, lines).token_nats
        else:
            nats = -refuse_nan(self.lm.score(ids[None], np.array([len(ids)]), self.lm.start(1))[0][0])
        return self.summarise(text, ids, nats)

    def summarise(self, text: str, ids: Array, nats: Array) -> Score:
        """The cost of a text whose tokens, with the end of its last line, cost so much each."""
        return LineScorer(self.tokenizer, self.spelling).of_text(text.encode() + b"\n", ids, nats)

    def score_lines(
        self,
        data: str | Path | Sources,
        *,
        per_token: bool = False,
        stream: bool = False,
        errors: Errors | None = None,
        with_text: bool = False,
    ) -> Iterator[ScoredRows]:
        """The cost of each line, in order, in constant memory: of as many together as were there to read.

        Each line is read alone, or with `stream` after the lines before it. What is no text is an error (`errors`
        "stop"), has no score ("skip"), or has U+FFFD in place of what is not UTF-8 and no score for the rest ("replace");
        without `errors` it is as in training. There is one result for each line of the source, always.
        """
        line_scorer = LineScorer(self.tokenizer, self.spelling)
        scorer = evaluation.stream_scorer(self.lm) if stream else evaluation.lines_scorer(self.lm)
        reading = self.record.data.reading(errors)
        with closing(prefetch(read_blocks(as_sources(data), self.tokenizer, reading, keep_empty=True))) as blocks:
            for block in blocks:
                assert block.lines is not None
                yield line_scorer.of_block(block.lines, block.ids, scorer, per_token=per_token, with_text=with_text)

    def score_block(self, reader: Reader, lines: LineBlock, *, per_token: bool, with_text: bool) -> ScoredRows:
        """The cost of each of some lines as they were read from a file, each alone; `reader` (of `keep_empty`) checks them."""
        [kept] = without_reserved(reader, [reader.cleaned(lines)], self.tokenizer)
        ids = self.tokenizer.encode_lines(kept.data) if kept.data else np.zeros(0, np.int32)
        scorer = evaluation.lines_scorer(self.lm)
        line_scorer = LineScorer(self.tokenizer, self.spelling)
        return line_scorer.of_block(kept, ids, scorer, per_token=per_token, with_text=with_text)

    def _evaluate(self, data: Sources, options: EvaluateOptions) -> dict[str, Any]:
        """The numbers of a text by the one rule of scoring; read as the model was trained unless the options say otherwise.

        `dynamic` adds what the perplexity is if the model's nets learn from each piece of the text after it was scored, at
        the rate `dynamic_rate`. The model itself stays as it is.
        """
        reset_lines, seed = options.reset_lines, options.seed
        if options.dynamic_rate is not None and not options.dynamic:
            raise UsageError("a dynamic rate is for dynamic evaluation", code="options-conflict", hint="add --dynamic")
        dropped, spelling_nats = 0, 0.0

        def counted() -> Iterator[evaluation.IdBlock]:
            nonlocal dropped, spelling_nats
            for block in read_blocks(data, self.tokenizer, self.record.data.reading(options.errors)):
                dropped += block.dropped_lines
                if self.spelling is not None and block.unknown_tokens and block.lines is not None:
                    words = self.tokenizer.unknown_words(block.lines.data, block.ids)
                    spelling_nats += float(self.spelling.nats(words).sum())
                yield replace(block, lines=None)

        if options.dynamic:
            from elman.training.dynamic import nets_of

            nets_of(self.lm)  # refuses before anything slow
            blocks = list(counted())  # read twice, and stdin cannot be
            measured = self._measure(blocks, reset_lines=reset_lines, seed=seed)
            dynamic = self._measure_dynamically(blocks, options)
            found = measured.with_spelling(spelling_nats).as_json()
            adapted = dynamic.with_spelling(spelling_nats).as_json()
            found |= {f"{name}_dynamic": adapted[name] for name in DYNAMIC_NAMES if name in adapted}
        else:
            measured = self._measure(counted(), reset_lines=reset_lines, seed=seed)
            found = measured.with_spelling(spelling_nats).as_json()
        return found | {"seed": seed} | ({"dropped_lines": dropped} if dropped else {})

    def evaluate_corpus(self, corpus: Corpus, *, seed: int = 1) -> dict[str, Any]:
        """The numbers of a text that is ids already, read as the model was trained."""
        measured = self._measure(corpus.blocks(EVALUATION_TOKENS), reset_lines=None, seed=seed)
        return measured.with_spelling(self.spelling_nats(corpus)).as_json() | {"seed": seed}

    def spelling_nats(self, corpus: Corpus) -> float:
        """What the spelling of a text's unknown words costs, given that they are unknown."""
        return 0.0 if self.spelling is None else self.spelling.total_nats(corpus.unknown_words)

    def _measure(
        self, blocks: Iterable[evaluation.IdBlock], *, reset_lines: bool | None, seed: int
    ) -> evaluation.Evaluation:
        by_lines = self.record.data.reset_lines if reset_lines is None else reset_lines
        return evaluation.evaluate(
            self.lm,
            blocks,
            reset_lines=by_lines,
            signature=self.signature(reset_lines=by_lines),
            rng=np.random.default_rng(seed),
        )

    def _measure_dynamically(
        self, blocks: Sequence[evaluation.IdBlock], options: EvaluateOptions
    ) -> evaluation.Evaluation:
        from elman.training.dynamic import Dynamics, adapting

        by_lines = self.record.data.reset_lines if options.reset_lines is None else options.reset_lines
        dynamics = Dynamics() if options.dynamic_rate is None else Dynamics(rate=options.dynamic_rate)
        rng = np.random.default_rng(options.seed)
        with adapting(self.lm, reset_lines=by_lines, dynamics=dynamics, rng=rng) as scorer:
            if options.report_share is not None:
                num_tokens = sum(len(block.ids) for block in blocks)
                scorer = evaluation.reporting(scorer, num_tokens, options.report_share)
            return evaluation.evaluate_by(
                scorer,
                blocks,
                reset_lines=by_lines,
                signature=f"{self.signature(reset_lines=by_lines)}|dynamic:{dynamics}",
                rng=np.random.default_rng(options.seed),
            )

    def signature(self, *, reset_lines: bool) -> str:
        """All that moves a number besides model and text."""
        return evaluation.signature(
            units=self.tokenizer.units,
            vocab_size=self.tokenizer.vocab_size,
            tokenizer_fingerprint=self.tokenizer.fingerprint,
            reset_lines=reset_lines,
            spells_unknown=self.spelling is not None,
        )

    def generate(
        self,
        prompt: str = "",
        *,
        tokens: int = 100,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        stop: Sequence[str] = (),
        forbid: Sequence[str] = (),
        unknown: bool = False,
        seed: int | None = None,
    ) -> str:
        """A continuation of the prompt, drawn by chance. A model of single lines ends with its line.

        `<unk>` is no word: it is not written unless `unknown` words may be.
        """
        shaping = Shaping(temperature, top_k, top_p, self.forbidden_ids(forbid, unknown=unknown))
        return "".join(self.stream(prompt, tokens=tokens, shaping=shaping, stop=stop, rng=np.random.default_rng(seed)))

    def stream(
        self,
        prompt: str = "",
        *,
        tokens: int,
        shaping: Shaping,
        rng: np.random.Generator,
        stop: Sequence[str] = (),
    ) -> Iterator[str]:
        """The continuation, piece by piece as it is drawn. A stop text ends it and is not given out."""
        if tokens < 0:
            raise UsageError(f"tokens is {tokens}", code="bad-value", hint="give 0 or more")
        read, state = self._read(prompt)
        drawn = sample(self.lm, state, shaping=shaping, rng=rng, stop=self.stop_ids, max_tokens=tokens)
        return until(self._texts(read, drawn), stop)

    def beam(
        self,
        prompt: str = "",
        *,
        width: int,
        tokens: int = 100,
        n_best: int = 1,
        forbid: Sequence[str] = (),
        unknown: bool = False,
    ) -> list[tuple[str, float]]:
        """The likeliest continuations up to the end of the line that a beam finds, and the nats of each."""
        read, state = self._read(prompt)
        found = beam_search(
            self.lm,
            state,
            width=width,
            stop=EOS_ID,
            max_tokens=tokens,
            n_best=n_best,
            forbid=self.forbidden_ids(forbid, unknown=unknown),
        )
        return [
            ("".join(self._texts(read, hypothesis.tokens)).rstrip("\n"), hypothesis.nats) for hypothesis in found[0]
        ]

    def forbidden_ids(self, symbols: Iterable[str], *, unknown: bool) -> frozenset[int]:
        """What is not to be written: symbols, with and without a space before them, and `<unk>` unless it may be.

        A word that a model of words does not know has no id.
        """
        found: set[int] = set() if unknown else {UNK_ID}
        for symbol in symbols:
            ids = self._ids_by_symbol.get(symbol, set())
            if not ids and self.tokenizer.units not in ("space", "word"):
                raise UsageError(
                    f"{symbol!r} is not one symbol of this model, whose units are {self.tokenizer.units}",
                    code="unknown-word",
                    hint="only single symbols can be forbidden",
                )
            found |= ids
        return frozenset(found)

    @cached_property
    def _ids_by_symbol(self) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {EOS: {EOS_ID}}
        for token in range(self.tokenizer.vocab_size):
            decoder = self.tokenizer.decoder()
            decoder.push(UNK_ID)  # now the space before a word is written
            text = decoder.push(token) + decoder.finish()
            for form in (text, text.removeprefix(" ")):
                found.setdefault(form, set()).add(token)
        return found

    def info(self) -> dict[str, Any]:
        """What the model is, how it was made, and its numbers."""
        record = self.record
        return {
            "directory": str(self.directory) if self.directory else None,
            "task": record.task,
            "model": record.family,
            "settings": record.model.model_dump(mode="json", exclude={"family"}),
            "units": self.tokenizer.units,
            "vocab_size": record.vocab_size,
            "reset_lines": record.data.reset_lines,
            "parameters": sum(array.size for array in self.lm.tensors().values()),
            "bytes": self.num_bytes,
            "source": record.source.model_dump() if record.source else None,
            "seed": record.seed,
            "seconds": record.seconds,
            "command": record.command,
            "signature": self.signature(reset_lines=record.data.reset_lines),
            "valid": record.valid,
            "notes": list(record.notes),
        }

    def to_int8(self) -> Model:
        """The model with 8-bit weights in its recurrent nets; it has no numbers yet."""
        lm, settings = to_int8(self.lm, self.record.model)
        notes = (*self.record.notes, "weights rounded to 8 bits; every number of the training is from before")
        record = self.record.model_copy(update={"model": settings, "valid": None, "notes": notes})
        return replace(self, record=record, lm=lm, directory=None, num_bytes=None)

    def export(self, path: str | Path, *, format: str = "arpa", overwrite: bool = False) -> None:  # noqa: A002
        """Write the model in a format that other tools read; compressed where the name ends in .gz, `-` is stdout."""
        if format != "arpa":
            raise no_such("format", format, ["arpa"])
        from elman.counts.arpa import write_arpa

        write_arpa(self.lm, self.tokenizer.tokens, Path(path), units=self.tokenizer.units, overwrite=overwrite)
