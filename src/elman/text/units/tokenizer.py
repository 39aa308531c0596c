"""The tokenizer: text to ids and back for every kind of units, stored as tokenizer.json."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.text.units import pipelines
from elman.text.units.decoding import ByteDecoder, Decoder, SymbolDecoder, WordDecoder
from elman.text.units.forms import normalize, normalize_bytes
from elman.text.units.pipelines import TokenizerSpec
from elman.text.units.splitters import (
    BpeSplitter,
    ByteSplitter,
    CharSplitter,
    LineBpeSplitter,
    SeparatorSplitter,
    SpaceSplitter,
    Splitter,
    WordSplitter,
)
from elman.text.units.surfaces import unknown_words
from elman.text.units.vocabulary import EOS_ID

LONG_LINE = 1 << 20  # characters


class Tokenizer:
    """The vocabulary of a model, with encoding and decoding of text."""

    def __init__(self, spec: TokenizerSpec) -> None:
        self._spec = spec
        self.units = spec.units  # "space", "word", "char", "byte" or "bpe:8000"
        self.separator = spec.separator
        self.normalize = spec.normalize
        self.tokens = spec.tokens  # by id: <unk>, </s>, then by descending frequency

    @property
    def vocab_size(self) -> int:
        """V: ids are 0 .. V-1."""
        return len(self.tokens)

    @property
    def adds_space(self) -> bool:
        """Whether `bpe` units read each line as if a space stood before it; those of other tools do not."""
        return self._spec.pretokenizer == "elman"

    @cached_property
    def fingerprint(self) -> str:
        """Equal for tokenizers that give the same ids for every text."""
        content: list[Any] = [self.units, self.separator, list(self.tokens), [list(pair) for pair in self._spec.merges]]
        content += [self.normalize] if self.normalize != "none" else []
        content += [] if self.adds_space else [self._spec.pretokenizer, self._spec.ignores_merges]
        return hashlib.blake2b(json.dumps(content).encode(), digest_size=8).hexdigest()

    @cached_property
    def _splitter(self) -> Splitter:
        match self.units.partition(":")[0]:
            case "space" if self.separator is not None:
                return SeparatorSplitter(self.separator, self.tokens)
            case "space":
                return SpaceSplitter(self.tokens)
            case "word":
                return WordSplitter(self.tokens)
            case "char":
                return CharSplitter(self.tokens)
            case "byte":
                return ByteSplitter(self.tokens)
            case _ if not self.adds_space:
                return LineBpeSplitter(bpe_backend(self._spec))
            case _:
                return BpeSplitter(bpe_backend(self._spec))

    def encode(self, line: str) -> Array:
        """The ids of one line, without EOS_ID. -> (T,) int32"""
        if "\n" in line:
            raise ValueError("encode takes one line; encode_text takes several")
        try:
            line.encode()
        except UnicodeEncodeError as error:
            raise DataError(f"character {error.start + 1} of the text is a lone surrogate", code="bad-utf8") from None
        line = normalize(line, self.normalize)
        pattern = reserved_pattern(self.units, self.separator)
        reserved = pattern.search(line.encode()) if pattern is not None else None
        if reserved:
            raise DataError(
                f"the text contains {reserved[1].decode()}, which is reserved", code="reserved-symbol", hint="remove it"
            )
        if len(line) > LONG_LINE and "\0" not in line:  # its symbols one by one would not fit into memory
            return self._splitter.encode(line.encode() + b"\n")[:-1]
        return np.array(self._splitter.encode_line(line), dtype=np.int32)

    def encode_text(self, text: str) -> Array:
        """The ids of a text, with EOS_ID for every newline. -> (T,) int32"""
        end = np.array([EOS_ID], dtype=np.int32)
        parts = [part for line in text.split("\n") for part in (end, self.encode(line))]
        return np.concatenate(parts[1:])

    def encode_lines(self, lines: bytes) -> Array:
        """The ids of whole lines, each ended by a newline, with EOS_ID for every newline. -> (T,) int32

        Faster for large texts, which must be UTF-8 without NUL or reserved symbols; `read_blocks` checks that.
        """
        return self._splitter.encode(normalize_bytes(lines, self.normalize))

    def unknown_words(self, lines: bytes, ids: Array) -> list[str]:
        """What stood for each UNK_ID among the ids of `encode_lines`, in order; nothing for units that are not words."""
        return unknown_words(normalize_bytes(lines, self.normalize), ids, self.units, self.separator)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; the end of a line is a newline."""
        decoder = self.decoder()
        return "".join([*(decoder.push(int(i)) for i in ids), decoder.finish()])

    def decoder(self) -> Decoder:
        """A decoder for ids one at a time. To continue a prompt, push the prompt first."""
        match self.units.partition(":")[0]:
            case "space":
                return SymbolDecoder(self.tokens, between=self.separator or " ")
            case "char":
                return SymbolDecoder(self.tokens, between="")
            case "word":
                return WordDecoder(self.tokens)
            case "byte":
                return ByteDecoder(self.tokens, is_spaced=False)
            case _:
                return ByteDecoder(self.tokens, is_spaced=self.adds_space)

    def files(self) -> dict[str, bytes]:
        """The files to store, by name."""
        return pipelines.write(self._spec)

    @classmethod
    def from_files(cls, read: Callable[[str], bytes]) -> Tokenizer:
        """The tokenizer that was stored. `read` returns the content of a file by its name."""
        spec = pipelines.read(read)
        tokenizer = cls(spec)
        if spec.units.startswith("bpe:"):
            _ = tokenizer._splitter  # fail now if the library refuses it, not at the first line of text
        return tokenizer


def bpe_backend(spec: TokenizerSpec) -> Any:
    """The library's BPE tokenizer, without special tokens and without adding a space before the text."""
    import tokenizers

    content = pipelines.tokenizer_json(spec) | {"added_tokens": [], "normalizer": None, "decoder": None}
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(content))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # panics of the library are not Exceptions
        raise DataError(
            f"cannot use {pipelines.TOKENIZER_FILE}: {error}", code="damaged-model", hint="the model is damaged"
        ) from None


def reserved_pattern(units: str, separator: str | None) -> re.Pattern[bytes] | None:
    """A regex whose first group is a reserved symbol in a text; None for units without reserved symbols."""
    if units not in ("space", "word"):
        return None
    if separator is None:
        return _RESERVED
    edge = re.escape(separator.encode())
    return re.compile(rb"(?m:^|(?<=" + edge + rb"))(</?s>)(?m:$|(?=" + edge + rb"))")


_RESERVED = re.compile(rb"(?<![^ \t\n\v\f\r])(</?s>)(?![^ \t\n\v\f\r])")
