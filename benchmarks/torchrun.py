"""What several processes are worth on this machine, and whether they learn what one would have learned.

    python benchmarks/torchrun.py alike [--steps 100] [--rate 0.002] [--names lstm tag ...]
    python benchmarks/torchrun.py kills [--kills 20]
    python benchmarks/torchrun.py speed TEXT [--hidden 256,512] [--steps 20] [--rounds 3]
    python benchmarks/torchrun.py sync TRAIN VALID [--steps 640] [--every 0,1,2,8,32]

alike: every family and task without dropout, float32 and float64, by one process and by two: how far losses differ.
kills: a process is killed at a random step; does the run end with the weights that it would have had?
speed: tokens a second of one process with one thread, one with two, two with one each, the batch the same or twice as large.
sync: validation perplexity and bytes that a process sends, by gradients in every step (0) or by averages of the weights.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from safetensors.numpy import load_file  # noqa: E402

from tests.guards.cases import CASES, write_data  # noqa: E402
from tests.training.test_distributed import job  # noqa: E402
from tests.training.together import Job, environment, launch, work  # noqa: E402

TARGETS = {32: 1e-5, 64: 1e-9}  # largest relative difference of a loss, by the bits of a number


def alike(options: argparse.Namespace, folder: Path) -> None:
    """The largest relative difference of a loss, for each family and task, in both precisions."""
    write_data(folder)
    names = [name for name, case in CASES.items() if case.is_net and case.needs is None]
    names = [name for name in names if name in (options.names or names)]
    changes = {"train.steps": options.steps, "train.batch": 16, "train.validate_steps": None}
    changes |= {"train.learning_rate": options.rate}
    kinds = [(name, bits) for name in names for bits in TARGETS]

    def jobs(number: str) -> list[Job]:
        return [job(name, f"{number}-{name}-{bits}", **changes) | {"float64": bits == 64} for name, bits in kinds]

    assert launch(jobs("two"), folder, timeout=3600) == [{}, {}]
    os.chdir(folder)
    assert (errors := work(jobs("one"))) == {}, errors
    largest = dict.fromkeys(TARGETS, 0.0)
    for name, bits in kinds:
        one, two = (_journal(folder / f"{number}-{name}-{bits}", "nats_per_token") for number in ("one", "two"))
        assert len(one) == len(two) == options.steps
        worst = max(abs(a - b) / abs(a) for a, b in zip(one, two, strict=True))
        largest[bits] = max(largest[bits], worst)
        figure = f"{worst:.1e} relative over {len(one)} steps, the last loss {one[-1]:.2g}"
        _say(f"alike {name}, float{bits}", figure, f"{TARGETS[bits]:.0e}", worst <= TARGETS[bits])
    for bits, worst in largest.items():
        figure = f"{worst:.1e} relative, the largest of {len(names)} nets"
        _say(f"alike, float{bits}, rate {options.rate}", figure, f"{TARGETS[bits]:.0e}", worst <= TARGETS[bits])


def kills(options: argparse.Namespace, folder: Path) -> None:
    """A run of which a process is killed again and again: is it gone on with every time, to the same weights?"""
    write_data(folder)
    steps, rng = 4 * options.kills + 4, random.Random(1)
    noisy = {"train.steps": steps, "train.validate_steps": 10, "train.checkpoint_steps": 3, "train.average": "ema"}
    noisy |= {"model.dropout": 0.2}
    assert launch([job("lstm", "whole", **noisy)], folder) == [{}, {}]
    places = [{"rank": rng.randrange(2), "step": 4 * number + rng.randrange(4)} for number in range(options.kills)]
    killed = job("lstm", "killed", **noisy) | {"stop": places}
    began = time.perf_counter()
    errors = launch([killed], folder, "--standalone", "--max-restarts", str(options.kills), timeout=3600)
    seconds = (time.perf_counter() - began) / (options.kills + 1)
    wanted, found = (load_file(folder / name / "model.safetensors") for name in ("whole", "killed"))
    is_same = errors == [{}, {}] and all((found[key] == wanted[key]).all() for key in wanted)
    weights = (
        "the weights of the run that was left alone" if is_same else "other weights than the run that was left alone"
    )
    figure = f"{options.kills} kills, {weights}, {seconds:.1f} s each"
    _say("kills", figure, "the same weights", is_same)


def speed(options: argparse.Namespace, folder: Path) -> None:
    """Tokens a second, best of several rounds that take turns."""
    ways = {
        "1 process, 1 thread": (1, 1, 64),
        "1 process, 2 threads": (1, 2, 64),
        "2 processes, 1 thread each": (2, 1, 64),
        "1 process, 2 threads, twice the batch": (1, 2, 128),
        "2 processes, 1 thread each, twice the batch": (2, 1, 128),
    }
    for hidden in options.hidden.split(","):
        best = dict.fromkeys(ways, 0.0)
        for _ in range(options.rounds):
            for name, (processes, threads, rows) in ways.items():
                settings = {"model.hidden": hidden, "train.batch": rows, "train.steps": options.steps}
                settings |= {"train.bptt": 35, "model.dropout": 0.2, "train.precision": "float32", "model.head": "full"}
                settings |= {"train.log_steps": 5, "data.max_words": 2000}
                _train(options.text, None, folder / "speed", settings, processes=processes, threads=threads)
                best[name] = max(best[name], _tokens_per_second(folder / "speed"))
        base = best["1 process, 1 thread"]
        for name, found in best.items():
            print(f"speed, {hidden} units: {name}: {found:,.0f} tokens/s, {found / base:.2f} times", flush=True)


def _tokens_per_second(directory: Path) -> float:
    """Of the last lines of a journal, the best: each is of the last twenty steps."""
    found = _journal(directory, "tokens_per_second")
    return max(found[len(found) // 2 :])


def sync(options: argparse.Namespace, folder: Path) -> None:
    """What a process sends, and what is learned in equally many steps."""
    common = {"model.hidden": 128, "model.head": "full", "model.dropout": 0.0, "data.max_words": 2000}
    common |= {"train.batch": 16, "train.bptt": 20, "train.steps": options.steps, "train.precision": "float32"}
    for every in options.every.split(","):
        settings = common | ({} if every == "0" else {"train.sync": every})
        _train(options.train, options.valid, folder / "sync", settings, processes=2, threads=1)
        config = json.loads((folder / "sync" / "config.json").read_text())
        sent = _journal(folder / "sync", "sent_bytes")[-1] / 1e6
        name = "gradients in every step" if every == "0" else f"train.sync={every}"
        quality = f"perplexity {config['valid']['perplexity']:.2f} after {config['outcome']['steps']} steps"
        print(f"{name}: {quality}, {sent:.1f} MB sent, {sent / options.steps:.3f} a step", flush=True)


def _journal(directory: Path, key: str) -> list[float]:
    """What the lines of a journal say, those that have the key."""
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [line[key] for line in lines if key in line]


def _train(
    text: Path, valid: Path | None, out: Path, settings: Mapping[str, Any], *, processes: int, threads: int
) -> None:
    arguments = ["-m", "elman", "train", "lm", str(text), "--valid", str(valid or "none"), "--model", "lstm"]
    arguments += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    arguments += ["--threads", str(threads), "--out", str(out), "--overwrite"]
    start = [sys.executable]
    if processes > 1:
        start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    run = environment() | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run([*start, *arguments], env=run, capture_output=True, text=True, check=False, timeout=3600)
    assert done.returncode == 0, done.stderr


def _say(name: str, figure: str, target: str, has_passed: bool) -> None:
    print(f"{name}\t{figure}\t{target}\t{'pass' if has_passed else 'fail'}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_subparsers(dest="what", required=True)
    one = what.add_parser("alike")
    one.add_argument("--steps", type=int, default=100)
    one.add_argument("--rate", type=float, default=0.002)
    one.add_argument("--names", nargs="*")
    one = what.add_parser("kills")
    one.add_argument("--kills", type=int, default=20)
    one = what.add_parser("speed")
    one.add_argument("text", type=Path)
    one.add_argument("--hidden", default="256,512")
    one.add_argument("--steps", type=int, default=20)
    one.add_argument("--rounds", type=int, default=3)
    one = what.add_parser("sync")
    one.add_argument("train", type=Path)
    one.add_argument("valid", type=Path)
    one.add_argument("--steps", type=int, default=640)
    one.add_argument("--every", default="0,1,2,8,32")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        {"alike": alike, "kills": kills, "speed": speed, "sync": sync}[options.what](options, Path(folder))


if __name__ == "__main__":
    main()
