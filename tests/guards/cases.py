"""Tiny models of every task and family, trained in float64 with fixed seeds: what a refactoring must not change.

A case is trained by `elman.train` alone and looked at through its files and the command line alone, so that what stands
between may be moved at will. Everything runs in the current directory, with relative paths.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import random
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import elman
from elman.cli.app import run as run_arguments

STEPS = 8
STOPPED_STEP = 5  # where the stopped runs of the archive are
NET = {
    "model.hidden": 8,
    "model.dropout": 0.1,
    "train.steps": STEPS,
    "train.validate_steps": 4,
    "train.checkpoint_steps": 2,
    "train.log_steps": 1,
    "train.batch": 4,
    "train.learning_rate": 0.01,
    "train.precision": "float32",
}
STREAM = NET | {"model.head": "full", "model.tied": True, "train.bptt": 8}
PROMPT = "the cat"
# What depends on the moment or on the wording of messages, and so is not compared.
VOLATILE = {"seconds", "notes", "why", "command", "directory", "bytes", "threads"}


@dataclass(frozen=True)
class Case:
    """What to train, on which files, and the verbs to look at it with."""

    task: str
    data: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None
    reset_lines: bool | None = None
    verbs: tuple[tuple[str, ...], ...] = ()
    is_net: bool = True
    is_kept: bool = False  # among the stopped runs of the archive
    needs: str | None = None  # another case that has to be there
    rounding: float = 1e-7  # of a number of about 1, by which processors may differ


LM_VERBS = (
    ("evaluate", "{out}", "text.valid"),
    ("score", "{out}", "text.valid", "--per-token"),
    ("next", "{out}", PROMPT),
    ("generate", "{out}", "--prompt", PROMPT, "--tokens", "12", "--seed", "1"),
    ("info", "{out}"),
)
TASK_VERBS = (("evaluate", "{out}", "{data}.valid{end}"), ("predict", "{out}", "{data}.ask"), ("info", "{out}"))


def _stream(model: str, *verbs: tuple[str, ...], is_kept: bool = False, **settings: Any) -> Case:
    chosen = STREAM | {key.replace("_", ".", 1): value for key, value in settings.items()}
    return Case("lm", "text", chosen, model, verbs=LM_VERBS + verbs, is_kept=is_kept)


def _rows(task: str, data: str, *, is_kept: bool = False, needs: str | None = None, **settings: Any) -> Case:
    chosen = NET | {key.replace("_", ".", 1): value for key, value in settings.items()}
    return Case(task, data, chosen, verbs=TASK_VERBS, is_kept=is_kept, needs=needs)


DYNAMIC = ("evaluate", "{out}", "text.valid", "--dynamic")
TEXT_VERBS = (("evaluate", "{out}", "text.valid"), ("info", "{out}"))
CASES = {
    **{
        name: Case("lm", "text", model=name, verbs=LM_VERBS, is_net=False)
        for name in ("uniform", "unigram", "bigram", "ngram", "kn", "mkn")
    },
    # L-BFGS ends where the loss hardly changes: 2.4e-7 elsewhere on another processor
    "snm": Case("lm", "text", model="snm", verbs=LM_VERBS, is_net=False, rounding=1e-6),
    "mkn-lines": Case("lm", "text", {"model.order": 3}, "mkn", True, verbs=LM_VERBS, is_net=False),
    "window": _stream("window", model_embedding=8, model_tied=False),
    "rnn": _stream("rnn"),
    "gru": _stream("gru"),
    "lstm": _stream("lstm", DYNAMIC, is_kept=True, model_layers=2, model_skip="highway"),
    "lstm-lines": Case("lm", "text", STREAM, "lstm", True, verbs=LM_VERBS),
    "lstm-adaptive": _stream("lstm", model_head="adaptive", model_cutoffs="5", model_tied=False),
    "lstm-sampled": _stream("lstm", model_head="sampled", model_samples=6),
    "lstm-nce": _stream("lstm", model_head="nce", model_samples=6),
    "lstm-blackout": _stream("lstm", model_head="blackout", model_samples=6),
    "maxent": _stream("rnn", is_kept=True, model_maxent=3),
    "transformer": _stream("transformer", is_kept=True, model_window=6, model_attention_heads=2),
    "masked": Case("masked", "text", STREAM, verbs=(*TEXT_VERBS, ("predict", "{out}", "masked.ask")), is_kept=True),
    "masked-transformer": Case(
        "masked",
        "text",
        STREAM | {"model.attention_heads": 2},
        "transformer",
        verbs=(*TEXT_VERBS, ("predict", "{out}", "masked.ask")),
    ),
    "bilm": Case("bilm", "text", STREAM | {"model.embedding": 8}, verbs=TEXT_VERBS, is_kept=True),
    "bilm-lines": Case("bilm", "text", STREAM | {"model.embedding": 8}, None, True, verbs=TEXT_VERBS),
    "seq2seq-initial": _rows("seq2seq", "pairs.tsv", model_context="initial"),
    "seq2seq-every": _rows("seq2seq", "pairs.tsv", model_context="every"),
    "seq2seq-all": _rows("seq2seq", "pairs.tsv", model_context="all"),
    "seq2seq-fixed": _rows("seq2seq", "pairs.tsv", model_context="fixed"),
    "seq2seq-attention": _rows("seq2seq", "pairs.tsv", is_kept=True, data_min_count=1),
    "seq2seq-before": _rows(
        "seq2seq", "pairs.tsv", model_attend="before", model_input_feeding=True, model_score="additive"
    ),
    "seq2seq-transformer": _rows("seq2seq", "pairs.tsv", model_family="transformer", model_layers=2),
    "tag": _rows("tag", "words.conll", model_character_hidden=4, model_character_embedding=4),
    "tag-crf": _rows("tag", "spans.conll", is_kept=True, model_character_hidden=4, model_character_embedding=4),
    "tag-bilm": _rows("tag", "words.conll", model_characters="none", model_bilm="bilm", needs="bilm"),
    "classify": _rows("classify", "labels.tsv", is_kept=True, model_pool="attention"),
    "classify-several": _rows("classify", "several.tsv", model_output="sigmoid"),
    "classify-numbers": _rows("classify", "numbers.tsv", model_output="linear", model_pool="mean"),
    "qa": _rows("qa", "stories.txt", is_kept=True, model_hops=2, model_embedding=8),
    "qa-span": _rows("qa", "questions.jsonl", is_kept=True, model_answer="span", model_embedding=8),
    "qa-generated": _rows("qa", "questions.jsonl", is_kept=True, model_answer="generated", model_embedding=8),
}
MIXTURE = ("mkn", "lstm", "cache", "neural-cache:window=20,theta=0.3,decay=0.9")


# ---------------------------------------------------------------------------------------------------------------- data


def write_data(folder: Path) -> None:
    """All training and validation files, and those to be asked about."""
    for part, count, seed in (("train", 60, 0), ("valid", 12, 1)):
        for name, lines in _make_files(random.Random(seed), count).items():
            stem, dot, end = name.partition(".")
            (folder / f"{stem}.{part}{dot}{end}").write_text("".join(f"{line}\n" for line in lines))
    asked = {
        "masked.ask": ["the <mask> sat on the mat .", "", "a <mask> <mask> ?"],
        "pairs.tsv.ask": ["rot haus", "", "blau xyz und auto"],
        "words.conll.ask": ["the cat sat", "", "a zebra"],
        "spans.conll.ask": ["the cat sat", "", "Ann saw Ber ton"],
        "labels.tsv.ask": ["the film was great", "awful"],
        "several.tsv.ask": ["the film was great", "long"],
        "numbers.tsv.ask": ["the film was great", "long"],
        "stories.txt.ask": ["1 Mary went to the hall.", "2 Where is Mary?", "1 Where is John?"],
        "questions.jsonl.ask": ["Ann lives in Berton . Bo lives in Alham .\tWhere is Bo ?"],
    }
    for name, lines in asked.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines))


def _make_files(rng: random.Random, count: int) -> dict[str, list[str]]:
    nouns, verbs, places = ["cat", "dog", "bird", "fox"], ["sat", "ran", "hid"], ["mat", "log", "hill"]
    words = {"rot": "red", "blau": "blue", "haus": "house", "hund": "dog", "auto": "car", "und": "and"}
    files: dict[str, list[str]] = {name: [] for name in ("text", "pairs.tsv", "words.conll", "spans.conll")}
    files |= {name: [] for name in ("labels.tsv", "several.tsv", "numbers.tsv", "stories.txt", "questions.jsonl")}
    for _ in range(count):
        noun, verb, place = rng.choice(nouns), rng.choice(verbs), rng.choice(places)
        files["text"].append(f"{rng.choice(['the', 'a'])} {noun} {verb} on the {place} {rng.choice('.?')}")
        chosen = [rng.choice(sorted(words)) for _ in range(rng.randint(1, 4))]
        files["pairs.tsv"].append(f"{' '.join(chosen)}\t{' '.join(words[word] for word in chosen)}")
        files["words.conll"] += ["the D", f"{noun} N", f"{verb} V", ""]
        files["spans.conll"] += ["Ann B-PER", f"{verb} O", "in O", f"{place} B-LOC", "ton I-LOC", ""]
        good, long = rng.random() < 0.5, rng.random() < 0.5
        text = " ".join(["the film was", "great" if good else "awful", *["long"] * long, *[noun] * rng.randint(0, 2)])
        files["labels.tsv"].append(f"{'pos' if good else 'neg'}\t{text}")
        files["several.tsv"].append(f"{','.join(['good'] * good + ['long'] * long) or '-'}\t{text}")
        files["numbers.tsv"].append(f"{2 + 4 * good + long}\t{text}")
        who, rooms = rng.choice(["Mary", "John"]), [rng.choice(["hall", "garden", "attic"]) for _ in range(2)]
        files["stories.txt"] += [f"1 Mary went to the {rooms[0]}.", f"2 John went to the {rooms[1]}."]
        files["stories.txt"].append(f"3 Where is {who}?\t{rooms[who == 'John']}\t{1 + (who == 'John')}")
        towns = rng.sample(["Berton", "Alham", "Cor Bay", "Dunwick"], 2)
        record = {"context": f"Ann lives in {towns[0]}. Bo lives in {towns[1]}.", "question": "Where is Bo?"}
        files["questions.jsonl"].append(json.dumps(record | {"answer": towns[1]}))
    return files


# ------------------------------------------------------------------------------------------------------------ training


class Stopped(Exception):  # noqa: N818 - it says what happened
    """A run was cut short on purpose."""


@contextlib.contextmanager
def float64() -> Iterator[None]:
    """Nets become float64 when they are put on their device, so that sums hardly depend on the machine."""
    import torch

    plain = torch.nn.Module.to

    def to(self: torch.nn.Module, *arguments: Any, **options: Any) -> torch.nn.Module:
        return plain(self, *arguments, **options).double()

    torch.nn.Module.to = to  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        torch.nn.Module.to = plain  # type: ignore[method-assign]


def train_case(name: str, out: str, *, stop_after: int | None = None) -> None:
    """Train a case in the current directory, whose files are there; with `stop_after`, leave a run that is not over."""
    case = CASES[name]
    stem, dot, end = case.data.partition(".")

    def on_progress(progress: Any) -> None:
        if progress.step == stop_after:
            raise Stopped

    with float64(), contextlib.suppress(Stopped):
        elman.train(
            case.task,
            f"{stem}.train{dot}{end}",
            valid=f"{stem}.valid{dot}{end}",
            out=out,
            model=case.model,
            units="space" if case.data == "text" else None,
            reset_lines=case.reset_lines,
            settings=case.settings,
            seed=1,
            threads=1,
            command=f"elman train {name}",
            on_progress=on_progress,
        )


def resume_case(out: str) -> None:
    """Go on with a run that was left."""
    with float64():
        elman.resume(out)


# ------------------------------------------------------------------------------------------------------ what is looked at


def describe_case(name: str, out: str) -> dict[str, Any]:
    """Loss curve, checksum of the saved model, and what every verb says of it."""
    case = CASES[name]
    stem, dot, end = case.data.partition(".")
    names = {"out": out, "data": stem, "end": dot + end}
    verbs = {}
    for verb in case.verbs:
        words = [word.format(**names) if "ask" not in word else word.format(data=case.data, out=out) for word in verb]
        verbs[" ".join(words).replace(out, name)] = call(*words, "--json")
    return {"curve": read_curve(Path(out)), "model": checksum(Path(out)), "verbs": verbs}


def read_curve(directory: Path) -> list[list[Any]]:
    """Step, training loss and validation loss of every line of the journal that has one."""
    path = directory / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    keys = ("step", "nats_per_token", "valid_nats_per_token", "valid_error", "final_nats_per_token")
    return [[line.get(key) for key in keys] for line in lines if "split" not in line]


def checksum(directory: Path) -> dict[str, Any]:
    """Settings, files and tensors of a model: each tensor by its shape and by one number that every element moves."""
    from safetensors.numpy import load_file

    tensors = {}
    for file in sorted(directory.glob("*.safetensors")):
        for name, array in sorted(load_file(file).items()):
            weights = np.cos(np.arange(1, array.size + 1, dtype=np.float64))
            total = float((array.astype(np.float64).ravel() * weights).sum())
            tensors[f"{file.name}/{name}"] = [list(array.shape), str(array.dtype), total]
    digests = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()[:16]
        for file in sorted(directory.iterdir())
        if "tokenizer" in file.name
    }
    return {"config": clean(json.loads((directory / "config.json").read_text())), "tensors": tensors, "files": digests}


def call(*arguments: str) -> list[Any]:
    """The JSON objects that a verb prints."""
    printed, argv = io.StringIO(), sys.argv
    try:
        sys.argv = ["elman", *arguments]
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()) as said:
            code = run_arguments(arguments)
    finally:
        sys.argv = argv
    assert code == 0, f"elman {' '.join(arguments)}: {said.getvalue()}"
    return [clean(json.loads(line)) for line in printed.getvalue().splitlines()]


def clean(value: Any) -> Any:
    """Without what depends on the moment."""
    if isinstance(value, dict):
        return {key: clean(item) for key, item in value.items() if key not in VOLATILE}
    return [clean(item) for item in value] if isinstance(value, list) else value


def differences(found: Any, wanted: Any, place: str = "", *, rounding: float = 1e-7) -> Iterator[str]:
    """Where two descriptions differ: numbers by more than rounding, all else at all."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key in sorted(found.keys() | wanted.keys()):
            if key not in found or key not in wanted:
                yield f"{place}/{key} is {'missing' if key not in found else 'new'}"
            else:
                yield from differences(found[key], wanted[key], f"{place}/{key}", rounding=rounding)
    elif isinstance(wanted, list) and isinstance(found, list):
        if len(found) != len(wanted):
            yield f"{place} has {len(found)} entries, not {len(wanted)}"
        for index, (one, other) in enumerate(zip(found, wanted, strict=False)):
            yield from differences(one, other, f"{place}/{index}", rounding=rounding)
    elif isinstance(wanted, float) and isinstance(found, int | float):
        # printed probabilities have four digits, of which the last may be rounded either way
        slack = 1e-4 if round(wanted, 4) == wanted else 0.0
        if abs(found - wanted) > rounding * max(1.0, abs(wanted)) + 1.01 * slack:
            yield f"{place} is {found!r}, not {wanted!r}"
    elif found != wanted or type(found) is not type(wanted):
        yield f"{place} is {found!r}, not {wanted!r}"
