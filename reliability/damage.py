"""Row 12: bits that flip in the files of a model. Every one is found when the model is loaded."""

from __future__ import annotations

import random
from pathlib import Path

import elman
from elman.core.errors import DataError
from elman.core.verified import LARGE_BYTES
from reliability.row import Allowance, Count, Figure

FLIPS = 1_000
PAYLOADS = ("config.json", "tokenizer.json", "*.safetensors")  # what loading reads
LINES = ["the cat sat on the mat .", "the dog sat on the log .", "who saw the mat ?"] * 20


def flipped_bits(allowance: Allowance) -> Figure:
    """One random bit of one random file, again and again; the last flips in a file so large that its hash is remembered."""
    rng = random.Random(allowance.seed)
    elman.train("lm", elman.texts(LINES), out=allowance.folder / "counts", model="mkn", units="space")
    settings = {"model.hidden": 8, "train.steps": 1}
    elman.train(
        "lm",
        elman.texts(LINES),
        out=allowance.folder / "net",
        model="lstm",
        units="space",
        settings=settings,
        threads=1,
    )
    wide = {"model.hidden": 1_024, "train.steps": 1}
    elman.train(
        "lm", elman.texts(LINES), out=allowance.folder / "wide", model="lstm", units="space", settings=wide, threads=1
    )
    large = allowance.folder / "wide" / "model.safetensors"
    assert large.stat().st_size > LARGE_BYTES
    files = [
        path for name in ("counts", "net") for pattern in PAYLOADS for path in (allowance.folder / name).glob(pattern)
    ]
    count = Count()
    for number in allowance.until_spent(range(FLIPS)):
        path = rng.choice(files)
        if number % 50 == 49:
            path = large
            elman.load(path.parent)  # remembered from now on
        count.add(_flip(path, rng))
    return count.figure(" flips found at load", least=FLIPS)


def _flip(path: Path, rng: random.Random) -> str | None:
    place, bit = rng.randrange(path.stat().st_size), 1 << rng.randrange(8)
    _toggle(path, place, bit)
    try:
        elman.load(path.parent)
    except DataError:
        return None
    except Exception as error:
        return f"{path.name}, byte {place}: {type(error).__name__}: {error}"
    finally:
        _toggle(path, place, bit)
    return f"{path.name}, byte {place}, bit {bit} was not noticed"


def _toggle(path: Path, place: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ bit]))
