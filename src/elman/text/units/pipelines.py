"""tokenizer.json and tokenizer_config.json: written for the `tokenizers` library, read only if elman wrote them.

A tokenizer.json that differs from what elman writes for its units is refused, so the library (which panics on crafted
files) never sees a foreign structure. Only the vocabulary and the merges vary, and those are checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from elman.core.errors import DataError
from elman.text.units.alphabet import BYTE_CHARACTERS, BYTE_OF
from elman.text.units.forms import Normalize
from elman.text.units.letters import SPACE_MARK, WORD_PATTERN, WORD_REGEX
from elman.text.units.vocabulary import EOS, EOS_ID, UNK

TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
MAX_FILE_BYTES = 1 << 30  # larger files are refused
_UNITS = re.compile(r"space|word|char|byte|bpe:[1-9][0-9]{0,8}")
_WHITESPACE = re.compile(r"[ \t\n\v\f\r]")
_SURROGATES = re.compile("[\ud800-\udfff]")

# Runs of letters, digits and other characters, each with the space before it; in a run of spaces only the last one is
# attached. Pieces are at most 64 characters long, since the time of BPE merging grows faster than the length.
BPE_PATTERN = r" ?\p{L}{1,64}| ?\p{N}{1,64}| ?[^ \p{L}\p{N}]{1,64}| {1,64}(?= )| "

Pretokenizer = Literal["elman", "gpt2", "llama3", "qwen2"]  # how `bpe` units cut text before they merge
PRETOKENIZERS: dict[Pretokenizer, str] = {
    "elman": BPE_PATTERN,
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "qwen2": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}


@dataclass(frozen=True)
class TokenizerSpec:
    """Everything that defines a tokenizer."""

    units: str
    tokens: Sequence[str]  # by id
    separator: str | None = None  # `space` units only
    merges: Sequence[tuple[str, str]] = ()  # `bpe` units only, in order of priority
    normalize: Normalize = "none"  # the Unicode form that text is rewritten in first
    pretokenizer: Pretokenizer = "elman"  # `bpe` units only; those of other tools add no space before a line
    ignores_merges: bool = False  # `bpe` units only: what is a symbol as a whole is not merged of its parts


def write(spec: TokenizerSpec) -> dict[str, bytes]:
    """The contents of both files, by name."""
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 1_000_000_000,
        "eos_token": EOS,
        "unk_token": UNK,
        "clean_up_tokenization_spaces": False,
        "elman_units": spec.units,
        "elman_separator": spec.separator,
        **({"elman_normalize": spec.normalize} if spec.normalize != "none" else {}),
        **({"elman_pretokenizer": spec.pretokenizer} if spec.pretokenizer != "elman" else {}),
    }
    return {TOKENIZER_FILE: _dump(tokenizer_json(spec)), CONFIG_FILE: _dump(config)}


def tokenizer_json(spec: TokenizerSpec) -> dict[str, Any]:
    """The content of tokenizer.json, keys in the library's order."""
    pipeline = _pipeline(spec.units, spec.separator) if spec.pretokenizer == "elman" else _foreign_pipeline(spec)
    if spec.normalize != "none":
        rest = pipeline["normalizer"]
        others = [] if rest is None else rest.get("normalizers", [rest])
        pipeline["normalizer"] = {"type": "Sequence", "normalizers": [{"type": spec.normalize}, *others]}
    pipeline["model"]["vocab"] = {token: i for i, token in enumerate(spec.tokens)}
    if pipeline["model"]["type"] == "BPE":
        pipeline["model"]["merges"] = [list(pair) for pair in spec.merges]
    return pipeline


def read(read_file: Callable[[str], bytes]) -> TokenizerSpec:
    """The specification in the two files; a DataError if they differ from what `write` writes."""
    config, stored = (load_json(name, read_file(name)) for name in (CONFIG_FILE, TOKENIZER_FILE))
    units, separator = config.get("elman_units"), config.get("elman_separator")
    if not (isinstance(units, str) and _UNITS.fullmatch(units)):
        raise _refusal(CONFIG_FILE, "its units are missing or unknown")
    if not (separator is None or (isinstance(separator, str) and separator and units == "space")):
        raise _refusal(CONFIG_FILE, "its separator is invalid")
    normalize = config.get("elman_normalize", "none")
    if normalize not in get_args(Normalize):
        raise _refusal(CONFIG_FILE, "its Unicode form is unknown")
    pretokenizer = config.get("elman_pretokenizer", "elman")
    if pretokenizer not in PRETOKENIZERS or (pretokenizer != "elman" and not units.startswith("bpe:")):
        raise _refusal(CONFIG_FILE, "its way to cut text is unknown")
    model = stored.get("model")
    if not isinstance(model, dict):
        raise _refusal(TOKENIZER_FILE, "it has no model")
    tokens = _checked_vocabulary(model.get("vocab"))
    merges = _checked_merges(model.get("merges"), tokens) if units.startswith("bpe:") else ()
    ignores_merges = pretokenizer != "elman" and model.get("ignore_merges") is True
    spec = TokenizerSpec(units, tokens, separator, merges, normalize, pretokenizer, ignores_merges)
    expected = tokenizer_json(spec)
    del model["vocab"], expected["model"]["vocab"]  # checked already, and large
    if not _equal(stored, expected):
        raise _refusal(TOKENIZER_FILE, f"it does not match {units} units")
    _check_tokens(units, tokens, separator)
    return spec


def _pipeline(units: str, separator: str | None) -> dict[str, Any]:
    """The content of tokenizer.json without vocabulary and merges."""
    end = {"id": EOS_ID, "content": EOS, "single_word": False, "lstrip": False, "rstrip": False}
    stages: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{**end, "normalized": False, "special": True}],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "unk_token": UNK},
    }
    fuse = {"type": "Fuse"}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    match units.partition(":")[0]:
        case "space" if separator is not None:
            stages["pre_tokenizer"] = _split({"String": separator}, "Removed")
            # the library cannot join with a separator: append it to every symbol, remove the last one
            last = {"Regex": re.escape(separator) + r"\z"}
            decoders = [_replace({"Regex": r"\z"}, separator), fuse, _replace(last, "")]
            stages["decoder"] = {"type": "Sequence", "decoders": decoders}
        case "space":
            stages["pre_tokenizer"] = _split({"Regex": r"[ \t\n\x0b\f\r]+"}, "Removed")
        case "word":
            prepend = {"type": "Prepend", "prepend": SPACE_MARK}
            normalizers = [prepend, _replace({"String": " "}, SPACE_MARK)]
            stages["normalizer"] = {"type": "Sequence", "normalizers": normalizers}
            stages["pre_tokenizer"] = _split({"Regex": WORD_PATTERN}, "Isolated")
            decoders = [_replace({"String": SPACE_MARK}, " "), fuse, strip]
            stages["decoder"] = {"type": "Sequence", "decoders": decoders}
        case "char":
            stages["pre_tokenizer"] = _split({"Regex": r"[\s\S]"}, "Isolated")
            stages["decoder"] = fuse
        case "byte":
            stages["pre_tokenizer"] = _BYTE_LEVEL
            stages["decoder"] = _BYTE_LEVEL
            stages["model"] = dict(_BPE_MODEL)
        case "bpe":
            stages["normalizer"] = {"type": "Prepend", "prepend": " "}
            pretokenizers = [_split({"Regex": BPE_PATTERN}, "Isolated"), _BYTE_LEVEL]
            stages["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": pretokenizers}
            stages["decoder"] = {"type": "Sequence", "decoders": [_BYTE_LEVEL, strip]}
            stages["model"] = dict(_BPE_MODEL)
    return stages


def _foreign_pipeline(spec: TokenizerSpec) -> dict[str, Any]:
    """Byte-level BPE as other tools cut text: no space is added before it, none is taken away."""
    stages = _pipeline(spec.units, None) | {"normalizer": None, "decoder": _BYTE_LEVEL}
    cut = _split({"Regex": PRETOKENIZERS[spec.pretokenizer]}, "Isolated")
    stages["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [cut, _BYTE_LEVEL]}
    stages["model"]["ignore_merges"] = spec.ignores_merges
    return stages


_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
_BPE_MODEL = {
    "type": "BPE",
    "dropout": None,
    "unk_token": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "fuse_unk": False,
    "byte_fallback": False,
    "ignore_merges": False,
}


def _split(pattern: dict[str, str], behavior: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": False}


def _replace(pattern: dict[str, str], content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def _dump(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode()


def load_json(name: str, content: bytes) -> dict[str, Any]:
    """The object in a file of that name."""
    if len(content) > MAX_FILE_BYTES:
        raise _refusal(name, "it is larger than 1 GB")
    try:
        loaded = json.loads(content.decode())
    except (ValueError, RecursionError):
        raise _refusal(name, "it is not JSON") from None
    if not isinstance(loaded, dict):
        raise _refusal(name, "it is not a JSON object")
    return loaded


def _refusal(name: str, why: str) -> DataError:
    return DataError(
        f"cannot use {name}: {why}", code="damaged-model", hint="the model is damaged, or was not made by elman"
    )


def _equal(stored: Any, expected: Any) -> bool:
    """Equal in value and in type; in Python 1 == True == 1.0."""
    if type(stored) is not type(expected):
        return False
    if isinstance(expected, dict):
        return stored.keys() == expected.keys() and all(_equal(stored[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(stored) == len(expected) and all(map(_equal, stored, expected))
    return bool(stored == expected)


def _checked_vocabulary(vocabulary: Any) -> list[str]:
    if not isinstance(vocabulary, dict) or any(type(i) is not int for i in vocabulary.values()):
        raise _refusal(TOKENIZER_FILE, "its vocabulary is not a mapping to integers")
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise _refusal(TOKENIZER_FILE, "its vocabulary is not numbered 0, 1, 2 ...")
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    if tokens[:2] != [UNK, EOS]:
        raise _refusal(TOKENIZER_FILE, f"its vocabulary does not begin with {UNK} and {EOS}")
    if _SURROGATES.search("".join(tokens)):
        raise _refusal(TOKENIZER_FILE, "its vocabulary is not Unicode")
    return tokens


def _checked_merges(merges: Any, tokens: Sequence[str]) -> tuple[tuple[str, str], ...]:
    known = set(tokens[2:])
    seen: set[tuple[str, str]] = set()
    if not isinstance(merges, list):
        raise _refusal(TOKENIZER_FILE, "its merges are not a list")
    for pair in merges:
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) for part in pair)):
            raise _refusal(TOKENIZER_FILE, "its merges are not pairs")
        if not known.issuperset([*pair, pair[0] + pair[1]]) or tuple(pair) in seen:
            raise _refusal(TOKENIZER_FILE, "its merges do not match its vocabulary")
        seen.add((pair[0], pair[1]))
    return tuple((left, right) for left, right in merges)


def _check_tokens(units: str, tokens: Sequence[str], separator: str | None) -> None:
    """Refuse symbols that these units cannot have."""
    symbols = tokens[2:]
    match units.partition(":")[0]:
        case "space" if separator is not None:
            fits = all(token and separator not in token and "\n" not in token for token in symbols)
        case "space":
            fits = all(symbols) and not _WHITESPACE.search("".join(symbols))
        case "word":
            fits = all(WORD_REGEX.fullmatch(token) and not {" ", "\n"} & set(token) for token in symbols)
        case "char":
            fits = all(len(token) == 1 and token != "\n" for token in symbols)
        case "byte":
            fits = sorted(symbols) == sorted(BYTE_CHARACTERS)
        case _:
            fits = BYTE_OF.keys() <= set(symbols) and all(token and BYTE_OF.keys() >= set(token) for token in symbols)
    if not fits or "\0" in "".join(symbols):
        raise _refusal(TOKENIZER_FILE, f"its vocabulary does not match {units} units")
