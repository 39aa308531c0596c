"""From text to a model, and a file scored by it: elman against KenLM, in one run, interleaved, best of several.

    python benchmarks/kenlm.py KENLM_BIN_DIR TEXT [--order 5] [--rounds 3] [--memory 1G] [--work DIR] [--json]

KENLM_BIN_DIR holds `lmplz`, `build_binary` and `query`; without them there is
nothing to compare and the benchmark says so. Both sides are whole processes, from start to exit: `lmplz` and
`build_binary probing` against `elman train`, which also saves its model; `query` against `elman evaluate`. TEXT is one
sentence a line, words separated by spaces. Both learn the same model: every word of TEXT and <unk>, each line alone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOOLS = ("lmplz", "build_binary", "query")
CHECKED_LINES = 20_000
PROMPTS = 300
ALL_WORDS = ("--set", "data.min_count=1", "--set", "data.max_words=2000000")


@dataclass(frozen=True)
class Run:
    """What a process took, and what it printed."""

    seconds: float
    peak_bytes: int
    output: str

    def __add__(self, other: Run) -> Run:
        """One after the other."""
        return Run(self.seconds + other.seconds, max(self.peak_bytes, other.peak_bytes), self.output + other.output)


def run(command: list[str | Path], *, text: Path | None = None, out: Path | None = None) -> Run:
    """Run a process with a file as its input; its output goes to a file, or into the result."""
    with (
        text.open("rb") if text else open(os.devnull, "rb") as stdin,  # noqa: PTH123
        out.open("wb+") if out else tempfile.TemporaryFile() as stdout,
        tempfile.TemporaryFile() as stderr,
    ):
        begin = time.perf_counter()
        process = subprocess.Popen(list(map(str, command)), stdin=stdin, stdout=stdout, stderr=stderr)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            stderr.seek(0)
            sys.exit(f"{' '.join(map(str, command))}\nfailed:\n{stderr.read().decode(errors='replace')}")
        if out:
            return Run(seconds, usage.ru_maxrss * 1024, "")
        stdout.seek(0)
        return Run(seconds, usage.ru_maxrss * 1024, stdout.read().decode())


@dataclass(frozen=True)
class Bench:
    """The commands of both sides."""

    tools: Path
    text: Path
    order: int
    work: Path

    @property
    def elman(self) -> list[str | Path]:
        return [sys.executable, "-m", "elman"]

    @property
    def binary(self) -> Path:
        return self.work / "kenlm.bin"

    @property
    def model(self) -> Path:
        return self.work / "elman"

    def kenlm_train(self) -> Run:
        arpa = self.work / "kenlm.arpa"
        self.binary.unlink(missing_ok=True)
        lmplz = [self.tools / "lmplz", "-o", str(self.order), "-T", self.work, "--discount_fallback"]
        counted = run(lmplz, text=self.text, out=arpa)
        built = run([self.tools / "build_binary", "-T", self.work, "probing", arpa, self.binary])
        arpa.unlink()
        return counted + built

    def elman_train(self, *options: str) -> Run:
        shutil.rmtree(self.model, ignore_errors=True)
        settings = ["--model", "mkn", "--set", f"model.order={self.order}", "--units", "space", "--reset-lines"]
        return run([*self.elman, "train", "lm", self.text, *settings, *ALL_WORDS, "--valid", "none", "--json", "--out",
                    self.model, *options])  # fmt: skip

    def kenlm_score(self) -> Run:
        return run([self.tools / "query", "-v", "summary", self.binary], text=self.text)

    def elman_score(self) -> Run:
        return run([*self.elman, "evaluate", self.model, self.text, "--json"])


def interleaved(rounds: int, *functions: Callable[[], Run]) -> list[Run]:
    """The best of several rounds, one after the other in each, so that a busy moment hits all of them."""
    found: list[list[Run]] = [[] for _ in functions]
    for _ in range(rounds):
        for function, runs in zip(functions, found, strict=True):
            runs.append(function())
    return [min(runs, key=lambda each: each.seconds) for runs in found]


def kenlm_perplexity(output: str) -> float:
    line = next(line for line in output.splitlines() if line.startswith("Perplexity including OOVs:"))
    return float(line.rpartition(":")[2])


def worst_line(bench: Bench) -> float:
    """The largest difference between the nats of a line, relative where they are many; of the first lines of the text."""
    head = bench.work / "head.txt"
    with bench.text.open("rb") as text:
        head.write_bytes(b"".join(line for line, _ in zip(text, range(CHECKED_LINES), strict=False)))
    theirs = run([bench.tools / "query", "-v", "sentence", bench.binary], text=head).output
    ours = run([*bench.elman, "score", bench.model, head]).output
    totals = [float(line.split()[1]) * -math.log(10) for line in theirs.splitlines() if line.startswith("Total:")]
    nats = [float(line.split("\t")[0]) for line in ours.splitlines()]
    return max(abs(one - other) / max(1.0, one) for one, other in zip(totals, nats, strict=True))


def next_microseconds(bench: Bench) -> tuple[float, float]:
    """The median time of `next` after the beginnings of lines, and of a bare prediction from a kept state."""
    import numpy as np

    import elman

    model = elman.load(bench.model)
    with bench.text.open(encoding="utf-8") as text:
        prompts = [" ".join(line.split()[:6]) for line, _ in zip(text, range(PROMPTS), strict=False)]

    def each(function: Callable[[str], Any], prompts: list[str]) -> Iterator[float]:
        for prompt in prompts:
            begin = time.perf_counter()
            function(prompt)
            yield (time.perf_counter() - begin) * 1e6

    state = model.lm.start(1)
    list(each(model.next, prompts))  # once before: what is read of the file is in memory then
    return (
        float(np.median(list(each(model.next, prompts)))),
        float(np.median(list(each(lambda prompt: model.lm.predict(state), prompts)))),
    )


def measure(bench: Bench, *, rounds: int, memory: str) -> dict[str, Any]:
    found: dict[str, Any] = {"text_bytes": bench.text.stat().st_size, "order": bench.order, "rounds": rounds}
    kenlm, elman = interleaved(rounds, bench.kenlm_train, bench.elman_train)
    found["train"] = compared(kenlm, elman)
    kenlm, elman = interleaved(rounds, bench.kenlm_score, bench.elman_score)
    numbers = json.loads(elman.output)
    found["score"] = compared(kenlm, elman) | {"tokens": numbers["tokens"]}
    found["perplexity"] = {"kenlm": kenlm_perplexity(kenlm.output), "elman": numbers["perplexity"]}
    found["worst_line"] = worst_line(bench)
    limited = bench.elman_train("--memory", memory)
    found["limited"] = {"memory": memory, "seconds": limited.seconds, "peak_bytes": limited.peak_bytes}
    again = json.loads(bench.elman_score().output)
    found["limited"]["perplexity"] = again["perplexity"]
    found["next_microseconds"], found["predict_microseconds"] = next_microseconds(bench)
    return found


def compared(kenlm: Run, elman: Run) -> dict[str, Any]:
    return {
        "kenlm_seconds": kenlm.seconds,
        "elman_seconds": elman.seconds,
        "ratio": kenlm.seconds / elman.seconds,
        "kenlm_peak_bytes": kenlm.peak_bytes,
        "elman_peak_bytes": elman.peak_bytes,
    }


def table(found: dict[str, Any]) -> str:
    train, score, limited = found["train"], found["score"], found["limited"]
    rows = [("", "KenLM", "elman", "ratio")]
    for name, part in (("text to model, s", train), ("scoring, s", score)):
        rows.append((name, f"{part['kenlm_seconds']:.2f}", f"{part['elman_seconds']:.2f}", f"{part['ratio']:.2f}"))
    for name, part in (("peak of training, GB", train), ("peak of scoring, GB", score)):
        rows.append((name, f"{part['kenlm_peak_bytes'] / 1e9:.2f}", f"{part['elman_peak_bytes'] / 1e9:.2f}", ""))
    rows.append(("perplexity", f"{found['perplexity']['kenlm']:.4f}", f"{found['perplexity']['elman']:.4f}", ""))
    lines = [f"{name:<24}{kenlm:>10}{elman:>10}{ratio:>8}" for name, kenlm, elman, ratio in rows]
    lines += [
        f"{score['tokens']:,} tokens, order {found['order']}, best of {found['rounds']}",
        f"the nats of a line differ by at most {found['worst_line']:.1e}",
        f"with --memory {limited['memory']}: {limited['seconds']:.1f} s, peak {limited['peak_bytes'] / 1e9:.2f} GB, "
        f"perplexity {limited['perplexity']:.4f}",
        f"next: {found['next_microseconds']:.0f} µs; prediction alone: {found['predict_microseconds']:.0f} µs",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", type=Path, metavar="KENLM_BIN_DIR")
    parser.add_argument("text", type=Path, metavar="TEXT")
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", default="1G", help="the limit of the run that counts on disk")
    parser.add_argument("--work", type=Path, help="where models and temporary files go")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    missing = [tool for tool in TOOLS if not (options.tools / tool).is_file()]
    if missing:
        print(f"skipped: no {', '.join(missing)} in {options.tools}; build KenLM from https://github.com/kpu/kenlm")
        return
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        bench = Bench(options.tools, options.text, options.order, Path(work))
        found = measure(bench, rounds=options.rounds, memory=options.memory)
    print(json.dumps(found) if options.json else table(found))
    if found["worst_line"] > 1e-4:
        sys.exit("the two do not score alike")


if __name__ == "__main__":
    main()
