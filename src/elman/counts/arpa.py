"""ARPA files: the back-off n-gram format of SRILM and KenLM, read and written. The only place that knows log10.

    \\data\\
    ngram 1=4
    …
    \\1-grams:
    log10 probability <TAB> word [<TAB> log10 back-off]
    …
    \\end\\

Errors name the line. Blocks of lines are parsed with numpy, in two threads.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError, MissingError, UsageError
from elman.core.outputs import open_output
from elman.counts.arpa_lines import DAMAGED, NATS, Lines, parse_rows, shown
from elman.counts.counting import smallest_type
from elman.counts.ngram import NgramModel, advance_nodes
from elman.counts.scratch import Scratch
from elman.counts.trie import NOT_FOUND, Trie
from elman.text.units.chunks import ChunkTable
from elman.text.units.vocabulary import BOS, EOS, EOS_ID, UNK, UNK_ID

IMPOSSIBLE = -99.0  # SRILM's log10 of zero
MISSING_UNK = -100.0  # KenLM's log10 probability of <unk> where a file has none
UNK_NAMES = (UNK.encode(), b"<UNK>")  # spellings of the unknown word in ARPA files
MAX_ORDER = 20  # highest order read
CHUNK_ROWS = 1 << 18  # n-grams formatted at once when writing

_KENLM_BINARY = b"mmap lm http://kheafield.com/code"
_UNITS = re.compile(rb"# units: (word|char)\s*$")
_COUNT = re.compile(rb"ngram\s+(\d{1,3})\s*=\s*(\d{1,18})")


def read_arpa(path: Path) -> tuple[list[str], NgramModel]:
    """The words of an ARPA file by id (<unk>, </s>, then in file order), and the model, which reads each line alone.

    As in KenLM, a missing <unk> is very unlikely and a missing back-off is 0. Missing prefixes of n-grams, as after pruning
    by other tools, are inserted with their backed-off probability, so no score changes.
    """
    with _opened(path) as file:
        return _read(Lines(file, path))


def read_units(path: Path) -> str:
    """The units of an ARPA file's words, as `write_arpa` notes them in a comment: `space` where it says nothing."""
    with _opened(path) as file:
        found = _UNITS.match(file.readline(100))
    return found[1].decode() if found else "space"


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """The file, unpacked if need be; what goes wrong while it is read is told as an error of the user's."""
    try:
        with path.open("rb") as raw:
            magic = raw.read(2)
            raw.seek(0)
            file: IO[bytes] = cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if magic == b"\x1f\x8b" else raw
            with file:
                yield file
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile):
            raise DataError(f"{path} is a corrupt gzip file: {error}", code="broken-archive", hint=DAMAGED) from None
        raise MissingError(
            f"cannot read {path}: {(error.strerror or str(error)).lower()}",
            hint="is the name right, and may you read it?",
        ) from None
    except (EOFError, zlib.error) as error:
        raise DataError(f"{path} is a corrupt gzip file: {error}", code="broken-archive", hint=DAMAGED) from None


def _read(lines: Lines) -> tuple[list[str], NgramModel]:
    counts = _read_counts(lines)
    with Scratch() as scratch:  # for its threads
        tokens, table, model = _read_unigrams(lines, counts)
        for order in range(2, len(counts) + 1):
            _expect_header(lines, order)
            grams = _read_ngrams(lines, order, counts, table, scratch)
            model = _extended(model, grams, lines, tokens, scratch)
    _expect_end(lines)
    return tokens, NgramModel(model.trie, model.log_probs, model.backoffs[:-1], reset_lines=True)


def _read_counts(lines: Lines) -> list[int]:
    """The numbers of n-grams that \\data\\ declares. Only blank lines and comments may precede it."""
    while (line := lines.next_text()) is not None and line.startswith(b"#"):
        pass
    if line is None:
        lines.fail_at_end("\\data\\")
    if line != b"\\data\\":
        if line.startswith(_KENLM_BINARY):
            lines.fail("is the start of a KenLM binary", hint="give the ARPA file that the binary was built from")
        lines.fail(f"is {shown(line)}, not \\data\\", hint="give an ARPA file: text that starts with \\data\\")
    counts: list[int] = []
    while line := lines.next_line():
        match = _COUNT.fullmatch(line)
        if not match:
            lines.fail(f"is {shown(line)}, expected something like `ngram 1=1000`")
        if int(match[1]) != len(counts) + 1:
            lines.fail(f"counts {int(match[1])}-grams, expected {len(counts) + 1}-grams: orders must be consecutive")
        counts.append(int(match[2]))
        if len(counts) > MAX_ORDER:
            lines.fail(
                f"is of order {len(counts)}; the highest supported order is {MAX_ORDER}",
                hint="build a model of lower order",
            )
    if line is None:
        lines.fail_at_end("\\1-grams:")
    if not counts:
        lines.fail("ends \\data\\ without an `ngram 1=...` line")
    return counts


def _expect_header(lines: Lines, order: int) -> None:
    expected = f"\\{order}-grams:"
    line = lines.next_text()
    if line is None:
        lines.fail_at_end(expected)
    if line != expected.encode():
        lines.fail(f"is {shown(line)}, not {expected}")


def _expect_end(lines: Lines) -> None:
    line = lines.next_text()
    if line is None:
        lines.fail_at_end("\\end\\")
    if line != b"\\end\\":
        lines.fail(f"is {shown(line)}, not \\end\\")
    if (line := lines.next_text()) is not None:
        lines.fail(f"is {shown(line)}, but nothing may follow \\end\\")


@dataclass(frozen=True)
class _Grams:
    """N-grams of one order: (n, order) ids, log-probabilities and back-offs in nats, the line of each."""

    words: Array
    log_probs: Array
    backoffs: Array
    lines: Array


def _read_unigrams(lines: Lines, counts: Sequence[int]) -> tuple[list[str], ChunkTable, NgramModel]:
    """The words by id, the table that finds the id of each and of <s>, and the model of order 1."""
    _expect_header(lines, 1)
    unigrams: dict[bytes, tuple[float, float]] = {}  # log-probability and back-off
    unk_name = UNK.encode()
    for first, block in lines.blocks():
        words, log_probs, backoffs = parse_rows(lines, first, block, 1, is_highest=len(counts) == 1)
        for at, (word, *values) in enumerate(zip(words, log_probs.tolist(), backoffs.tolist(), strict=True)):
            if word in unigrams or (word in UNK_NAMES and unk_name in unigrams):
                lines.fail(f"repeats the word {shown(word)}", line=first + at)
            unk_name = word if word in UNK_NAMES else unk_name
            unigrams[word] = (values[0], values[1])
    _check_count(lines, 1, counts, len(unigrams))
    unk = unigrams.pop(unk_name, (MISSING_UNK * NATS, 0.0))
    bos = unigrams.pop(BOS.encode(), (0.0, 0.0))
    eos = unigrams.pop(EOS.encode(), None)
    if eos is None:
        lines.fail(f"ends the 1-grams without {EOS}", hint="build the model with sentence-end markers")
    tokens = [UNK, EOS, *(word.decode() for word in unigrams)]
    table = ChunkTable([unk_name, EOS.encode(), *unigrams, BOS.encode()])
    both = np.array([unk, eos, *unigrams.values(), (-np.inf, bos[1])], np.float32)  # <s> is never predicted
    trie = Trie(len(tokens), (np.arange(len(both), dtype=smallest_type(len(both))),), ())
    return tokens, table, NgramModel(trie, (both[:, 0].copy(),), (both[:, 1].copy(),), reset_lines=True)


def _read_ngrams(lines: Lines, order: int, counts: Sequence[int], table: ChunkTable, scratch: Scratch) -> _Grams:
    """All n-grams of one order but those with <s> after the first word, which are never looked up."""
    bos, is_highest = len(table) - 1, order == len(counts)
    word_type = smallest_type(bos + 1)

    def parse(numbered: tuple[int, bytes]) -> tuple[Array, Array, Array, Array]:
        first, block = numbered
        words, log_probs, backoffs = parse_rows(lines, first, block, order, is_highest=is_highest)
        ids = table.find(words)
        if ids.min() < 0:
            at = int(np.argmin(ids))
            word = next(iter(words.select(np.array([at]))))
            lines.fail(f"has the word {shown(word)}, which is not among the 1-grams", line=first + at // order)
        ids = ids.astype(word_type).reshape(-1, order)
        return ids, log_probs, backoffs, np.arange(first, first + len(ids))

    nothing = (np.empty((0, order), word_type), np.empty(0, np.float32), np.empty(0, np.float32), np.empty(0, np.int64))
    parts = [nothing, *scratch.map(parse, lines.blocks())]
    grams = _Grams(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    del parts
    _check_count(lines, order, counts, len(grams.lines))
    is_predicted = (grams.words[:, 1:] != bos).all(axis=1)
    if is_predicted.all():
        return grams
    kept = np.flatnonzero(is_predicted)
    return _Grams(grams.words[kept], grams.log_probs[kept], grams.backoffs[kept], grams.lines[kept])


def _check_count(lines: Lines, order: int, counts: Sequence[int], found: int) -> None:
    if found != counts[order - 1]:
        lines.fail(f"ends the {order}-grams after {found:,}, but \\data\\ declares {counts[order - 1]:,}")


def _extended(model: NgramModel, grams: _Grams, lines: Lines, tokens: Sequence[str], scratch: Scratch) -> NgramModel:
    """The model extended by the n-grams of one more order, with back-offs for every order so far."""
    parents = _walk(model.trie, grams.words[:, :-1], scratch)
    if len(missing := np.flatnonzero(parents == NOT_FOUND)):
        model = _with_prefixes(model, grams.words[missing, :-1], scratch)
        parents = _walk(model.trie, grams.words[:, :-1], scratch)
    trie, words = model.trie, grams.words[:, -1]
    keys = (parents.astype(np.uint64) << np.uint64(32)) | words
    order = np.argsort(keys)
    keys = keys[order]
    if len(twice := np.flatnonzero(keys[1:] == keys[:-1])):
        first, second = sorted(grams.lines[order[twice[0] : twice[0] + 2]].tolist())
        bos_last = [*tokens, BOS]
        gram = " ".join(bos_last[word] for word in grams.words[order[twice[0]]].tolist())
        lines.fail(f"repeats the n-gram {shown(gram.encode())} of line {first}", line=second)
    del keys
    num_parents = trie.num_nodes(trie.order)
    starts = np.concatenate(([0], np.cumsum(np.bincount(parents, minlength=num_parents))))
    return NgramModel(
        Trie(trie.vocab_size, (*trie.words, words[order]), (*trie.starts, starts.astype(_place_type(len(words))))),
        (*model.log_probs, grams.log_probs[order]),
        (*model.backoffs, grams.backoffs[order]),
        reset_lines=True,
    )


def _walk(trie: Trie, words: Array, scratch: Scratch) -> Array:
    """The node of each n-gram, (n, k) ids of any order k that the trie has, or NOT_FOUND. -> (n,)"""

    def walk(first: int) -> Array:
        part = words[first : first + scratch.chunk_rows]
        nodes = part[:, 0].astype(np.int64)
        for k in range(1, words.shape[1]):
            nodes = trie.find(k, nodes, part[:, k])
        return nodes

    parts = list(scratch.map(walk, range(0, len(words), scratch.chunk_rows)))
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _with_prefixes(model: NgramModel, prefixes: Array, scratch: Scratch) -> NgramModel:
    """The model with these n-grams and their prefixes inserted; no score changes."""
    for order in range(2, prefixes.shape[1] + 1):
        wanted = np.unique(prefixes[:, :order], axis=0)
        wanted = wanted[_walk(model.trie, wanted, scratch) == NOT_FOUND].astype(np.int64)
        if not len(wanted):
            continue
        state = np.full((len(wanted), model.order - 1), NOT_FOUND, np.int64)
        state[:, 0] = wanted[:, 0]
        for k in range(1, order - 1):
            state = advance_nodes(model.trie, wanted[:, k], state)
        backed_off, _ = model.score(wanted[:, -1:], np.ones(len(wanted), np.int64), state)
        parents = _walk(model.trie, wanted[:, :-1], scratch)
        model = _inserted(model, order, parents, wanted[:, -1], backed_off[:, 0])
    return model


def _inserted(model: NgramModel, order: int, parents: Array, new_words: Array, new_log_probs: Array) -> NgramModel:
    """The model with new n-grams of one order (sorted by node), without back-off or children."""
    words, starts = list(model.trie.words), list(model.trie.starts)
    log_probs, backoffs = list(model.log_probs), list(model.backoffs)
    num_parents = len(words[order - 2])
    owners = model.trie.parents(order - 1, 0, num_parents)
    at = np.searchsorted((owners << 32) | words[order - 1], (parents << 32) | new_words)
    more = np.concatenate(([0], np.cumsum(np.bincount(parents, minlength=num_parents))))
    words[order - 1] = np.insert(words[order - 1], at, new_words)
    log_probs[order - 1] = np.insert(log_probs[order - 1], at, new_log_probs)
    backoffs[order - 1] = np.insert(backoffs[order - 1], at, 0)
    starts[order - 2] = (starts[order - 2] + more).astype(_place_type(len(words[order - 1])))
    if order < model.order:
        starts[order - 1] = np.insert(starts[order - 1], at, starts[order - 1][at])
    trie = Trie(model.vocab_size, tuple(words), tuple(starts))
    return NgramModel(trie, log_probs, backoffs, reset_lines=True)


def _place_type(num_rows: int) -> type[np.generic]:
    return np.uint32 if num_rows < 2**32 else np.int64


def write_arpa(
    model: object, tokens: Sequence[str], path: Path, *, units: str = "space", overwrite: bool = False
) -> None:
    """Write a back-off n-gram model, the words given by id, as KenLM and SRILM read it. All of the file, or none.

    A comment, which both tools skip, notes the units where an importer needs them to cut text into these words.
    """
    if not isinstance(model, NgramModel):
        raise UsageError(
            "only back-off n-gram models can be exported as ARPA",
            code="not-for-this-model",
            hint="train one: --model mkn, or kn, or ngram with witten-bell, absolute or interpolated smoothing",
        )
    if not model.reset_lines:
        raise stream_refused()
    symbols = arpa_symbols(tokens)
    with open_output(path, overwrite=overwrite) as file:
        file.write(arpa_header([model.trie.num_nodes(k) for k in range(1, model.order + 1)], units).encode())
        for k in range(1, model.order + 1):
            file.write(f"\n\\{k}-grams:\n".encode())
            for first in range(0, model.trie.num_nodes(k), CHUNK_ROWS):
                file.write("".join(_lines_of(model, symbols, k, first)).encode())
        file.write(b"\n\\end\\\n")


def stream_refused() -> UsageError:
    """ARPA knows no streams."""
    what = "ARPA models read each line alone, but this model was trained on a stream"
    return UsageError(what, code="not-for-this-model", hint="train with --reset-lines")


def arpa_symbols(tokens: Sequence[str]) -> list[str]:
    """The words of an ARPA file by id, the start symbol behind them; an error where a token cannot be one."""
    for token in tokens:
        if token.encode().split() != [token.encode()] or "\0" in token or token in (BOS, "<UNK>"):
            raise UsageError(
                f"the token {token!r} cannot be written to an ARPA file",
                code="not-for-this-model",
                hint="export a model whose tokens have no whitespace",
            )
    symbols = [*tokens, BOS]
    symbols[UNK_ID], symbols[EOS_ID] = UNK, EOS
    return symbols


def arpa_header(sizes: Sequence[int], units: str) -> str:
    """How an ARPA file with so many n-grams of each order begins."""
    counts = (f"ngram {k}={size}\n" for k, size in enumerate(sizes, start=1))
    comment = f"# units: {units}\n" if units in ("word", "char") else ""
    return "".join([comment, "\\data\\\n", *counts])


def _lines_of(model: NgramModel, symbols: Sequence[str], order: int, first: int) -> Iterator[str]:
    """The lines of up to CHUNK_ROWS n-grams."""
    nodes = np.arange(first, min(first + CHUNK_ROWS, model.trie.num_nodes(order)))
    log_probs = np.minimum(log10s_of(model.log_probs[order - 1][nodes]), 0.0)  # at most 0, despite rounding
    if order == 1 and nodes[-1] == model.trie.bos:
        log_probs[-1] = 0.0  # as in KenLM's files, so that scoring <s> adds nothing
    columns: list[list[object]] = []
    if order < model.order:
        columns.append(log10s_of(model.backoffs[order - 1][nodes]).tolist())
    for k in range(order, 0, -1):
        columns.append([symbols[word] for word in model.trie.words[k - 1][nodes].tolist()])
        if k > 1:
            starts = model.trie.starts[k - 2]  # searched for in its own dtype: otherwise numpy converts the whole array
            nodes = np.searchsorted(starts, nodes.astype(starts.dtype), side="right") - 1
    columns.append(log_probs.tolist())
    form = "%.8g\t" + " ".join(["%s"] * order) + ("\t%.8g\n" if order < model.order else "\n")
    return (form % values for values in zip(*reversed(columns), strict=True))


def log10s_of(nats: Array) -> Array:
    """Nats as log10; -inf becomes SRILM's -99."""
    log10s = nats.astype(np.float64) / NATS
    return np.where(np.isneginf(log10s), IMPOSSIBLE, log10s)
