"""What several processes are worth on this machine, and whether they learn what one would have learned.

    python benchmarks/torchrun.py alike [--steps 100] [--names lstm tag ...]
    python benchmarks/torchrun.py kills [--kills 20]
    python benchmarks/torchrun.py speed TEXT [--hidden 256,512] [--steps 60] [--rounds 3]
    python benchmarks/torchrun.py sync TRAIN VALID [--steps 600] [--every 1,8,32]

alike: every family and task, float32 without dropout, by one process and by two: the largest relative difference of a loss.
kills: a process is killed at a random step; does the run end with the weights that it would have had?
speed: tokens a second of one process with one thread, one with two, two with one each, the batch the same or twice as large.
sync: validation perplexity and bytes sent, by gradients in every step and by averages of the weights now and then.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
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
from tests.training.together import environment, launch, work  # noqa: E402


def alike(options: argparse.Namespace, folder: Path) -> None:
    """The largest relative difference of a loss, for each family and task."""
    write_data(folder)
    names = [name for name, case in CASES.items() if case.is_net and case.needs is None]
    names = [name for name in names if name in (options.names or names)]
    changes = {"train.steps": options.steps, "train.batch": 16, "train.validate_steps": None}
    changes |= {"train.learning_rate": 0.002}  # a loss that has come near 0 has no digits to compare
    pairs = [{n: job(name, f"{n}-{name}", **changes) | {"float64": False} for n in ("one", "two")} for name in names]
    assert launch([pair["two"] for pair in pairs], folder, timeout=3600) == [{}, {}]
    os.chdir(folder)
    assert work([pair["one"] for pair in pairs]) == {}
    for name in names:
        one, two = (_losses(folder / f"{number}-{name}") for number in ("one", "two"))
        assert len(one) == len(two) == options.steps
        worst = max(abs(a - b) / abs(a) for a, b in zip(one, two, strict=True))
        _say(f"alike {name}", f"{worst:.1e} relative over {len(one)} steps", "1e-5", worst <= 1e-5)


def _losses(directory: Path) -> list[float]:
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [line["nats_per_token"] for line in lines if "nats_per_token" in line]


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
                settings |= {"train.bptt": 35, "model.dropout": 0.2, "train.precision": "float32"}
                _train(options.text, None, folder / "speed", settings, processes=processes, threads=threads)
                best[name] = max(best[name], _tokens_per_second(folder / "speed"))
        base = best["1 process, 1 thread"]
        for name, found in best.items():
            print(f"speed, {hidden} units: {name}: {found:,.0f} tokens/s, {found / base:.2f} times", flush=True)


def _tokens_per_second(directory: Path) -> float:
    """Of the last lines of a journal, the best: each is of the last twenty steps."""
    lines = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return max(line["tokens_per_second"] for line in lines[len(lines) // 2 :] if "tokens_per_second" in line)


def sync(options: argparse.Namespace, folder: Path) -> None:
    """What is sent over the loopback device, and what is learned."""
    common = {"model.hidden": 200, "train.batch": 64, "train.steps": options.steps, "model.dropout": 0.2}
    common |= {"train.bptt": 35, "train.precision": "float32"}
    for every in [None, *options.every.split(",")]:
        settings = common | ({} if every is None else {"train.sync": every})
        before = _loopback_bytes()
        _train(options.train, options.valid, folder / "sync", settings, processes=2, threads=1)
        sent = _loopback_bytes() - before
        config = json.loads((folder / "sync" / "config.json").read_text())
        name = "gradients in every step" if every is None else f"averages every {every} steps"
        per_step = sent / options.steps / 1e6
        print(f"{name}: perplexity {config['valid']['perplexity']:.2f}, {per_step:.2f} MB a step", flush=True)


def _loopback_bytes() -> int:
    found = re.search(r"lo:\s*(\d+)", Path("/proc/net/dev").read_text())
    return int(found[1]) if found else 0


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
    one.add_argument("--names", nargs="*")
    one = what.add_parser("kills")
    one.add_argument("--kills", type=int, default=20)
    one = what.add_parser("speed")
    one.add_argument("text", type=Path)
    one.add_argument("--hidden", default="256,512")
    one.add_argument("--steps", type=int, default=60)
    one.add_argument("--rounds", type=int, default=3)
    one = what.add_parser("sync")
    one.add_argument("train", type=Path)
    one.add_argument("valid", type=Path)
    one.add_argument("--steps", type=int, default=600)
    one.add_argument("--every", default="1,8,32")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        {"alike": alike, "kills": kills, "speed": speed, "sync": sync}[options.what](options, Path(folder))


if __name__ == "__main__":
    main()
