"""What can be said of each token of a text: features built in, and those of a user's own file. Numpy only.

T tokens · K features
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError, MissingError
from elman.text.units.vocabulary import EOS, UNK

NEAR = 5  # tokens before the end of a line that count as near
BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
# whether one is inside of quotes after such a mark; None: it opens and closes. `` and '' are the Penn Treebank's
QUOTES: dict[str, bool | None] = {'"': None, "“": True, "«": True, "``": True, "”": False, "»": False, "''": False}


def built_in(tokens: Sequence[str], ranks: Mapping[str, int]) -> dict[str, Array]:
    """Features of every text, by name, each (T,). They are what is known once a token is read, but `line end near`.

    ranks: of words by frequency, as far as they are known.
    """
    lines = line_numbers(tokens)
    sizes = np.bincount(lines, minlength=1)
    places = np.concatenate([np.arange(size) for size in sizes])
    is_ended = np.array([token == EOS for token in tokens])
    ends_at = np.full(len(sizes), np.inf)  # a line that is cut off has no end
    ends_at[lines[is_ended]] = places[is_ended]
    bare = [token.strip() for token in tokens]
    found: dict[str, Any] = {
        "place in line": places,
        "place in text": np.arange(len(tokens)),
        "line end near": ends_at[lines] - places <= NEAR,
        "inside quotes": _inside_quotes(bare),
        "bracket depth": _bracket_depth(bare),
        "length of token": [1 if token in (EOS, UNK) else len(token) or 1 for token in bare],
        "upper case": [token[:1].isupper() for token in bare],
    }
    if "" in bare:  # units are characters
        found["place in word"] = _place_in_word(bare)
    last = len(ranks) + 1
    if ranks:
        rank = {EOS: 1} | {token: ranks.get(token.strip() or token, last) for token in tokens if token != EOS}
        found["rarity (log rank)"] = [math.log(rank[token]) for token in tokens]
    return {name: np.asarray(values, dtype=np.float64) for name, values in found.items()}


def line_numbers(tokens: Sequence[str]) -> Array:
    """The line that each token is in, from 0; its end is a part of it. -> (T,)"""
    is_ended = np.array([token == EOS for token in tokens], dtype=np.int64)
    return np.cumsum(is_ended) - is_ended


def _place_in_word(characters: Sequence[str]) -> list[int]:
    """How many characters of its word are read: 0 between words."""
    place, found = 0, []
    for character in characters:
        place = 0 if character in ("", EOS) else place + 1
        found.append(place)
    return found


def _inside_quotes(tokens: Sequence[str]) -> list[bool]:
    inside, found = False, []
    for token in tokens:
        for mark in [token] if token in QUOTES else token:
            if mark in QUOTES:
                opens = QUOTES[mark]
                inside = not inside if opens is None else opens
        found.append(inside)
    return found


def _bracket_depth(tokens: Sequence[str]) -> list[int]:
    depth, found = 0, []
    for token in tokens:
        for character in token:
            depth = max(0, depth + BRACKETS.get(character, 0))
        found.append(depth)
    return found


def read_features(path: Path, tokens: Sequence[str]) -> dict[str, Array]:
    """The columns of a table (commas or tabs, a row of names first) that has a row a token or a row a line.

    Ends of lines may have rows of their own or not: then their values are those of the token before.
    """
    names, rows = _read_table(path)
    is_word = np.array([token != EOS for token in tokens], dtype=bool)
    lines = line_numbers(tokens)
    num_lines = int(lines[-1]) + 1
    if len(rows) == len(tokens):
        of_token = np.arange(len(tokens))
    elif len(rows) == is_word.sum():
        of_token = np.maximum(0, np.cumsum(is_word) - 1)
    elif len(rows) == num_lines:
        of_token = lines
    else:
        raise DataError(
            f"{path} has {len(rows):,} rows below its names, but the text has {is_word.sum():,} tokens in {num_lines:,} lines",
            code="misaligned",
            hint="give a row a token or a row a line; the tokens are those that --json lists",
        )
    return {name: rows[of_token, place] for place, name in enumerate(names)}


def _read_table(path: Path) -> tuple[list[str], Array]:
    """The names of the columns, and the numbers below them. -> (rows, K)"""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8", code="bad-utf8") from None
    except OSError as error:
        raise MissingError(f"cannot read the features {path}: {error.strerror or error}") from None
    lines = text.splitlines()
    if not lines or not lines[0].strip():
        raise DataError(f"{path} is empty", code="empty-data", hint="its first row names the features")
    rows = list(csv.reader(lines, delimiter="\t" if "\t" in lines[0] else ","))
    names, numbers = [name.strip() for name in rows[0]], []
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(names):
            raise DataError(
                f"line {number} of {path} has {len(row)} columns, expected {len(names)}", code="malformed-line"
            )
        try:
            numbers.append([float(value) for value in row])
        except ValueError:
            raise DataError(
                f"line {number} of {path} has something that is no number",
                code="malformed-line",
                hint="write categories as 0 and 1",
            ) from None
        if not all(map(math.isfinite, numbers[-1])):
            raise DataError(f"line {number} of {path} has a number that is not finite", code="malformed-line")
    return names, np.array(numbers).reshape(len(numbers), len(names))


def correlations(units: Array, features: Array) -> Array:
    """Pearson's correlation of every unit (T, U) with every feature (T, K); 0 where one never changes. -> (U, K)"""
    return np.asarray(np.clip(_standard(units).T @ _standard(features), -1, 1))


def chance(units: Array, features: Array, rng: np.random.Generator, *, shifts: int = 40) -> Array:
    """How large the largest correlation of all units with each feature is where there is nothing to find. -> (K,)

    Features are moved against the text by a random number of tokens, so that both stay as smooth as they are; of the
    largest correlations of all shifts that which 95 % stay below.
    """
    units, features = _standard(units), _standard(features)
    num_tokens = len(units)
    offsets = rng.integers(num_tokens // 4, max(num_tokens // 4 + 1, num_tokens - num_tokens // 4), size=shifts)
    highest = [np.abs(units.T @ np.roll(features, offset, axis=0)).max(axis=0) for offset in offsets.tolist()]
    return np.asarray(np.minimum(1, np.quantile(highest, 0.95, axis=0)))


def _standard(columns: Array) -> Array:
    """Columns with mean 0 and length 1; those that never change are 0."""
    centred = columns.astype(np.float64) - columns.mean(axis=0, dtype=np.float64)
    lengths = np.linalg.norm(centred, axis=0)
    # a unit that is stuck moves by rounding alone
    is_moving = lengths > 1e-6 * np.maximum(np.abs(columns).max(axis=0, initial=0), 1e-30) * math.sqrt(len(columns))
    return np.where(is_moving, centred / np.where(lengths > 0, lengths, 1), 0.0)
