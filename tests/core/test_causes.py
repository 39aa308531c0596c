"""Every error has a code of the list, and every code of the list is that of an error that somebody can meet."""

from __future__ import annotations

import ast
import errno
import gzip
import json
import os
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elman
from elman.cli import app
from elman.core import errors
from elman.core.causes import CAUSES, GROUPS
from elman.core.errors import ElmanError
from elman.core.files import lock
from tests.commands import Run, corpus, model, run, stream_model

__all__ = ["corpus", "model", "run", "stream_model"]

SOURCES = Path(elman.__file__).parent
# The codes of these classes are for code of others, which need not know the list: here every error has its own.
OPEN = {"ElmanError", "UsageError", "DataError", "RemoteError"}


def raised(path: Path) -> list[ast.Call]:
    """Where errors are made."""
    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, ElmanError)}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if isinstance(call.func, ast.Name) and call.func.id in {*kinds, "RemoteError"}]


def test_every_error_of_ours_says_its_cause() -> None:
    found = [(path, call) for path in SOURCES.rglob("*.py") for call in raised(path)]
    assert len(found) > 400
    for path, call in found:
        if path.name == "app.py" and path.parent.name == "cli":
            continue  # errors of the system: below
        [code] = [keyword.value for keyword in call.keywords if keyword.arg == "code"] or [None]
        where = f"{path.relative_to(SOURCES)} line {call.lineno}"
        assert isinstance(call.func, ast.Name)
        if code is None:
            assert call.func.id not in OPEN, f"{where}: an error without a code"
        elif isinstance(code, ast.Constant):
            assert code.value in CAUSES, f"{where}: {code.value} is not in core/causes.py"
        else:  # that of another error
            assert ast.unparse(code) in ("error.code", "fault.code", "row.code", "told['code']"), where


def test_a_code_is_a_slug_with_a_cause_and_a_remedy() -> None:
    assert len(CAUSES) == sum(map(len, GROUPS.values())), "a code is in two groups"
    for code, cause in CAUSES.items():
        assert code == code.lower() and code.replace("-", "").isalnum()
        assert cause.meaning.endswith(".") and cause.remedy.endswith((".", "?"))
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ElmanError)]
    assert {kind.code for kind in kinds} <= set(CAUSES)


def test_programs_read_the_cause_where_the_result_would_be(run: Run, tmp_path: Path) -> None:
    (tmp_path / "latin1.txt").write_bytes(b"na\xefve\n")
    found = run("train", "lm", tmp_path / "latin1.txt", "--out", tmp_path / "m", "--json")
    told = json.loads(found.out)
    assert told["schema_version"] == 1 and found.code == told["error"]["exit_code"] == 65
    assert told["error"]["code"] == "bad-utf8"
    assert found.err.splitlines()[-2:] == [f"error: {told['error']['message']}", f"hint: {told['error']['hint']}"]
    assert run("train", "lm", tmp_path / "latin1.txt", "--out", tmp_path / "m").out == ""


# ------------------------------------------------------------------------------------------- an error for every code


class Cases:
    """How each cause comes about: a method for each, its name the code."""

    def __init__(self, run: Run, folder: Path, patch: pytest.MonkeyPatch, corpus: Path, model: Path, other: Path):
        self.elman, self.folder, self.patch = run, folder, patch
        self.corpus, self.model, self.other = corpus, model, other
        self.out = folder / "out"

    def file(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def train(self, *options: object, task: str = "lm", data: Path | None = None) -> object:
        return self.elman("train", task, data or self.corpus, "--out", self.out, *options)

    def copied(self) -> Path:
        return Path(shutil.copytree(self.model, self.folder / "copy"))

    def load_raises(self, error: Exception) -> object:
        def fail(*arguments: object, **options: object) -> None:
            raise error

        self.patch.setattr("elman.api.load", fail)
        return self.elman("info", self.model)

    # What was asked for

    def bad_arguments(self) -> object:
        return self.elman("info", self.model, "--jsn")

    def bad_launch(self) -> object:
        for name, value in {"RANK": "5", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
            self.patch.setenv(name, value)
        return self.train("--model", "lstm")

    def bad_mixture(self) -> object:
        return self.elman("mix", "cache", "--valid", self.corpus, "--out", self.out)

    def bad_recipe(self) -> object:
        return self.train("--recipe", self.file("r.toml", "model = ["))

    def bad_value(self) -> object:
        return self.train("--model", "mkn", "--set", "model.order=0")

    def base_mismatch(self) -> object:
        return self.train("--init", self.model)

    def budget_too_short(self) -> object:
        return self.elman("compare", self.corpus, "--models", "lstm", "--budget", "1s", "--out", self.out)

    def does_not_apply(self) -> object:
        return self.train("--model", "mkn", "--device", "cpu")

    def given_twice(self) -> object:
        return self.train("--units", "char", "--set", "data.units=space")

    def missing_option(self) -> object:
        return self.elman("train", "seq2seq", "--source", self.corpus, "--out", self.out)

    def no_run(self) -> object:
        return self.elman("resume", self.folder)

    def options_conflict(self) -> object:
        return self.elman("generate", self.model, "--beam", 2, "--temperature", 0.5)

    def run_differs(self) -> object:
        from elman.training.checkpoint import Checkpoint
        from elman.training.keeper import FIXED_SETTINGS, compare_settings

        found = Checkpoint({"settings": {min(FIXED_SETTINGS): 1}}, {}, self.folder, 1)
        return compare_settings(found, {min(FIXED_SETTINGS): 2})

    def unknown_name(self) -> object:
        return self.train(task="dance")

    def unknown_setting(self) -> object:
        return self.train("--model", "mkn", "--set", "model.ordr=3")

    def wrong_type(self) -> object:
        return elman.train("lm", 5, out=self.out)  # type: ignore[arg-type]

    # Models

    def damaged_model(self) -> object:
        copy = self.copied()
        content = bytearray((copy / "config.json").read_bytes())
        content[len(content) // 2] ^= 1
        (copy / "config.json").write_bytes(content)
        return self.elman("info", copy)

    def damaged_run(self) -> object:
        from elman.core.files import RUN_FOLDER
        from elman.tasks.run_folder import RUN

        self.patch.setattr("elman.training.loop.Trainer._step", _terminated)
        self.train("--model", "lstm", "--set", "train.steps=2")
        (self.out / RUN_FOLDER / RUN).write_text("[]")
        return self.elman("resume", self.out)

    def models_differ(self) -> object:
        return self.elman("mix", self.model, self.other, "--valid", self.corpus, "--out", self.out)

    def no_model(self) -> object:
        return self.elman("info", self.folder / "nowhere")

    def no_training_text(self) -> object:
        text = self.file("gone.txt", self.corpus.read_bytes())
        self.train("--model", "mkn", data=text)
        text.unlink()
        return self.elman("generate", self.out, "--novelty")

    def not_for_this_model(self) -> object:
        return self.elman("predict", self.model, stdin=b"the cat\n")

    def nothing_possible(self) -> object:
        found: Any = elman.load(self.model)
        return found.generate("the", tokens=3, forbid=list(found.tokenizer.tokens))

    def other_version(self) -> object:
        copy = self.copied()
        manifest = json.loads((copy / "manifest.json").read_text())
        (copy / "manifest.json").write_text(json.dumps({**manifest, "format_version": 99}))
        return self.elman("info", copy)

    def unknown_word(self) -> object:
        return self.elman("generate", self.other, "--forbid", "cat")  # its symbols are characters

    def unsupported_model(self) -> object:
        for name in ("config.json", "tokenizer.json", "pytorch_model.bin"):
            self.file(name, "{}")
        return self.elman("import", self.folder, "--out", self.out)

    # Data

    def bad_utf8(self) -> object:
        return self.train(data=self.file("t.txt", b"na\xefve\n"))

    def broken_archive(self) -> object:
        return self.train(data=self.file("t.txt.gz", gzip.compress(os.urandom(999).hex().encode())[:-99]))

    def data_changed(self) -> object:
        text = self.file("other.txt", self.corpus.read_bytes())
        self.train("--model", "mkn", data=text)
        text.write_text("another text\n" * 99)
        return self.elman("generate", self.out, "--novelty")

    def empty_data(self) -> object:
        return self.train(data=self.file("t.txt", "\n\n"))

    def line_too_long(self) -> object:
        pairs = "".join(f"a b{n}\tc d{n}\n" for n in range(40)) + "a " * 30_000 + "\tb\n"
        return self.train("--set", "data.too_long=refuse", task="seq2seq", data=self.file("p.tsv", pairs))

    def malformed_arpa(self) -> object:
        return self.elman("import", self.file("m.arpa", "\\data\\\nngram 1=x\n"), "--out", self.out)

    def malformed_line(self) -> object:
        return self.train(data=self.file("t.jsonl", '{"text": "a b"}\n{"text": 5}\n'))

    def malformed_vectors(self) -> object:
        vectors = self.file("v.txt", "the 0.1 0.2\ncat 0.1 x\n")
        return self.train("--model", "lstm", "--set", f"model.vectors={vectors}", "--set", "train.steps=1")

    def misaligned(self) -> object:
        one, two = self.file("s.txt", "a\nb\nc\n"), self.file("t.txt", "a\nb\n")
        return self.elman("train", "seq2seq", "--source", one, "--target", two, "--out", self.out)

    def no_known_word(self) -> object:
        vectors = self.file("v.txt", "xxx 0.1 0.2\nyyy 0.1 0.3\n")
        return self.train("--model", "lstm", "--set", f"model.vectors={vectors}", "--set", "train.steps=1")

    def not_text(self) -> object:
        return self.train(data=self.file("t.txt", "the cat\n".encode("utf-16")))

    def nothing_to_learn(self) -> object:
        return self.train(task="classify", data=self.file("l.tsv", "good\ta text\n" * 40))

    def reserved_symbol(self) -> object:
        return self.train("--units", "space", data=self.file("t.txt", "a b </s> c\n" * 9))

    def unknown_column(self) -> object:
        table = self.file("p.csv", "a,b\n" + "x y,y x\n" * 20)
        return self.train("--set", "data.source=nope", "--set", "data.target=b", task="seq2seq", data=table)

    def unknown_labels(self) -> object:
        lines = [f"{'good' if n % 2 else 'bad'}\ta text of {n % 7} words\n" for n in range(80)]
        self.train(
            "--set", "train.epochs=1", "--threads", "1", task="classify", data=self.file("l.tsv", "".join(lines))
        )
        return self.elman("evaluate", self.out, self.file("m.tsv", "x\ta text\ny\ta word\n" * 20))

    def unsuitable_text(self) -> object:
        return self.elman("explain", self.model, "no gap at all", "--kind", "cloze")

    def wrong_format(self) -> object:
        return self.train(task="seq2seq")

    # The machine

    def bad_key(self) -> object:
        return self.elman("serve", self.model, "--host", "0.0.0.0", "--port", 0)

    def busy(self) -> object:
        with lock(self.out):
            return self.train("--model", "mkn")

    def cannot_encode(self) -> object:
        text = self.file("t.txt", "é è é è\n" * 40)
        self.train("--model", "mkn", "--units", "space", data=text)
        with (self.folder / "ascii").open("w", encoding="ascii") as stdout:
            self.patch.setattr(sys, "stdout", stdout)
            return app.run(["next", str(self.out), "é"])

    def cannot_listen(self) -> object:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            return self.elman("serve", self.model, "--port", taken.getsockname()[1])

    def cannot_read(self) -> object:
        return self.train(data=self.folder / "nowhere.txt")

    def cannot_write(self) -> object:
        return self.elman("train", "lm", self.corpus, "--out", "/proc/nowhere/m")

    def disk_full(self) -> object:
        with open("/dev/full", "w") as stdout:  # noqa: PTH123
            self.patch.setattr(sys, "stdout", stdout)
            return app.run(["info", str(self.model)])

    def lost_process(self) -> object:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        for name, value in {"RANK": 1, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
            self.patch.setenv(name, str(value))
        self.patch.setattr("elman.training.distributed.JOIN_SECONDS", 1)
        return self.train("--model", "lstm")

    def missing_package(self) -> object:
        self.patch.setitem(sys.modules, "uvicorn", None)
        return self.elman("serve", self.model)

    def no_stdout(self) -> object:
        self.patch.setattr(sys, "stdout", None)
        return app.run(["info", str(self.model)])

    def out_exists(self) -> object:
        return self.elman("train", "lm", self.corpus, "--out", self.model)

    def out_of_memory(self) -> object:
        return self.load_raises(MemoryError())

    def spark_failed(self) -> object:
        pytest.importorskip("pyspark")
        master = "count.master=spark://127.0.0.1:1"
        return self.train("--model", "mkn", "--set", "count.engine=spark", "--set", master)

    def stopped(self) -> object:
        self.patch.setattr("elman.training.loop.Trainer._step", _terminated)
        return self.train("--model", "lstm", "--set", "train.steps=2")

    def system_error(self) -> object:
        return self.load_raises(OSError(errno.EMFILE, "Too many open files"))

    def too_little_memory(self) -> object:
        return self.train("--model", "mkn", "--memory", "1K")

    # Results, and code of your own

    def bad_data(self) -> object:
        return self.load_raises(errors.DataError("the data of a model of one's own"))

    def bug(self) -> object:
        return self.load_raises(ZeroDivisionError("oh"))

    def diverged(self) -> object:
        from elman.training.dynamic import Dynamics
        from tests.training.test_dynamic import TEXT, adapted, build

        return adapted(build("rnn relu"), np.tile(TEXT, 20), dynamics=Dynamics(segment=4, rate=1e30))

    def drawing_failed(self) -> object:
        from elman import pictures

        return pictures.render_within({"mark": 5}, 60)

    def export_differs(self) -> object:
        from elman.export.onnx import _checked

        class Wrong:
            graphs = ()

            def difference(self, run: object, steps: int) -> float:
                return 1.0 if run == "graphs" else 0.0

        class Runner:
            run = "graphs"

        self.patch.setattr("elman.nets.graphs.float64_runner", lambda graphs: None)
        return _checked(Wrong(), Runner())  # type: ignore[arg-type]

    def failed(self) -> object:
        return self.load_raises(ElmanError("a model of one's own"))

    def part_failed(self) -> object:
        def fail(*arguments: object, **options: object) -> None:
            raise errors.DataError("no words")

        self.patch.setattr("elman.compare.running.train", fail)
        return self.elman("compare", self.corpus, "--models", "mkn", "--out", self.out)

    def wrong_usage(self) -> object:
        return self.load_raises(errors.UsageError("a model of one's own"))


def _terminated(*arguments: object) -> None:
    signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("code", CAUSES)
def test_every_cause_can_be_met(
    code: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, corpus: Path, model: Path, stream_model: Path
) -> None:
    met: list[ElmanError] = []
    shown = app._for_the_user
    monkeypatch.setattr(app, "_for_the_user", lambda error: met.append(shown(error)) or met[-1])
    provoke = getattr(Cases(run, tmp_path, monkeypatch, corpus, model, stream_model), code.replace("-", "_"))
    try:
        said = provoke()
    except ElmanError as error:  # from Python
        met.append(error)
        said = None
    assert met, said
    assert met[-1].code == code, met[-1]
