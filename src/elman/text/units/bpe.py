"""Byte-pair encoding, trained on lines with the `tokenizers` library."""

from __future__ import annotations

import json
from collections.abc import Iterable

from elman.core.errors import UsageError
from elman.text.units.alphabet import BYTE_CHARACTERS
from elman.text.units.pipelines import BPE_PATTERN, TokenizerSpec
from elman.text.units.splitters import SPECIAL_TOKENS, bpe_pieces

MIN_SYMBOLS = len(SPECIAL_TOKENS) + 256  # <unk>, </s> and all bytes
MAX_SYMBOLS = 1_000_000


def check_bpe(units: str) -> None:
    """Refuse `bpe:N` for an N out of range. N counts all symbols, including <unk>, </s> and the 256 bytes."""
    num_symbols = int(units.removeprefix("bpe:"))
    if not MIN_SYMBOLS <= num_symbols <= MAX_SYMBOLS:
        hint = f"give bpe:{MIN_SYMBOLS} (the 256 bytes, <unk> and </s>) to bpe:{MAX_SYMBOLS}"
        raise UsageError(f"{units} is out of range", code="bad-value", hint=hint)


def train_bpe(lines: Iterable[bytes], units: str) -> TokenizerSpec:
    """Symbols and merges trained on lines of text; the symbols in the library's order."""
    import tokenizers
    from tokenizers import models, pre_tokenizers, trainers

    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(BPE_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=int(units.removeprefix("bpe:")),
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(BYTE_CHARACTERS),
        show_progress=False,
    )
    library.train_from_iterator((piece for line in lines if line for piece in bpe_pieces(line)), trainer)
    model = json.loads(library.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return TokenizerSpec(units, tokens, merges=tuple((left, right) for left, right in model["merges"]))
