"""Row 11: mutated files of every format through the public functions. Each is read, or refused with a message.

Cases run in forked children, a few hundred each, with two seconds for one: a crash, a hang or a raw exception is a failure,
and its input is kept.
"""

from __future__ import annotations

import functools
import mmap
import os
import random
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import elman
from elman.core.errors import ElmanError
from elman.core.settings import make, merge_settings
from elman.tasks.tag.config import SentencesConfig
from elman.tasks.tag.conll import read_sentences
from elman.text.settings import DataConfig
from elman.training.config import TrainConfig
from reliability.mutations import change_json, change_lines, change_tensors
from reliability.processes import forked
from reliability.row import Allowance, Count, Figure
from reliability.runner import ROOT

WANTED, WANTED_FULL = 100_000, 5_000_000
BATCH = 400
CASE_SECONDS, BATCH_SECONDS = 2, 200
BROKEN_CASE = 77  # exit code of a child that met a raw exception
KEPT = Path(tempfile.gettempdir()) / "elman-reliability-failures"
LINES = ["the cat sat on the mat .", "the dog sat on the log .", "who saw the mat ?"] * 12
CONLL = (
    "# a comment\n1\tThe\tthe\tDET\t_\t_\t0\troot\t_\t_\n2\tcat\tcat\tNOUN\t_\t_\t1\tdep\t_\t_\n\nAnn B-PER\nsat O\n\n"
)
TOML = '[model]\nhidden = 64\nlayers = 2\n\n[train]\nbatch = 8\nlearning_rate = 0.01\n\n[data]\nunits = "word"\n'


class Target(NamedTuple):
    """A format: a good file, how it is changed, and what reads it."""

    good: bytes
    change: Callable[[bytes, random.Random], bytes]
    read: Callable[[bytes], Any]


def targets(folder: Path) -> dict[str, Target]:
    """Every format, with models of its own to put changed files into."""
    counts, net, tagger = folder / "counts", folder / "net", folder / "tagger"
    small = {"model.hidden": 4, "train.steps": 1}
    lm: dict[str, Any] = {"units": "space", "valid": "none"}
    elman.train("lm", elman.texts(LINES), out=counts, model="mkn", settings={"model.order": 3}, **lm)
    elman.train("lm", elman.texts(LINES), out=net, model="rnn", settings=small, threads=1, **lm)
    bpe = folder / "bpe"
    elman.train("lm", elman.texts(LINES), out=bpe, model="bigram", units="bpe:280", valid="none")
    labelled = folder / "words.conll"
    labelled.write_text("the D\ncat N\nsat V\n\n" * 20)
    elman.train("tag", labelled, out=tagger, settings=small, threads=1)
    arpa = folder / "model.arpa"
    arpa.write_bytes((ROOT / "tests/data/kenlm-order3.arpa").read_bytes())

    def in_model(original: Path, name: str) -> Target:
        model = folder / f"{original.name}-{name}"
        shutil.copytree(original, model)
        change = change_tensors if name.endswith(".safetensors") else change_json

        def read(data: bytes) -> None:
            (model / name).write_bytes(data)
            made = elman.load(model, verify=False)
            if original is tagger:
                made.predict(["the cat"])
            else:
                made.next("the cat", k=3)
                made.score("the cat sat")

        return Target((original / name).read_bytes(), change, read)

    def in_file(name: str, good: bytes, read: Callable[[Path], Any]) -> Target:
        def write_and_read(data: bytes) -> None:
            (folder / name).write_bytes(data)
            read(folder / name)

        return Target(good, change_lines, write_and_read)

    def read_toml(path: Path) -> None:
        found = merge_settings({}, settings=None, recipe=path)
        make(TrainConfig, found["train"], section="train")
        make(DataConfig, found["data"], section="data")

    return {
        "safetensors of a net": in_model(net, "model.safetensors"),
        "n-gram tables": in_model(counts, "model.safetensors"),
        "spelling tables": in_model(counts, "spelling.safetensors"),
        "config.json": in_model(counts, "config.json"),
        "config.json of a net": in_model(net, "config.json"),
        "config.json of a tagger": in_model(tagger, "config.json"),
        "tokenizer.json": in_model(counts, "tokenizer.json"),
        "tokenizer.json of BPE": in_model(bpe, "tokenizer.json"),
        "manifest.json": in_model(counts, "manifest.json"),
        "ARPA": in_file("changed.arpa", arpa.read_bytes(), lambda path: elman.import_arpa(path).next("the")),
        "CoNLL": in_file("changed.conll", CONLL.encode(), lambda path: read_sentences([path], SentencesConfig())),
        "TOML": in_file("changed.toml", TOML.encode(), read_toml),
    }


def fuzz(allowance: Allowance) -> Figure:
    """As many mutations as fit, the formats in turn."""
    wanted = WANTED_FULL if allowance.is_full else WANTED
    formats = targets(allowance.folder)
    names = list(formats)
    count, batch, most = Count(), 0, 0
    while count.num_cases < wanted and (allowance.left > 0 or batch < len(names)):
        name = names[batch % len(names)]
        most = max(most, _try_batch(name, formats[name], allowance.seed + batch // len(names), count))
        batch += 1
    text = f" mutations of {len(names)} formats; at most {most >> 20} MB"
    return count.figure(text, least=wanted)


def _try_batch(name: str, target: Target, seed: int, count: Count) -> int:
    """Some hundred cases in a child; goes on behind a case that broke it. -> the child's peak memory"""
    first = peak = 0
    progress = mmap.mmap(-1, 8)
    log = Path(tempfile.gettempdir()) / f"elman-fuzz-{os.getpid()}.log"
    while first < BATCH:
        work = functools.partial(_be_child, name, target, seed, first, progress)
        ended = forked(work, seconds=BATCH_SECONDS, log=log)
        peak = max(peak, ended.max_rss)
        reached = int.from_bytes(progress[:8], "little")
        for _ in range(first, reached if ended.code else BATCH):
            count.add(None)
        if not ended.code:
            break
        how = {BROKEN_CASE: "raised", -signal.SIGALRM: "hung"}.get(ended.code, f"died of {ended.code}")
        data = _case(name, target, seed, reached)
        KEPT.mkdir(exist_ok=True)
        place = KEPT / f"{name.replace(' ', '-')}-{seed}-{reached}"
        place.write_bytes(data)
        count.add(f"{name}, {place}: {how}: {ended.said.strip()[-400:]}")
        first = reached + 1
    return peak


def _case(name: str, target: Target, seed: int, number: int) -> bytes:
    return target.change(target.good, random.Random(f"{name} {seed} {number}"))


def _be_child(name: str, target: Target, seed: int, first: int, progress: mmap.mmap) -> None:
    for number in range(first, BATCH):
        progress[:8] = number.to_bytes(8, "little")
        data = _case(name, target, seed, number)
        signal.alarm(CASE_SECONDS)
        try:
            target.read(data)
        except (ElmanError, FileNotFoundError):
            pass
        except BaseException as error:
            print(f"{type(error).__name__}: {error}"[:400])
            traceback.print_exc(limit=-3)
            os._exit(BROKEN_CASE)
        finally:
            signal.alarm(0)
