"""Lists ranked again: a model's log-probability of every hypothesis, and word errors by jiwer where references are there.

Lists are read one after the other. To tune, they are read twice, and what is kept of a list in between are numbers.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from elman.api import Model
from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.lm.prefixes import prefix_tree, score_tree
from elman.lm.protocol import FreeModel, leaves
from elman.rescore.nbest import NBest
from elman.rescore.tuning import Judged, Weights, crosswise, tune
from elman.text.opening import STDIN
from elman.text.spool import Spool, writing_to
from elman.text.units.tokenizer import reserved_pattern
from elman.text.units.vocabulary import EOS_ID, UNK_ID

BATCH_CHARACTERS = 1 << 18  # of hypotheses that are scored together: the more, the fuller are the batches
BATCH_HYPOTHESES = 2048  # at most, since each may need a state of its own,
BATCH_START_BYTES = 1 << 26  # and so many bytes of states that have read nothing: those of attention grow
IMPOSSIBLE = -1e9  # log-probability of a hypothesis with a token of probability zero: behind all others, but finite
WORD = re.compile(r"\S+")
ReadLists = Callable[[], Iterator[NBest]]


@dataclass
class Counts:
    """What was read."""

    lists: int = 0
    hypotheses: int = 0
    tokens: int = 0
    read_tokens: int = 0  # by the model: those of shared beginnings once
    unknown: int = 0
    rising_lists: int = 0  # of several scores, the first one the lowest


@dataclass(frozen=True)
class ScoredList:
    """A list, and the model's log-probability of each hypothesis, the spelling of unknown words included."""

    nbest: NBest
    log_probs: Array

    def lines(self, weights: Weights, n_best: int | None = None) -> list[str]:
        """The list in its layout, the best hypothesis first."""
        hypotheses = self.nbest.hypotheses
        scores = np.array([one.score for one in hypotheses])
        totals = scores + weights.weight * self.log_probs + weights.bonus * num_words(self.nbest)
        order = np.argsort(-totals, kind="stable")[:n_best]
        return [self.nbest.layout.write(hypotheses[k], float(totals[k]), float(self.log_probs[k])) for k in order]


@dataclass
class Rescorer:
    """A language model, the lists, and what was found out about them so far."""

    model: Model
    read: ReadLists
    counts: Counts = field(default_factory=Counts)
    _known: Spool | None = None  # log-probabilities of all hypotheses, in order, once they were tuned on

    def lists(self) -> Iterator[ScoredList]:
        """All lists with the model's log-probabilities."""
        if self._known is None:
            for batch in batches(self.read(), hypotheses_at_once(self.model.lm)):
                yield from self._score(batch)
            return
        begin, known = 0, self._known.finish()
        for nbest in self.read():
            end = begin + len(nbest.hypotheses)
            yield ScoredList(nbest, known[begin:end])
            begin = end

    def judge(self, references: Mapping[str, str]) -> Judged:
        """The lists that have a reference, with the word errors of all their hypotheses."""
        spool = Spool(np.float64, None)
        rows: list[tuple[Array, ...]] = []
        reference_words: list[int] = []
        for scored in self.lists():
            spool.append(scored.log_probs)
            reference = references.get(scored.nbest.id)
            if reference is not None:
                texts = [one.text for one in scored.nbest.hypotheses]
                scores = np.array([one.score for one in scored.nbest.hypotheses])
                errors = word_errors(reference, texts)
                rows.append((scores, scored.log_probs, num_words(scored.nbest), errors))
                reference_words.append(len(reference.split()))
        self._known = spool
        if not rows:
            names = ", ".join(repr(name) for name in list(references)[:3])
            hint = f"the ids of references are those of lists; references begin with {names}"
            raise DataError("none of the lists has a reference", code="empty-data", hint=hint)
        widest = max(len(row[0]) for row in rows)
        scores, log_probs, words, errors = (
            np.stack([_filled(values, widest) for values in column]) for column in zip(*rows, strict=True)
        )
        return Judged(scores, log_probs, words, errors, np.array(reference_words))

    def _score(self, batch: Sequence[NBest]) -> Iterator[ScoredList]:
        texts = [one.text for nbest in batch for one in nbest.hypotheses]
        data = ("\n".join(texts) + "\n").encode()
        self._refuse_reserved(batch, data)
        tokenizer = self.model.tokenizer
        ids = tokenizer.encode_lines(data)
        ends = np.flatnonzero(ids == EOS_ID) + 1
        tree = prefix_tree(np.split(ids, ends[:-1]))
        log_probs = score_tree(self.model.lm, tree)
        unknown = np.flatnonzero(ids == UNK_ID)
        if len(unknown) and self.model.spelling is not None:
            nats = self.model.spelling.nats(tokenizer.unknown_words(data, ids))
            log_probs -= np.bincount(np.searchsorted(ends, unknown, side="right"), weights=nats, minlength=len(texts))
        log_probs = np.maximum(log_probs, IMPOSSIBLE)
        self.counts.tokens += len(ids)
        self.counts.read_tokens += tree.num_tokens
        self.counts.unknown += len(unknown)
        begin = 0
        for nbest in batch:
            end = begin + len(nbest.hypotheses)
            self.counts.lists += 1
            self.counts.hypotheses += end - begin
            self.counts.rising_lists += _rises(nbest)
            yield ScoredList(nbest, log_probs[begin:end])
            begin = end

    def _refuse_reserved(self, batch: Sequence[NBest], data: bytes) -> None:
        pattern = reserved_pattern(self.model.tokenizer.units, self.model.tokenizer.separator)
        found = None if pattern is None else pattern.search(data)
        if found is not None:
            places = [one.place for nbest in batch for one in nbest.hypotheses]
            place = places[data.count(b"\n", 0, found.start(1))]
            raise DataError(
                f"{place} contains {found[1].decode()}, which is reserved", code="reserved-symbol", hint="remove it"
            )


def hypotheses_at_once(lm: FreeModel[Any]) -> int:
    """How many a model can score together, by the size of its states."""
    num_bytes = sum(int(leaf.nbytes) for leaf in leaves(lm.start(1)))
    return max(1, min(BATCH_HYPOTHESES, BATCH_START_BYTES // max(1, num_bytes)))


def batches(lists: Iterable[NBest], most: int) -> Iterator[list[NBest]]:
    """Lists that are scored together: about so many hypotheses, but whole lists."""
    batch: list[NBest] = []
    num_characters = num_hypotheses = 0
    for nbest in lists:
        batch.append(nbest)
        num_characters += sum(len(one.text) + 1 for one in nbest.hypotheses)
        num_hypotheses += len(nbest.hypotheses)
        if num_characters >= BATCH_CHARACTERS or num_hypotheses >= most:
            yield batch
            batch, num_characters, num_hypotheses = [], 0, 0
    if batch:
        yield batch


def num_words(nbest: NBest) -> Array:
    """Words of each hypothesis, between white space: what the bonus is for. -> (N,)"""
    # by finditer: a list of the words of a hypothesis of 50 MB takes ten times as much
    return np.array([sum(1 for _ in WORD.finditer(one.text)) for one in nbest.hypotheses], dtype=np.float64)


def word_errors(reference: str, texts: Sequence[str]) -> Array:
    """Words that are substituted, deleted or inserted in each text, by jiwer. -> (N,)"""
    import jiwer

    found = jiwer.process_words([reference] * len(texts), list(texts))
    errors = []
    for chunks in found.alignments:
        wrong = [one for one in chunks if one.type != "equal"]
        # a chunk of an alignment is of one type, so a substitution has as many words on either side
        spans = [max(one.ref_end_idx - one.ref_start_idx, one.hyp_end_idx - one.hyp_start_idx) for one in wrong]
        errors.append(sum(spans))
    return np.array(errors, dtype=np.float64)


def measure(judged: Judged, weights: Weights, *, weight: float | None, bonus: float | None) -> dict[str, Any]:
    """Word error rates by the key they have in JSON; `wer_after` of lists that nothing was tuned on.

    weight and bonus: those that were given, and so not tuned.
    """
    is_tuned = weight is None or bonus is None
    same = judged.rate(judged.list_errors(weights))
    after: float | None = same
    if is_tuned:
        halved = [judged.rate(errors) for errors in crosswise(judged, weight=weight, bonus=bonus)]
        after = float(np.mean(halved)) if len(judged.scores) > 1 else None
    return {
        "wer_before": judged.rate(judged.list_errors(Weights(0.0, 0.0))),
        "wer_after": after,
        **({"wer_same_lists": same} if is_tuned else {}),
        "wer_oracle": judged.rate(judged.errors.min(axis=1)),
        "judged_lists": len(judged.scores),
        "reference_words": int(judged.reference_words.sum()),
    }


def find_weights(judged: Judged, *, weight: float | None, bonus: float | None) -> Weights:
    """Tuned, but for what is given."""
    if weight is not None and bonus is not None:
        return Weights(weight, bonus)
    return tune(judged, weight=weight, bonus=bonus)


@contextmanager
def readable(source: Path, *, twice: bool) -> Iterator[Path]:
    """A source that can be read, and twice if that is needed: of stdin a copy in a temporary file."""
    if not twice or str(source) != STDIN or sys.stdin is None:
        yield source
        return
    with tempfile.NamedTemporaryFile(suffix=".tsv") as copy:
        with writing_to(None):
            shutil.copyfileobj(sys.stdin.buffer, copy)
            copy.flush()
        yield Path(copy.name)


def _filled(values: Array, size: int) -> Array:
    """Copies of the first value behind the others."""
    return np.append(values, np.full(size - len(values), values[0]))


def _rises(nbest: NBest) -> bool:
    """Whether the first hypothesis, which should be the best, has the lowest score of several."""
    scores = [one.score for one in nbest.hypotheses]
    return len(set(scores)) > 1 and scores[0] == min(scores)
