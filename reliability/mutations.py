"""Changes of files that a fuzzer makes: of bytes, of JSON values, of lines and their columns, of the numbers of tensors."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import numpy as np

VALUES: list[Any] = [None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**30, 1e308, -0.0, 0.5]
VALUES += ["", "a", "lm", "../x", "\0", "\ud800", "a" * 5000, [], {}, [[]], [0] * 100, {"": 0}, [None], float("nan")]
WORDS = [
    b"",
    b"\\data\\",
    b"\\end\\",
    b"\\1-grams:",
    b"ngram 1=9",
    b"-99",
    b"nan",
    b"inf",
    b"1e999",
    b"<unk>",
    b"</s>",
    b"<s>",
]
WORDS += [
    b"_",
    b"0",
    b"-1",
    b"99999999999999999999",
    b"[model]",
    b"=",
    b'"',
    b"'''",
    b"\xff",
    b"\0",
    b"\t",
    b"\r",
    b"1-2",
    b"1.1",
]
WORDS += [b"O", b"B-X", b"I-X", b"# x", b"[[a]]", b"{", b"a.b.c=1", b"\xef\xbb\xbf", b"9" * 5000]


def change_bytes(data: bytes, rng: random.Random) -> bytes:
    """Flip, cut, repeat, insert and overwrite at random places."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        place = rng.randrange(len(changed) + 1)
        end = min(len(changed), place + rng.choice((1, 1, 2, 4, 8, 64, 1000)))
        match rng.randrange(6):
            case 0 if place < len(changed):
                changed[place] ^= 1 << rng.randrange(8)
            case 1:
                del changed[place:end]
            case 2:
                changed[place:place] = changed[place:end] * rng.choice((1, 2, 20))
            case 3:
                changed[place:place] = rng.choice(WORDS)
            case 4:
                changed[place:end] = rng.randbytes(end - place)
            case _:
                del changed[place:]
    return bytes(changed)


def change_json(data: bytes, rng: random.Random) -> bytes:
    """Another value, a key less or more, somewhere in a JSON document; now and then only bytes."""
    if rng.random() < 0.2:
        return change_bytes(data, rng)
    try:
        content = json.loads(data)
    except ValueError:
        return change_bytes(data, rng)
    for _ in range(rng.choice((1, 1, 1, 3))):
        content = _changed(content, rng)
    if rng.random() < 0.01:
        return b"[" * 100_000
    return json.dumps(content).encode()


def _changed(content: Any, rng: random.Random) -> Any:
    if isinstance(content, dict) and content and rng.random() < 0.9:
        key = rng.choice(list(content))
        match rng.randrange(8):
            case 0:
                del content[key]
            case 1:
                content[rng.choice((key + "x", "x", ""))] = copy.deepcopy(content[key])
            case _:
                content[key] = _changed(content[key], rng)
        return content
    if isinstance(content, list) and content and rng.random() < 0.9:
        index = rng.randrange(len(content))
        match rng.randrange(8):
            case 0:
                del content[index]
            case 1:
                content.insert(index, copy.deepcopy(content[index]))
            case 2:
                content[index] = copy.deepcopy(rng.choice(content))
            case _:
                content[index] = _changed(content[index], rng)
        return content
    if isinstance(content, int | float) and not isinstance(content, bool) and rng.random() < 0.5:
        return rng.choice((content + 1, content - 1, -content, content * 2, content * 1000, content // 2))
    return copy.deepcopy(rng.choice(VALUES))


def change_lines(data: bytes, rng: random.Random) -> bytes:
    """Lines and columns in another order, twice, gone, or with something else in them; now and then only bytes."""
    if rng.random() < 0.3:
        return change_bytes(data, rng)
    lines = data.split(b"\n")
    for _ in range(rng.choice((1, 1, 2, 6))):
        index = rng.randrange(len(lines))
        match rng.randrange(5):
            case 0:
                lines.insert(index, rng.choice(lines))
            case 1 if len(lines) > 1:
                del lines[index]
            case 2:
                lines.insert(index, rng.choice(WORDS))
            case _:
                between = rng.choice((b"\t", b" ", b"="))
                columns = lines[index].split(between)
                place = rng.randrange(len(columns))
                columns[place] = rng.choice((*WORDS, columns[place] * 2, rng.choice(columns)))
                lines[index] = between.join(columns)
    return b"\n".join(lines)


def change_tensors(data: bytes, rng: random.Random) -> bytes:
    """Numbers in the header or in the tables of a safetensors file; now and then only bytes."""
    length = int.from_bytes(data[:8], "little")
    header, body = data[8 : 8 + length], bytearray(data[8 + length :])
    match rng.randrange(4):
        case 0:
            return change_bytes(data, rng)
        case 1:
            header = change_json(header, rng)
        case _:
            entries = [entry for entry in json.loads(header).values() if "dtype" in entry]
            start, end = rng.choice(entries)["data_offsets"]
            for _ in range(rng.choice((1, 1, 4))):
                if end > start:
                    width = rng.choice((1, 4, 8))
                    place = start + rng.randrange(max(1, (end - start) // width)) * width
                    body[place : place + width] = _number(rng, width)[: max(0, end - place)]
    return len(header).to_bytes(8, "little") + header + bytes(body)


def _number(rng: random.Random, width: int) -> bytes:
    whole = {1: np.int8, 4: np.int32, 8: np.int64}[width]
    values = [np.iinfo(whole).max, np.iinfo(whole).min, -1, 0, 1, rng.randrange(128)]
    if width > 1 and rng.random() < 0.3:
        real = {4: np.float32, 8: np.float64}[width]
        return real(rng.choice((np.nan, np.inf, -np.inf, 1e30, -1e30))).tobytes()
    return whole(rng.choice(values)).tobytes()
