"""Row 11: mutated files of every format through the public functions. Each is read, or refused with a message.

Most cases go to the reader of the format alone; a share of them is a whole model directory that is loaded and asked something.
Cases run in forked children, one for each processor, with two seconds for each case: a crash, a hang, a raw exception or
much memory is a failure, and its input is kept.
"""

from __future__ import annotations

import functools
import mmap
import os
import random
import resource
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import elman
from elman import store
from elman.core.errors import ElmanError
from elman.core.settings import make, merge_settings
from elman.core.stored import read_manifest, read_tensors
from elman.counts.arpa import read_arpa
from elman.counts.ngram import NgramModel
from elman.counts.spelling import SpellingModel
from elman.tasks.lm.record import LmRecord
from elman.tasks.tag.config import SentencesConfig
from elman.tasks.tag.conll import read_sentences
from elman.tasks.tag.model import TagRecord
from elman.text.settings import DataConfig
from elman.text.units.tokenizer import Tokenizer
from elman.training.config import TrainConfig
from reliability.mutations import change_json, change_lines, change_tensors
from reliability.processes import NUM_LANES, forked, in_lanes
from reliability.row import Allowance, Count, Figure

WANTED, WANTED_FULL = 100_000, 5_000_000
WHOLE_EVERY, WHOLE_EVERY_FULL = 5, 40  # one case in so many is a whole model directory
CASE_SECONDS = 2
GRACE_SECONDS = 60  # for a child to come up and to end
MAX_GROWTH_BYTES = 64 << 20  # of a child's memory, beyond twice the largest file
BROKEN_CASE = 77  # exit code of a child that met a raw exception
KEPT = Path(tempfile.gettempdir()) / "elman-reliability-failures"
LINES = ["the cat sat on the mat .", "the dog sat on the log .", "who saw the mat ?"] * 12
ORDER = 3
CONLL = "-DOCSTART- O\n\nAnn B-PER\nLee I-PER\nsat O\n\nin O\nRome B-LOC\n\n"
CONLLU = """\
# text = The cat's
1\tThe\tthe\tDET\t_\tDefinite=Def\t2\tdet\t_\t_
2-3\tcat's\t_\t_\t_\t_\t_\t_\t_\t_
2\tcat\tcat\tNOUN\t_\t_\t0\troot\t_\t_
3\t's\tbe\tAUX\t_\t_\t2\tcop\t_\t_
3.1\tsat\tsit\tVERB\t_\t_\t_\t_\t_\t_

"""
TOML = '[model]\nhidden = 64\nlayers = 2\n\n[train]\nbatch = 8\nlearning_rate = 0.01\n\n[data]\nunits = "word"\n'

Read = Callable[[bytes], Any]


@dataclass(frozen=True)
class Target:
    """A format: a good file, how it is changed, what reads it, and what loads a model with it and asks that something."""

    good: bytes
    change: Callable[[bytes, random.Random], bytes]
    parse: Read
    read: Read


def make_models(folder: Path) -> None:
    """A model of each kind, and a file of n-grams."""
    small = {"model.hidden": 4, "train.steps": 1}
    counted = {"model.order": ORDER}
    lm: dict[str, Any] = {"units": "space", "valid": "none"}
    elman.train("lm", elman.texts(LINES), out=folder / "counts", model="mkn", settings=counted, **lm)
    elman.train("lm", elman.texts(LINES), out=folder / "net", model="rnn", settings=small, threads=1, **lm)
    elman.train("lm", elman.texts(LINES), out=folder / "bpe", model="bigram", units="bpe:280", valid="none")
    labelled = folder / "words.conll"
    labelled.write_text("the D\ncat N\nsat V\n\n" * 20)
    elman.train("tag", labelled, out=folder / "tagger", settings=small, threads=1)
    by_lines = elman.train("lm", elman.texts(LINES), model="mkn", settings=counted, reset_lines=True, **lm)
    by_lines.export(folder / "model.arpa")


def targets(models: Path, folder: Path) -> dict[str, Target]:
    """Every format. Changed files are put into copies of the models, in a folder of its own."""
    counts, net, tagger, bpe = (models / name for name in ("counts", "net", "tagger", "bpe"))
    vocab_size = elman.load(counts).tokenizer.vocab_size

    def in_model(original: Path, name: str, parse: Callable[[Path], Any]) -> Target:
        model = folder / f"{original.name}-{name}"
        shutil.copytree(original, model)
        change = change_tensors if name.endswith(".safetensors") else change_json

        def write_and_parse(data: bytes) -> None:
            (model / name).write_bytes(data)
            parse(model)

        def load(data: bytes) -> None:
            (model / name).write_bytes(data)
            made = elman.load(model, verify=False)
            if original is tagger:
                made.predict(["the cat"])
            else:
                made.next("the cat", k=3)
                made.score("the cat sat")

        return Target((original / name).read_bytes(), change, write_and_parse, load)

    def in_file(
        name: str, good: bytes, parse: Callable[[Path], Any], use: Callable[[Path], Any] | None = None
    ) -> Target:
        def written(read: Callable[[Path], Any]) -> Read:
            def write_and_read(data: bytes) -> None:
                (folder / name).write_bytes(data)
                read(folder / name)

            return write_and_read

        return Target(good, change_lines, written(parse), written(use or parse))

    def parse_tables(model: Path) -> None:
        ngrams = NgramModel.from_tensors(
            read_tensors(model / store.TENSORS), order=ORDER, vocab_size=vocab_size, reset_lines=False
        )
        ngrams.predict(ngrams.start(1))

    def parse_recipe(path: Path) -> None:
        found = merge_settings({}, settings=None, recipe=path)
        make(TrainConfig, found["train"], section="train")
        make(DataConfig, found["data"], section="data")

    def parse_record(kind: type[store.Record[Any, Any]]) -> Callable[[Path], Any]:
        return lambda model: store.load(model, kind, lambda saved: saved.record, verify=False)

    def parse_sentences(path: Path) -> None:
        read_sentences([path], SentencesConfig())

    def parse_spelling(model: Path) -> None:
        SpellingModel.from_files(lambda name: (model / name).read_bytes()).nats(["cat"])

    def parse_tokenizer(model: Path) -> None:
        Tokenizer.from_files(lambda name: (model / name).read_bytes()).encode("the cat")

    return {
        "safetensors of a net": in_model(net, "model.safetensors", lambda model: read_tensors(model / store.TENSORS)),
        "n-gram tables": in_model(counts, "model.safetensors", parse_tables),
        "spelling tables": in_model(counts, "spelling.safetensors", parse_spelling),
        "config.json": in_model(counts, "config.json", parse_record(LmRecord)),
        "config.json of a net": in_model(net, "config.json", parse_record(LmRecord)),
        "config.json of a tagger": in_model(tagger, "config.json", parse_record(TagRecord)),
        "tokenizer.json": in_model(counts, "tokenizer.json", parse_tokenizer),
        "tokenizer.json of BPE": in_model(bpe, "tokenizer.json", parse_tokenizer),
        "manifest.json": in_model(counts, "manifest.json", read_manifest),
        "ARPA": in_file(
            "changed.arpa",
            (models / "model.arpa").read_bytes(),
            read_arpa,
            lambda path: elman.import_arpa(path).next("the"),
        ),
        "CoNLL": in_file("changed.conll", CONLL.encode(), parse_sentences),
        "CoNLL-U": in_file("changed.conllu", CONLLU.encode(), parse_sentences),
        "TOML": in_file("changed.toml", TOML.encode(), parse_recipe),
    }


def fuzz(allowance: Allowance) -> Figure:
    """As many mutations as fit, the formats in turn."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads do not survive a fork
    wanted = WANTED_FULL if allowance.is_full else WANTED
    make_models(allowance.folder)
    lanes = in_lanes(lambda lane: _try_lane(lane, wanted // NUM_LANES, allowance), allowance.folder)
    count = Count()
    for lane in lanes:
        count.add_good(lane["num_good"])
        for failure in lane["failures"]:
            count.add(failure)
    num_formats, num_whole = lanes[0]["num_formats"], sum(lane["num_whole"] for lane in lanes)
    return count.figure(f" mutations of {num_formats} formats, {num_whole:,} of them in whole models", least=wanted)


def _try_lane(lane: int, wanted: int, allowance: Allowance) -> dict[str, Any]:
    """The cases of one processor, in a child that is replaced when a case broke it."""
    folder = allowance.folder / f"lane-{lane}"
    folder.mkdir()
    formats = targets(allowance.folder, folder)
    cases = _Cases(formats, f"{allowance.seed} {lane}", WHOLE_EVERY_FULL if allowance.is_full else WHOLE_EVERY)
    progress, first, failures = mmap.mmap(-1, 8), 0, []
    while first < wanted and (allowance.left > 0 or not first):
        work = functools.partial(_try_cases, cases, range(first, wanted), progress, allowance)
        ended = forked(work, seconds=max(0.0, allowance.left) + GRACE_SECONDS, log=folder / "log")
        reached = int.from_bytes(progress[:8], "little")
        first = reached
        if ended.code:
            how = {BROKEN_CASE: "raised", -signal.SIGALRM: "hung"}.get(ended.code, f"died of {ended.code}")
            name, _ = cases.target_of(reached)
            KEPT.mkdir(exist_ok=True)
            place = KEPT / f"{name.replace(' ', '-')}-{allowance.seed}-{lane}-{reached}"
            place.write_bytes(cases.data_of(reached))
            failures.append(f"{name}, {place}: {how}: {ended.said.strip()[-400:]}")
            first += 1
    num_whole = sum(cases.is_whole(number) for number in range(first))
    return {
        "num_good": first - len(failures),
        "failures": failures,
        "num_whole": num_whole,
        "num_formats": len(formats),
    }


@dataclass(frozen=True)
class _Cases:
    """Mutations by number: every format in turn, now and then all of them in whole models."""

    formats: dict[str, Target]
    seed: str
    whole_every: int

    def target_of(self, number: int) -> tuple[str, Target]:
        name = list(self.formats)[number % len(self.formats)]
        return name, self.formats[name]

    def is_whole(self, number: int) -> bool:
        return number // len(self.formats) % self.whole_every == 0

    def data_of(self, number: int) -> bytes:
        _, target = self.target_of(number)
        return target.change(target.good, random.Random(f"{self.seed} {number}"))

    def try_one(self, number: int, data: bytes) -> None:
        _, target = self.target_of(number)
        (target.read if self.is_whole(number) else target.parse)(data)


def _try_cases(cases: _Cases, numbers: range, progress: mmap.mmap, allowance: Allowance) -> None:
    """As many as there is time for. `progress` is the case at work, or the one to go on with."""
    for target in cases.formats.values():  # good files are read, and what is imported late is there
        target.parse(target.good)
        target.read(target.good)
    before = _peak_bytes()
    for number in allowance.until_spent(numbers):
        progress[:8] = number.to_bytes(8, "little")
        data = cases.data_of(number)
        signal.alarm(CASE_SECONDS)
        try:
            cases.try_one(number, data)
        except ElmanError:
            pass
        except BaseException as error:
            print(f"{type(error).__name__}: {error}"[:400])
            traceback.print_exc(limit=-3)
            os._exit(BROKEN_CASE)
        finally:
            signal.alarm(0)
        if (grown := _peak_bytes() - before) > MAX_GROWTH_BYTES + 2 * len(data):
            print(f"{grown >> 20} MB of memory")
            os._exit(BROKEN_CASE)
        progress[:8] = (number + 1).to_bytes(8, "little")


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
