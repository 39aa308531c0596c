"""What plain text is worth where labels are few: a task alone, and on the foundation of a language model, in equal time.

    python benchmarks/foundation.py classify TRAIN VALID --out DIR [--budget 20m] [--share 0.1] [--kind lm] [--threads 1]
    python benchmarks/foundation.py tag TRAIN VALID --out DIR [--budget 20m] [--share 0.1] [--kind bilm] [--threads 1]

TRAIN and VALID are what `elman train` takes (imdb and sst2 as tables, conll2003 as columns). Of TRAIN a share keeps its
labels, every so many-th row. Alone: the whole budget for these rows. Founded: a part of the budget (--text-share) for a
language model of all texts of TRAIN without their labels (or of --text FILE), the rest for the same rows with
`--init`. Both are measured on VALID, which chooses their weights on the way too, so the difference is what counts.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import elman
from elman.tasks.classify.config import LabelledConfig
from elman.tasks.classify.data import read_labelled
from elman.tasks.tag.config import SentencesConfig
from elman.tasks.tag.conll import read_sentences
from elman.training.budget import format_duration, parse_duration

SHOWN = ("accuracy", "f1", "linear_accuracy")


def write_texts(train: Path, out: Path, *, share: float) -> tuple[Path, Path, int]:
    """Labelled texts: a part with their labels, all without, lower-cased as a classifier reads them."""
    pairs = read_labelled([train], LabelledConfig())
    rows = range(0, len(pairs), round(1 / share))
    lines = [f"{pairs.targets[row]}\t{' '.join(pairs.sources[row].split())}\n" for row in rows]
    texts = [f"{' '.join(text.lower().split())}\n" for text in pairs.sources]
    return _write(out / "few.tsv", lines), _write(out / "text.txt", texts), len(rows)


def write_sentences(train: Path, out: Path, *, share: float) -> tuple[Path, Path, int]:
    """Sentences with tags: a part as they are, all as words alone."""
    sentences, _ = read_sentences([train], SentencesConfig())
    few = sentences[:: round(1 / share)]
    blocks = ["".join(f"{w} {t}\n" for w, t in zip(one.words, one.tags, strict=True)) + "\n" for one in few]
    texts = [" ".join(one.words) + "\n" for one in sentences]
    return _write(out / "few.conll", blocks), _write(out / "text.txt", texts), len(few)


def _write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(lines), encoding="utf-8")
    return path


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Both ways, each within the budget."""
    options.out.mkdir(parents=True, exist_ok=True)
    write, units = (write_texts, "word") if options.task == "classify" else (write_sentences, "space")
    few, text, num_rows = write(options.train, options.out, share=options.share)
    seconds = parse_duration(options.budget)
    text_seconds = options.text_share * seconds
    more = {"threads": options.threads, "overwrite": True, "report": print}
    print(f"{num_rows:,} labelled rows; {format_duration(seconds)} each")
    alone = elman.train(options.task, few, valid=options.valid, out=options.out / "alone", budget=seconds, **more)
    sizes = {"model.hidden": options.hidden, "model.embedding": options.hidden, "model.layers": 1}
    elman.train(
        options.kind,
        options.text or text,
        model=options.model,
        units=units,
        reset_lines=True,
        out=options.out / "foundation",
        settings=sizes,
        budget=text_seconds,
        **more,
    )
    founded = elman.train(
        options.task,
        few,
        valid=options.valid,
        out=options.out / "founded",
        init=options.out / "foundation",
        budget=seconds - text_seconds,
        **more,
    )
    return {
        "rows": num_rows,
        "seconds": seconds,
        **{name: made.evaluate(options.valid) for name, made in (("alone", alone), ("founded", founded))},
    }


def main() -> None:
    """Compare, print and keep the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("classify", "tag"))
    parser.add_argument("train", type=Path)
    parser.add_argument("valid", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", default="20m", help="of each of the two ways, the language model included")
    parser.add_argument("--text-share", type=float, default=0.5, help="of the budget, for the language model")
    parser.add_argument("--share", type=float, default=0.1, help="of the rows that keep their labels")
    parser.add_argument("--kind", choices=("lm", "bilm", "masked"), default="bilm")
    parser.add_argument("--model", choices=("rnn", "gru", "lstm"), default="lstm")
    parser.add_argument("--hidden", type=int, default=200)
    parser.add_argument("--text", type=Path, help="plain text instead of that of TRAIN")
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    found = compare(options)
    (options.out / "numbers.json").write_text(json.dumps(found, indent=1))
    for name in ("alone", "founded"):
        numbers = {key: found[name][key] for key in SHOWN if key in found[name]}
        print(f"{name:<8} " + "  ".join(f"{key} {value:.4f}" for key, value in numbers.items()))


if __name__ == "__main__":
    main()
