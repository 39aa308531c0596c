"""What the length of a source does to decoders that see it in different ways: two experiments and their pictures.

    python benchmarks/lengths.py contexts TRAIN.tsv VALID.tsv --out DIR [--budget 3m] [--threads 1]
    python benchmarks/lengths.py joined SOURCE TARGET VALID_SOURCE VALID_TARGET --out DIR [--budget 20m] [--threads 1]

contexts: every `model.context` on one task (the noisy name reversal, say), exact match by source length.
joined: sentences joined in ones to fours, so that there are sources of up to 60 words and more; decoders with and
without attention (`initial`), each trained on sources of up to 15 and of up to 30 words, and all measured on all
lengths (BLEU). Both sides have the same sizes, the same time and the same settings otherwise.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import elman
from elman import pictures
from elman.api import EvaluateOptions
from elman.tasks.seq2seq.model import Translator

CONTEXTS = ("initial", "every", "all", "fixed", "attention")
TRAINED_LENGTHS = (15, 30)
MAX_JOINED = 4
MAX_WORDS = 60


def compare_contexts(options: argparse.Namespace) -> None:
    """Every context, the same time."""
    tables: dict[str, Any] = {}
    for context in CONTEXTS:
        settings = {"model.context": context, "data.units": "char", **_pairs(options.set)}
        made = _train(options.out / context, options.train, options.valid, settings, options)
        found = made.evaluate([options.valid], EvaluateOptions(beam=options.beam))
        tables[context] = found["by_length"]
        print(f"{context:<10} exact match {found['exact_match']:.4f}  edits {found['edit_distance']:.4f}", flush=True)
    _keep(tables, options.out, number="exact_match", title="Exact match by the source's length")


def compare_joined(options: argparse.Namespace) -> None:
    """With and without attention, trained on short sources and on longer ones."""
    train = _join_lines(options.source, options.target, options.out / "train.tsv", seed=1)
    valid = _join_lines(options.valid_source, options.valid_target, options.out / "valid.tsv", seed=2)
    tables: dict[str, Any] = {}
    for longest in TRAINED_LENGTHS:
        for context in ("initial", "attention"):
            name = f"{context}, trained up to {longest}"
            settings = {"model.context": context, "data.max_length": longest, "data.units": "word"}
            folder = options.out / f"{context}-{longest}"
            made = _train(folder, train, valid, {**settings, **_pairs(options.set)}, options)
            found = made.evaluate([valid], EvaluateOptions(beam=options.beam))
            tables[name] = found["by_length"]
            print(f"{name:<28} BLEU {found['bleu']:.2f}  chrF {found['chrf']:.2f}", flush=True)
    _keep(tables, options.out, number="bleu", title="BLEU by the source's length")


def _train(out: Path, data: Path, valid: Path, settings: Mapping[str, Any], options: argparse.Namespace) -> Translator:
    """The model in a folder, where a run before this one has left it; else a new one."""
    if (out / "config.json").exists():
        print(f"{out} is there already")
        found = elman.load(out)
        assert isinstance(found, Translator)
        return found
    made = elman.train(
        "seq2seq",
        data,
        valid=valid,
        out=out,
        settings=settings,
        budget=options.budget,
        threads=options.threads,
        overwrite=True,
        report=print,
    )
    assert isinstance(made, Translator)
    return made


def _join_lines(source: Path, target: Path, out: Path, *, seed: int) -> Path:
    """A table in which every sentence is once alone, once in a pair, in a three and in a four; of up to 60 words."""
    sides = [
        [" ".join(line.split()) for line in path.read_text(encoding="utf-8").rstrip("\n").split("\n")]
        for path in (source, target)
    ]
    rng = np.random.default_rng(seed)
    rows = []
    for size in range(1, MAX_JOINED + 1):
        order = rng.permutation(len(sides[0]))
        for first in range(0, len(order), size):
            texts = [" ".join(side[i] for i in order[first : first + size]) for side in sides]
            if len(texts[0].split()) <= MAX_WORDS:
                rows.append("\t".join(texts))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return out


def _keep(tables: Mapping[str, Any], out: Path, *, number: str, title: str) -> None:
    (out / "by_length.json").write_text(json.dumps(tables, indent=1))
    pictures.write(pictures.by_length(tables, number=number, title=title), out / "by_length.svg")
    print(f"the picture is {out / 'by_length.svg'}")


def _pairs(settings: list[str] | None) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in settings or ())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    contexts = commands.add_parser("contexts")
    joined = commands.add_parser("joined")
    for command, names in (
        (contexts, ("train", "valid")),
        (joined, ("source", "target", "valid_source", "valid_target")),
    ):
        for name in names:
            command.add_argument(name, type=Path)
        command.add_argument("--out", type=Path, required=True)
        command.add_argument("--budget", default="3m")
        command.add_argument("--threads", type=int)
        command.add_argument("--beam", type=int, help="of the decoder when it is measured; 1 is greedy")
        command.add_argument("--set", action="append", metavar="KEY=VALUE")
    options = parser.parse_args()
    compare_contexts(options) if options.command == "contexts" else compare_joined(options)


if __name__ == "__main__":
    main()
