"""Where each token of a text stands in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from elman.core.arrays import Array
from elman.text.units.letters import SPACE_MARK
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS_ID, UNK_ID

MARKS = f"{SPACE_MARK} "  # of a word, before it
LOOKED_AT = 1 << 12  # characters in which a token is looked for: white space may stand before it


def offsets(text: str, ids: Array, tokenizer: Tokenizer) -> list[tuple[int, int]]:
    """The characters that each token covers, from and to; those of an end behind the text's last line are none.

    ids: of `encode_text`, an end may follow. Of the tokens of one character the last covers it. What normalising changed
    is not found, and covers nothing.
    """
    lines = (text.removesuffix("\n") + "\n").encode("utf-8", "replace")
    unknown = iter(tokenizer.unknown_words(lines, np.append(ids, EOS_ID) if not _is_ended(ids) else ids))
    found: list[tuple[int, int]] = []
    place = 0
    for token, piece in zip(ids.tolist(), pieces(ids, tokenizer), strict=True):
        if token == EOS_ID:
            end = text.find("\n", place)
            start = len(text) if end < 0 else end
            stop = min(start + 1, len(text))
        else:
            surface = (
                next(unknown, text[place : place + 1]).lstrip(MARKS) if token == UNK_ID else piece.strip(" ") or piece
            )
            start = text.find(surface, place, place + LOOKED_AT + len(surface)) if surface else place
            start = place if start < 0 else start
            stop = start + len(surface) if text.startswith(surface, start) else start
        found.append((start, stop))
        place = stop
    return found


def pieces(ids: Array | Sequence[int], tokenizer: Tokenizer) -> Iterator[str]:
    """What each token adds to a text that is written token by token."""
    decoder = tokenizer.decoder()
    for token in ids:
        yield decoder.push(int(token))


def _is_ended(ids: Array) -> bool:
    return bool(len(ids)) and int(ids[-1]) == EOS_ID
