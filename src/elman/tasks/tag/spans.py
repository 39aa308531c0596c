"""Tags that mark spans of words: B-PER begins a person, I-PER goes on, O is outside; with E and S, ends and single words.

Spans are counted as seqeval counts them by default, which is how conlleval did: whatever follows the letter and its
hyphen is the type, and a span begins wherever one cannot go on.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

OUTSIDE = "O"
Scheme = Literal["bio", "bioes"]
PREFIXES: dict[Scheme, str] = {"bio": "BI", "bioes": "BIES"}


class Span(NamedTuple):
    """Words `first` to `last`, both included."""

    kind: str
    first: int
    last: int


def split_tag(tag: str) -> tuple[str, str]:
    """The letter and the type of a tag."""
    return tag[:1], tag[1:].split("-", maxsplit=1)[-1] or "_"


def spans_of(tags: Sequence[str]) -> list[Span]:
    """The spans that tags mark, in order, whether or not they keep to their scheme."""
    found, first = [], 0
    before, kind_before = OUTSIDE, ""
    for place, tag in enumerate([*tags, OUTSIDE]):
        letter, kind = split_tag(tag)
        if _ends(before, letter, kind_before, kind):
            found.append(Span(kind_before, first, place - 1))
        if _begins(before, letter, kind_before, kind):
            first = place
        before, kind_before = letter, kind
    return found


def _ends(before: str, letter: str, kind_before: str, kind: str) -> bool:
    if before in "ES" or (before in "BI" and letter in "BSO"):
        return True
    return before not in "O." and kind_before != kind


def _begins(before: str, letter: str, kind_before: str, kind: str) -> bool:
    if letter in "BS" or (before in "ESO" and letter in "EI"):
        return True
    return letter not in "O." and kind_before != kind


def find_scheme(labels: Iterable[str]) -> Scheme | None:
    """How labels mark spans; None if they do not all look as if they did."""
    labels = set(labels)
    marks = labels - {OUTSIDE}
    if not marks or not all(len(tag) > 2 and tag[0] in "BIES" and tag[1] == "-" for tag in marks):
        return None
    return "bioes" if any(tag[0] in "ES" for tag in marks) else "bio"


def may_follow(before: str | None, tag: str | None, scheme: Scheme) -> bool:
    """Whether a tag may come after another one; None is the edge of a sentence, on either side."""
    letter, kind = split_tag(tag) if tag is not None else (OUTSIDE, "")
    letter_before, kind_before = split_tag(before) if before is not None else (OUTSIDE, "")
    if letter in ("I", "E"):
        return letter_before in ("B", "I") and kind_before == kind
    return scheme == "bio" or letter_before not in ("B", "I")  # of BIOES, a span that was begun has to end


def first_breach(tags: Sequence[str], scheme: Scheme) -> int | None:
    """The first place where a tag may not stand after the one before it; the end counts as a place."""
    edges: list[str | None] = [None, *tags, None]
    for place, (before, tag) in enumerate(itertools.pairwise(edges)):
        if not may_follow(before, tag, scheme):
            return place
    return None
