"""A tokenizer.json of Hugging Face's layout as a tokenizer of ours: byte-level BPE, cut in one of the ways that are known here.

The end of a line, `</s>`, is the newline of that vocabulary. The newline has its symbol still, for merges, but no text
of lines is encoded with it. Everything else that a tokenizer.json can say is refused, never ignored, but for what it
adds before and after a text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.text.units.alphabet import BYTE_CHARACTERS
from elman.text.units.forms import Normalize
from elman.text.units.pipelines import PRETOKENIZERS, TOKENIZER_FILE, Pretokenizer, TokenizerSpec, load_json
from elman.text.units.vocabulary import EOS, UNK

NEWLINE = BYTE_CHARACTERS[ord("\n")]
HINT = "byte-level BPE is read, as of GPT-2, Llama 3 and Qwen 2"


@dataclass(frozen=True)
class ForeignTokenizer:
    """A tokenizer, and what its symbols are called where it came from."""

    spec: TokenizerSpec
    ids: Array  # (V,) the id of each symbol there; that of no symbol is -1
    newline_id: int


def read_foreign(content: bytes) -> ForeignTokenizer:
    """The tokenizer in a tokenizer.json of Hugging Face's layout."""
    stored = load_json(TOKENIZER_FILE, content)
    model = stored.get("model")
    if not isinstance(model, dict) or model.get("type", "BPE") != "BPE" or not isinstance(model.get("vocab"), dict):
        kind = model.get("type", "nothing") if isinstance(model, dict) else "nothing"
        raise _refusal(f"it is {kind}, not BPE")
    for key in ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"):
        if model.get(key):
            raise _refusal(f"its {key} is {model[key]!r}")
    symbols = _symbols(model["vocab"], stored.get("added_tokens") or [])
    if not symbols.keys() >= set(BYTE_CHARACTERS):
        raise _refusal("its vocabulary has not all bytes")
    tokens = sorted(symbols, key=symbols.__getitem__)
    spec = TokenizerSpec(
        units=f"bpe:{len(tokens) + 2}",
        tokens=[UNK, EOS, *tokens],
        merges=_merges(model.get("merges")),
        normalize=_normalize(stored.get("normalizer")),
        pretokenizer=_pretokenizer(stored.get("pre_tokenizer")),
        ignores_merges=bool(model.get("ignore_merges", False)),
    )
    newline_id = symbols[NEWLINE]
    ids = np.array([-1, newline_id, *(-1 if token == NEWLINE else symbols[token] for token in tokens)])
    return ForeignTokenizer(spec, ids, newline_id)


def _symbols(vocabulary: Mapping[str, Any], added: Sequence[Any]) -> dict[str, int]:
    """All symbols by their ids; those that were added are written by their bytes, and named apart from ours."""
    found = dict(vocabulary)
    for one in added:
        content, number = (one.get("content"), one.get("id")) if isinstance(one, dict) else (None, None)
        if not isinstance(content, str) or not content:
            raise _refusal("its added tokens are no texts")
        if found.get(content) == number:
            del found[content]
        symbol = "".join(BYTE_CHARACTERS[byte] for byte in content.encode())
        symbol = f"<|{symbol}|>" if symbol in (UNK, EOS) else symbol
        if found.setdefault(symbol, number) != number:
            raise _refusal(f"it has two symbols {content!r}")
    if any(type(number) is not int or number < 0 for number in found.values()):
        raise _refusal("its vocabulary is not a mapping to integers")
    if len(set(found.values())) < len(found) or {UNK, EOS} & found.keys():
        raise _refusal("two of its symbols are one")
    return found


def _merges(merges: Any) -> tuple[tuple[str, str], ...]:
    """Pairs, as they are written now and as they were before: `a b`."""
    if not isinstance(merges, list):
        raise _refusal("its merges are not a list")
    pairs = [tuple(one.split(" ")) if isinstance(one, str) else tuple(one) for one in merges]
    if any(len(pair) != 2 for pair in pairs):
        raise _refusal("its merges are not pairs")
    return tuple((str(left), str(right)) for left, right in pairs)


def _normalize(normalizer: Any) -> Normalize:
    match normalizer:
        case None:
            return "none"
        case {"type": "NFC"}:
            return "NFC"
        case _:
            raise _refusal(f"it normalises text by {_type(normalizer)}")


def _pretokenizer(stage: Any) -> Pretokenizer:
    """The name of the way it cuts text."""
    if _type(stage) == "Sequence":
        *cuts, last = stage.get("pretokenizers") or [None]
    else:
        cuts, last = [], stage
    if _type(last) != "ByteLevel" or last.get("add_prefix_space"):
        raise _refusal("it does not cut text into bytes, or adds a space before it")
    if not cuts and last.get("use_regex", True):
        return "gpt2"
    if len(cuts) == 1 and _type(cuts[0]) == "Split" and not last.get("use_regex", True):
        pattern = cuts[0].get("pattern")
        for name, known in PRETOKENIZERS.items():
            if pattern == {"Regex": known} and cuts[0].get("behavior") == "Isolated" and not cuts[0].get("invert"):
                return name
    raise _refusal("it cuts text in a way that is not known here")


def _type(stage: Any) -> str:
    return str(stage.get("type", "nothing")) if isinstance(stage, dict) else "nothing"


def _refusal(why: str) -> DataError:
    return DataError(f"cannot use {TOKENIZER_FILE}: {why}", code="unsupported-model", hint=HINT)
