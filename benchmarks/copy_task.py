"""Remember a symbol over a gap of noise: accuracy by distance and the size of gradients by distance, for rnn, gru and lstm.

    python benchmarks/copy_task.py --out DIR [--gaps 50,200] [--cells rnn,gru,lstm] [--steps 4000] [--threads 1] [--seed 1]

A line is a symbol, noise, a sign that asks, and the symbol again: `c z z x y w = c`. The gaps of the training lines are of every
length up to the largest (by their logarithm), so that short ones teach the long ones. Every line is read alone and to its end:
gradients go through all of it. All cells have the same size and the same steps. What is measured is what anybody can measure:

    elman explain DIR… --kind reach --set probe=copy        accuracy by distance
    elman explain DIR… "c z z … = c" --kind gradients       the size of d loss_t / d h_k by t - k
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import elman
from elman import pictures
from elman.explain import explain, probes

BEYOND = probes.Copy.first  # a gap of g symbols is a distance of g + 2: the sign that asks is between, too
MEASURED = (1, 5, 10, 20, 30, 50, 100, 150, 200)
VALID_LINES = 400
SETTINGS = {
    "model.hidden": 64,
    "model.embedding": 64,
    "model.tied": False,
    "model.dropout": 0,
    "train.learning_rate": 0.01,
    "train.clip": 1.0,
    "train.fit_temperature": False,
}


def run(gap: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train every cell on gaps up to this one; accuracy and gradients by distance."""
    folder = options.out / f"gap-{gap}"
    folder.mkdir(parents=True, exist_ok=True)
    train, valid = folder / "train.txt", folder / "valid.txt"
    for path, count, seed in ((train, options.lines, options.seed), (valid, VALID_LINES, options.seed + 1)):
        lines = probes.lines("copy", longest=gap + BEYOND, count=count, seed=seed)
        path.write_text("".join(f"{line}\n" for line in lines))
    made, seconds = [], {}
    for cell in options.cells:
        out = folder / cell
        if not (out / "config.json").exists():
            elman.train(
                "lm",
                train,
                valid=valid,
                model=cell,
                units="space",
                reset_lines=True,
                # about so many tokens a step, in whole lines of like length: small steps, many of them
                settings=SETTINGS | {"train.batch": 16, "train.bptt": max(25, gap // 4), "train.steps": options.steps},
                out=out,
                seed=options.seed,
                threads=options.threads,
                overwrite=True,
            )
        made.append(elman.load(out))
        seconds[cell] = round(made[-1].info()["seconds"])
        print(f"gap {gap}, {cell}: {seconds[cell]} s", flush=True)
    distances = tuple(measured + BEYOND for measured in MEASURED if measured <= gap)
    reach = explain(
        made,
        [],
        kind="reach",
        options={"probe": "copy", "distances": distances, "items": 200, "seed": options.seed + 2},
    )
    line = probes.probe_named("copy").item(gap + BEYOND, np.random.default_rng(options.seed + 3)).line
    gradients = explain(made, [line], kind="gradients", options={"losses": 1000})
    for name, found in (("accuracy", reach), ("gradients", gradients)):
        for ending in ("svg", "json"):
            found.save(folder / f"{name}.{ending}", overwrite=True)
    print(reach)
    print(gradients)
    found = {"gap": gap, "seconds": seconds, "accuracy": reach.data, "gradients": gradients.data}
    (folder / "found.json").write_text(json.dumps(found))
    return found


def table(found: dict[str, Any]) -> str:
    """Accuracy by gap, and how much of the gradient is left over it, in Markdown."""
    rows = found["accuracy"]["models"]
    gaps = [row["distance"] - BEYOND for row in rows[0]["by_distance"]]
    lines = [f"| up to {found['gap']} | {' | '.join(map(str, gaps))} | gradient left | seconds |"]
    lines.append("|---" * (len(gaps) + 3) + "|")
    for row, traced in zip(rows, found["gradients"]["models"], strict=True):
        accuracy = " | ".join(f"{100 * one['accuracy']:.0f}" for one in row["by_distance"])
        left = remaining(traced, found["gap"] + 1)  # the state right after the symbol was read
        lines.append(f"| `{row['model']}` | {accuracy} | {left:.1e} | {found['seconds'][row['model']]} |")
    return "\n".join(lines)


def remaining(traced: dict[str, Any], distance: int) -> float:
    """The size of the gradient by the state so far back, as a share of that by the state of the loss itself.

    Of an lstm it is c that carries it.
    """
    curves = [layer["by_distance"] for layer in traced["layers"] if layer["name"].startswith("layer 1")]
    return max(float(curve[distance] / curve[0]) for curve in curves)


def draw(found: dict[str, Any], folder: Path) -> None:
    """Both in one picture: gradients by distance, and accuracy by distance beside them."""
    rows = [
        {"tokens back": distance, "value": size, "cell": f"{traced['model']} {layer['name'][-1]}"}
        for traced in found["gradients"]["models"]
        for layer in traced["layers"]
        if layer["name"].startswith("layer 1")
        for distance, size in enumerate(layer["by_distance"])
        if size and distance <= found["gap"] + 1  # beyond is only the start of the line
    ]
    left = pictures.line_chart(
        rows, x="tokens back", y="value", colour="cell", title="Size of d loss / d h so far back", log_y=True
    )
    accuracies = [
        {"tokens back": row["distance"], "value": row["accuracy"], "cell": one["model"]}
        for one in found["accuracy"]["models"]
        for row in one["by_distance"]
    ]
    right = pictures.line_panels(
        accuracies, x="tokens back", y="value", colour="cell", title="Share of symbols recalled", y_domain=(0, 1)
    )
    left["encoding"]["y"]["axis"] = {"format": "~e", "tickCount": 8}
    parts = []
    for chart, name in ((left, "gradient"), (right, "accuracy")):
        chart["encoding"]["y"]["title"] = name
        chart["encoding"]["color"]["sort"] = None  # as the cells were given, so that both sides agree
        parts.append({key: value for key, value in chart.items() if key != "$schema"} | {"width": 300, "height": 220})
    both = {"$schema": pictures.SCHEMA, "hconcat": parts, "resolve": {"scale": {"color": "independent"}}}
    pictures.write(both, folder / "copy.svg", overwrite=True)
    print(f"the picture is {folder / 'copy.svg'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gaps", default="50,200")
    parser.add_argument("--cells", default="rnn,gru,lstm")
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.cells = options.cells.split(",")
    for gap in map(int, options.gaps.split(",")):
        found = run(gap, options)
        draw(found, options.out / f"gap-{gap}")
        print(table(found), flush=True)


if __name__ == "__main__":
    main()
