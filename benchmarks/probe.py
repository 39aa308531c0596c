"""What recurrent nets and a Transformer learn to keep: agreement or recall over growing distance, trained in.

    python benchmarks/probe.py agreement|recall|copy --out DIR [--longest 53] [--models mkn,rnn,lstm] [--steps 3000]
    python benchmarks/probe.py recall --out DIR --only-text

Writes sentences of a probe's grammar (`elman.explain.probes`) to train and to validate on, trains every model on them, each
line alone, and shows how often the word that depends on one far before it is right, by distance, also beyond the longest of the
training text.
The same for any model: `elman explain DIR… --kind reach --set probe=recall`.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import elman
from elman.explain import explain, probes

SETTINGS = {
    "model.hidden": 64,
    "model.embedding": 64,
    "model.dropout": 0,
    "train.learning_rate": 0.01,
    "train.clip": 1.0,
    "train.batch": 16,
    "train.bptt": 25,
    "train.fit_temperature": False,
}
TRANSFORMER = {"train.learning_rate": 0.001, "model.layers": 2, "model.attention_heads": 2, "model.window": 128}


def write_text(folder: Path, options: argparse.Namespace) -> tuple[Path, Path]:
    """Sentences to train on, and others to validate on."""
    folder.mkdir(parents=True, exist_ok=True)
    train, valid = folder / "train.txt", folder / "valid.txt"
    for path, count, seed in ((train, options.lines, options.seed), (valid, options.lines // 50, options.seed + 1)):
        lines = probes.lines(options.probe, longest=options.longest, count=count, seed=seed)
        path.write_text("".join(f"{line}\n" for line in lines))
        print(f"wrote {count:,} lines into {path}")
    return train, valid


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("probe", choices=list(probes.PROBES))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--longest", type=int, default=53, help="distance of the training text, in words")
    parser.add_argument("--models", default="mkn,rnn,gru,lstm,transformer")
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only-text", action="store_true", help="write the sentences and end")
    options = parser.parse_args()
    train, valid = write_text(options.out, options)
    if options.only_text:
        return
    made = []
    for model in options.models.split(","):
        started = time.monotonic()
        settings = SETTINGS | (TRANSFORMER if model == "transformer" else {}) | {"train.steps": options.steps}
        made.append(
            elman.train(
                "lm",
                train,
                valid=valid,
                model=model,
                units="space",
                reset_lines=True,
                settings={} if model == "mkn" else settings,
                out=options.out / model,
                seed=options.seed,
                threads=options.threads,
                overwrite=True,
            )
        )
        print(f"{model}: {time.monotonic() - started:.0f} s", flush=True)
    distances = sorted({max(1, round(options.longest * share)) for share in (0.05, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2)})
    settings = {"probe": options.probe, "distances": tuple(distances), "items": 200, "seed": options.seed + 2}
    found = explain(made, [], kind="reach", options=settings)
    for ending in ("svg", "json"):
        found.save(options.out / f"{options.probe}.{ending}", overwrite=True)
    print(found)
    print(f"the picture is {options.out / f'{options.probe}.svg'}")


if __name__ == "__main__":
    main()
