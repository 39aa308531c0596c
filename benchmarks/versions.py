"""Is this version as fast as that one? Two source trees, the same commands, one after the other in turns, best of several.

    python benchmarks/versions.py OLD NEW --data TEXT [--rounds 3] [--threads 1]

OLD and NEW are checkouts (with `src/`), TEXT a text of some 5,000 lines. Printed is old : new for each command, whole
processes; above 1 the new one is faster.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NET = ["--epochs", "1", "--set", "model.hidden=256", "--valid", "none", "--overwrite"]


def commands(text: str, folder: Path) -> dict[str, list[str]]:
    """What is timed; models that later commands need are made by earlier ones."""
    lstm, gru, mkn = (str(folder / name) for name in ("lstm", "gru", "mkn"))
    return {
        "train lstm": ["train", "lm", text, "--model", "lstm", "--out", lstm, *NET],
        "train gru": ["train", "lm", text, "--model", "gru", "--out", gru, *NET],
        "train mkn": ["train", "lm", text, "--model", "mkn", "--valid", "none", "--out", mkn, "--overwrite"],
        "evaluate lstm": ["evaluate", lstm, text],
        "evaluate gru": ["evaluate", gru, text],
        "score mkn": ["score", mkn, text],
        "generate lstm": ["generate", lstm, "--tokens", "2000", "--seed", "1"],
        "--help": ["--help"],
    }


def seconds(tree: Path, arguments: list[str], threads: int) -> float:
    """How long one command takes."""
    environment = os.environ | {"PYTHONPATH": str((tree / "src").resolve()), "OMP_NUM_THREADS": str(threads)}
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "elman", *arguments],
        env=environment,
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )
    return time.perf_counter() - begin


def main() -> None:
    """Time both in turns and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    best: dict[tuple[str, str], float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        trees = {"old": options.old, "new": options.new}
        for _ in range(options.rounds):
            for name in commands(options.data, Path(scratch)):
                for which, tree in trees.items():
                    folder = Path(scratch) / which
                    folder.mkdir(exist_ok=True)
                    taken = seconds(tree, commands(options.data, folder)[name], options.threads)
                    best[which, name] = min(taken, best.get((which, name), float("inf")))
    for name in commands(options.data, Path()):
        old, new = best["old", name], best["new", name]
        print(f"{name:<14} old {old:7.2f} s  new {new:7.2f} s  old : new {old / new:.3f}")


if __name__ == "__main__":
    main()
