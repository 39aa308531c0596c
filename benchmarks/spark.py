"""Counting on Apache Spark against the local engine: are the tables the same, and from where on is it worth it?

    python benchmarks/spark.py identity TEXT [--lines N] [--order 5] [--model mkn] [-- TRAIN OPTIONS]
    python benchmarks/spark.py time TEXT [--tokens 1,5,17] [--masters local[1],local[2]] [--order 5] [--rounds 1]
    python benchmarks/spark.py memory TEXT [--lines N] [--fraction 0.005] [--partitions 32] [--conf K=V,…] [--order 5]
    python benchmarks/spark.py kill TEXT [--lines N] [--at 20,30,40] [--order 5]

TEXT is plain or .gz, one sentence a line. `identity` counts it with both engines and compares every entry of every table,
to the bit. `time` takes the first so many million tokens: whole processes, from start to the saved model, in turns, the
best of several rounds. `memory` counts with little memory to sort, join and cache in, a fraction of the text itself, reads
from Spark's event log how much that was and what was spilled to disk, and compares the tables. `kill` counts on two
executors, kills one of them after so many seconds, and compares the tables again. Needs the extra `scale` and Java.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gzip
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

PLAIN = ("--units", "space", "--valid", "none")


@dataclass(frozen=True)
class Run:
    """What a process took."""

    seconds: float
    core_seconds: float  # of it and of all that it started: what it takes of a machine that does other things, too


class Watch(threading.Thread):
    """Adds up the time that a process and its descendants take of the cores, as long as it runs."""

    def __init__(self, number: int) -> None:
        super().__init__(daemon=True)
        self._first = psutil.Process(number)
        self._taken: dict[int, float] = {}
        self.start()

    def run(self) -> None:
        """Look twice a second: a process that ends in between takes little with it."""
        while self._first.is_running() and self._first.status() != psutil.STATUS_ZOMBIE:
            with contextlib.suppress(psutil.Error):
                for one in (self._first, *self._first.children(recursive=True)):
                    with contextlib.suppress(psutil.Error):
                        self._taken[one.pid] = sum(one.cpu_times()[:2])
            time.sleep(0.5)

    def core_seconds(self) -> float:
        """Of all of them."""
        return sum(self._taken.values())


def train(text: Path, out: Path, *options: str, beside: Callable[[int], None] = lambda number: None) -> Run:
    """A whole `elman train lm`. beside: what is done meanwhile, given the number of the process"""
    command = [
        sys.executable,
        "-m",
        "elman",
        "train",
        "lm",
        str(text),
        "--out",
        str(out),
        "--overwrite",
        *PLAIN,
        *options,
    ]
    with tempfile.TemporaryFile() as said:
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=said, stderr=said)
        watch = Watch(process.pid)
        beside(process.pid)
        process.wait()
        seconds = time.perf_counter() - begin
        if process.returncode:
            said.seek(0)
            sys.exit(f"{' '.join(command)}\nfailed:\n{said.read().decode(errors='replace')[-4000:]}")
    return Run(seconds, watch.core_seconds())


def on_spark(master: str, *conf: str) -> tuple[str, ...]:
    """The options of the other engine."""
    more = ("--set", f"count.conf={','.join(conf)}") if conf else ()
    return ("--set", "count.engine=spark", "--set", f"count.master={master}", *more)


def lines_of(text: Path) -> Iterator[bytes]:
    """The lines of a text."""
    with gzip.open(text) if text.suffix == ".gz" else text.open("rb") as file:
        yield from file


def copy_lines(text: Path, out: Path, *, lines: int | None = None, tokens: int | None = None) -> int:
    """The first lines of a text, or so many that they have so many tokens. -> their tokens, line ends among them"""
    found = 0
    with out.open("wb") as file:
        for number, line in enumerate(lines_of(text)):
            if (lines is not None and number >= lines) or (tokens is not None and found >= tokens):
                break
            file.write(line)
            found += len(line.split()) + 1
    return found


def compare(first: Path, second: Path) -> dict[str, int]:
    """How many entries the tables have, and how many differ in a bit."""
    import elman

    models = [elman.load(directory) for directory in (first, second)]
    one, other = (model.tensors() for model in models)
    assert one.keys() == other.keys(), "other tables"
    entries = different = 0
    for name, table in one.items():
        assert table.shape == other[name].shape, f"{name}: {table.shape} and {other[name].shape}"
        entries += table.size
        different += int(np.count_nonzero(np.asarray(table) != np.asarray(other[name])))
    different += list(models[0].tokenizer.tokens) != list(models[1].tokenizer.tokens)
    return {"tables": len(one), "entries": entries, "different": different}


def taken(local: Run, spark: Run) -> dict[str, float]:
    """Seconds, and core-seconds, of both."""
    runs = {"local": local, "spark": spark}
    seconds = {f"{name}_seconds": round(run.seconds, 1) for name, run in runs.items()}
    return seconds | {f"{name}_core_seconds": round(run.core_seconds, 1) for name, run in runs.items()}


def identity(arguments: argparse.Namespace, work: Path) -> None:
    text = work / "text.txt"
    tokens = copy_lines(arguments.text, text, lines=arguments.lines)
    options = ("--model", arguments.model, *arguments.options)
    if arguments.order:
        options += ("--set", f"model.order={arguments.order}")
    local = train(text, work / "local", *options)
    spark = train(text, work / "spark", *options, *on_spark(arguments.masters.split(",")[-1]))
    found = compare(work / "local", work / "spark")
    print(json.dumps({"text": arguments.text.name, "tokens": tokens, **found, **taken(local, spark)}))
    if found["different"]:
        sys.exit("the tables differ")


def measure_time(arguments: argparse.Namespace, work: Path) -> None:
    options = ("--model", arguments.model, "--set", f"model.order={arguments.order or 5}")
    for millions in map(float, arguments.tokens.split(",")):
        text = work / "text.txt"
        tokens = copy_lines(arguments.text, text, tokens=int(millions * 1e6))
        engines = {"local": ()} | {master: on_spark(master) for master in arguments.masters.split(",")}
        best: dict[str, float] = {}
        cores: dict[str, float] = {}
        for _ in range(arguments.rounds):
            for name, engine in engines.items():
                run = train(text, work / "m", *options, *engine)
                best[name] = min(best.get(name, run.seconds), run.seconds)
                cores[f"{name} core-seconds"] = round(run.core_seconds, 1)
        ratios = {
            f"{name} / local": round(seconds / best["local"], 2) for name, seconds in best.items() if name != "local"
        }
        print(
            json.dumps(
                {"tokens": tokens, **{name: round(value, 1) for name, value in best.items()}, **ratios, **cores}
            ),
            flush=True,
        )


def measure_memory(arguments: argparse.Namespace, work: Path) -> None:
    text, events = work / "text.txt", work / "events"
    tokens = copy_lines(arguments.text, text, lines=arguments.lines)
    events.mkdir()
    conf = (
        "spark.driver.memory=512m",  # of which Spark keeps 300 MB for itself; the fraction is of the rest
        f"spark.memory.fraction={arguments.fraction}",
        "spark.buffer.pageSize=64k",  # Spark's own pages of a megabyte and more would be all of it
        f"spark.sql.shuffle.partitions={arguments.partitions}",
        "spark.eventLog.enabled=true",
        f"spark.eventLog.dir={events.as_uri()}",
        "spark.eventLog.compress=false",
        "spark.eventLog.rolling.enabled=false",
        *filter(None, arguments.conf.split(",")),
    )
    options = ("--model", arguments.model, "--set", f"model.order={arguments.order or 5}")
    local = train(text, work / "local", *options)
    spark = train(text, work / "spark", *options, *on_spark(arguments.masters.split(",")[-1], *conf))
    found = read_events(events) | compare(work / "local", work / "spark")
    sizes = {"tokens": tokens, "text_bytes": text.stat().st_size}
    ratio = {"text / memory": round(text.stat().st_size / found["memory_bytes"], 1)}
    print(json.dumps(sizes | ratio | found | taken(local, spark)))
    if found["different"]:
        sys.exit("the tables differ")


def read_events(folder: Path) -> dict[str, int]:
    """What Spark logged of a run: its memory for execution and storage together, and what tasks spilled of it."""
    (log,) = folder.iterdir()
    memory, tasks, spilled = [], 0, 0
    for line in log.open():
        event = json.loads(line)
        if event["Event"] == "SparkListenerBlockManagerAdded":
            memory.append(event["Maximum Memory"])
        elif event["Event"] == "SparkListenerTaskEnd":
            tasks += 1
            spilled += event["Task Metrics"]["Disk Bytes Spilled"] if "Task Metrics" in event else 0
    return {"memory_bytes": sum(memory), "tasks": tasks, "spilled_bytes": spilled}


def kill_executors(arguments: argparse.Namespace, work: Path) -> None:
    def kill_one_at(seconds: float, number: int) -> None:
        time.sleep(seconds)
        family = psutil.Process(number).children(recursive=True)
        executors = [one for one in family if "CoarseGrainedExecutorBackend" in " ".join(one.cmdline())]
        if not executors:
            sys.exit(f"there is no executor after {seconds} s")
        executors[0].kill()

    text = work / "text.txt"
    tokens = copy_lines(arguments.text, text, lines=arguments.lines)
    options = ("--model", arguments.model, "--set", f"model.order={arguments.order or 5}")
    train(text, work / "local", *options)
    for seconds in map(float, arguments.at.split(",")):
        kill = functools.partial(kill_one_at, seconds)
        found = train(text, work / "spark", *options, *on_spark("local-cluster[2,1,1024]"), beside=kill)
        tables = compare(work / "local", work / "spark")
        print(
            json.dumps({"tokens": tokens, "killed_after": seconds, "seconds": round(found.seconds, 1), **tables}),
            flush=True,
        )
        if tables["different"]:
            sys.exit("the tables differ")


def main() -> None:
    own, _, rest = " ".join(sys.argv[1:]).partition(" -- ")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("identity", "time", "memory", "kill"))
    parser.add_argument("text", type=Path)
    parser.add_argument("--lines", type=int)
    parser.add_argument("--tokens", default="1,5,17", help="millions")
    parser.add_argument("--masters", default="local[1],local[2]")
    parser.add_argument(
        "--fraction", type=float, default=0.005, help="of the heap that Spark may sort, join and cache in"
    )
    parser.add_argument("--partitions", type=int, default=32)
    parser.add_argument("--conf", default="", help="memory: more settings of Spark, KEY=VALUE with commas between")
    parser.add_argument("--at", default="20,30,40", help="seconds")
    parser.add_argument("--order", type=int)
    parser.add_argument("--model", default="mkn")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--work", type=Path)
    arguments = parser.parse_args(own.split())
    arguments.options = rest.split()
    with tempfile.TemporaryDirectory(dir=arguments.work) as folder:
        actions = {"identity": identity, "time": measure_time, "memory": measure_memory, "kill": kill_executors}
        actions[arguments.what](arguments, Path(folder))


if __name__ == "__main__":
    main()
