"""A plain text to learn from, and commands that train small nets on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

SMALL = ["--set", "model.hidden=8", "--set", "train.batch=4", "--set", "train.bptt=12", "--threads", "1"]
WORDS = ["the", "cat", "sat", "on", "mat", "dog", "ran", "far"]


def write_text(path: Path) -> None:
    """Lines in which every word is between the same two, so that there is something to restore it from."""
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(200):
        first = rng.integers(len(WORDS))
        lines.append(" ".join(WORDS[(first + step) % len(WORDS)] for step in range(rng.integers(3, 9))))
    path.write_text("\n".join(lines) + "\n")


def arguments(task: str, text: Path, out: Path, *more: str) -> list[str]:
    """The words of a command that trains a small net."""
    return ["train", task, str(text), "--units", "space", "--out", str(out), *SMALL, *more]
