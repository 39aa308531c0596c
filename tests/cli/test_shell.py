"""What every verb shares: help, exit codes, messages, signals, pipes."""

from __future__ import annotations

import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.main import get_command

import elman
from elman.cli import main, terminal
from elman.cli.app import make_app
from tests.commands import LINES, Run, run_process, run_shell

VERBS = [
    *("demo", "compare", "train", "resume", "evaluate", "score", "generate", "next"),
    *(
        "predict",
        "encode",
        "explain",
        "serve",
        "studio",
        "mix",
        "rescore",
        "export",
        "import",
        "settings",
        "info",
        "doctor",
    ),
]


def test_help_names_every_verb_and_there_are_no_others(run: Run) -> None:
    result = run("--help")
    assert result.code == 0
    listed = [line.split()[0] for line in result.out.partition("Commands:\n")[2].splitlines() if line.strip()]
    assert listed == VERBS


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(run: Run, verb: str) -> None:
    result = run(verb, "--help")
    assert result.code == 0
    assert result.out.startswith(f"Usage: elman {verb}")
    assert not re.search(r"<[a-z]+|\{[A-Z]", result.out.replace("<unk>", "")), "types of Python are not for users"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_shows_two_examples_that_it_understands(run: Run, verb: str) -> None:
    shown = run(verb, "--help").out.partition("Examples:\n")[2].splitlines()
    assert len(shown) >= 2
    command = get_command(make_app()).commands[verb]  # type: ignore[attr-defined]
    for line in shown:
        words = shlex.split(re.split(r" [|>] ", line[line.index("elman ") :])[0])
        assert words[:2] == ["elman", verb]
        command.make_context(verb, words[2:])  # an error for a flag or an argument that is none


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("export m --format apra --out x", "arpa"),
        ("score m --errors skp", "skip"),
        ("train lm text --units wrod --out m", "word"),
        ("train lm text --units bep:8000 --out m", "bpe:8000"),
        ("train classify text --units chars --out m", "char"),
    ],
)
def test_a_value_that_is_nearly_one_is_corrected(run: Run, words: str, meant: str) -> None:
    found = run(*words.split())
    assert found.code == 2
    assert f"hint: did you mean {meant}?" in found.err
    assert "Value error" not in found.err


@pytest.mark.parametrize(
    ("flag", "others"),
    [
        ("--json", {"serve", "studio"}),  # they have no result
        ("--threads", {"export", "import", "settings", "info", "doctor"}),
        (
            "--seed",
            {
                "resume",
                "score",
                "next",
                "predict",
                "encode",
                "serve",
                "studio",
                "rescore",
                "export",
                "import",
                "settings",
                "info",
                "doctor",
            },
        ),  # nothing is random
    ],
)
def test_a_flag_is_on_every_verb_where_it_makes_sense(run: Run, flag: str, others: set[str]) -> None:
    assert {verb for verb in VERBS if f" {flag} " not in run(verb, "--help").out} == others


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("elman train cl", {"classify"}),
        ("elman train lm text --model l", {"lstm"}),
        ("elman train seq2seq pairs --model ", {"lstm", "rnn", "gru", "transformer"}),
        ("elman train seq2seq pairs --recipe di", {"dialogue"}),
        ("elman train lm text --units b", {"byte", "bpe:8000"}),
        ("elman train lm text --set train.bptt", {"train.bptt=", "train.bptt_spread="}),
        ("elman sett", {"settings"}),
    ],
)
def test_a_shell_completes_names(words: str, wanted: set[str]) -> None:
    place = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_ELMAN_COMPLETE": "complete_bash"}
    done = run_process(env={**os.environ, **place})
    assert set(done.stdout.split()) == wanted, done.stderr


def test_help_needs_neither_numpy_nor_torch_and_less_than_a_quarter_of_the_time_of_importing_it() -> None:
    """Of `train` it lists all tasks and models as they declare themselves, for which numpy is needed, but nothing slow."""
    program = f"""
        import sys
        from elman.cli.app import run
        codes = [run(["--help"]), *(run([verb, "--help"]) for verb in {VERBS!r} if verb != "train")]
        heavy = {{"numpy", "torch", "scipy", "tokenizers"}} & set(sys.modules)
        codes.append(run(["train", "--help"]))
        heavy |= {{"torch", "scipy", "tokenizers"}} & set(sys.modules)
        sys.exit(f"imported {{heavy}}" if heavy else max(codes))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    helping = _least_seconds(lambda: run_process("--help"))
    assert helping < 0.25 * _least_seconds(lambda: run_command([sys.executable, "-c", "import torch"]))


def run_command(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


def _least_seconds(start: Callable[[], subprocess.CompletedProcess[str]]) -> float:
    """Of three processes. Processor time: the machine may be busy with other things."""
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert start().returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def test_version(run: Run) -> None:
    assert run("--version").out == f"elman {elman.__version__}\n"


def test_no_verb_shows_the_help(run: Run) -> None:
    result = run()
    assert result.code == 2
    assert "Commands:" in result.err
    assert result.out == ""


@pytest.mark.parametrize(
    ("arguments", "what", "hint"),
    [
        (["trian"], "no such command 'trian'", "did you mean 'train'?"),
        (["info", "DIR", "--jsn"], "no such option: --jsn", "did you mean --json?"),
        (["train", "lm"], "missing option '--out'", "see elman train --help"),
        (
            ["score", "DIR", "--errors", "bogus"],
            "invalid value for '--errors': 'bogus' is not",
            "see elman score --help",
        ),
        (["next", "DIR", "x", "--k", "0"], "invalid value for '--k'", "see elman next --help"),
        (
            ["export", "DIR", "--format", "gguf", "--out", "x"],
            "invalid value for '--format'",
            "see elman export --help",
        ),
    ],
)
def test_wrong_usage_says_what_and_what_to_do(run: Run, arguments: list[str], what: str, hint: str) -> None:
    result = run(*arguments)
    assert result.code == 2
    error, remedy = result.err.splitlines()
    assert error.startswith(f"error: {what}")
    assert remedy == f"hint: {hint}"


def test_a_bug_is_a_message_and_a_traceback_only_on_demand(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("elman.api.load", broken)
    result = run("info", model)
    assert result.code == 1
    assert result.err.startswith("error: a bug in elman: ZeroDivisionError: oh")
    assert "Traceback" not in result.err
    monkeypatch.setenv("ELMAN_DEBUG", "1")
    assert "Traceback" in run("info", model).err


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 5 bytes")])
def test_memory_that_is_not_there_is_no_bug(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def greedy(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("elman.api.load", greedy)
    result = run("info", model)
    assert (result.code, result.err.splitlines()[0]) == (1, "error: out of memory")


def test_a_module_in_the_current_directory_is_not_taken_for_one_of_ours(model: Path, tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit(3)")
    done = run_process("next", model, "the", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_colour_only_on_a_terminal_that_wants_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.fail("what", "remedy")
    assert capsys.readouterr().err == "error: what\nhint: remedy\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal.fail("what", "remedy")
    assert "\x1b[1;31merror:" in capsys.readouterr().err
    monkeypatch.setenv("NO_COLOR", "1")
    terminal.fail("what", "remedy")
    assert capsys.readouterr().err == "error: what\nhint: remedy\n"


def test_text_cannot_steer_a_terminal() -> None:
    assert terminal.escape("a\x1b[2Jb\tc\n") == "a\\x1b[2Jb\tc\n"
    assert terminal.escape("Grüße, 世界") == "Grüße, 世界"
    assert terminal.escape("\x9b\u202e", keep="") == "\\x9b\\u202e"


def test_a_closed_pipe_ends_quietly_with_141(model: Path, tmp_path: Path) -> None:
    text = tmp_path / "long.txt"
    text.write_text("\n".join(LINES * 20_000) + "\n")
    command = [sys.executable, "-m", "elman", "score", str(model), str(text)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141


def test_a_full_disk_under_stdout_is_said(model: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "elman", "score", str(model), str(model / "README.md")]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 74
    assert done.stderr == "error: no space left on device\n"


@pytest.mark.parametrize(
    "verb", ["info {model}", "evaluate {model} {text}", "score {model} {text}", "next {model} the"]
)
def test_a_result_that_nobody_would_get_is_refused(model: Path, corpus: Path, verb: str) -> None:
    """`evaluate ... >&-` ended with 0, its result lost."""
    done = run_shell(f"elman {verb.format(model=model, text=corpus)} >&-")
    assert done.returncode == 74
    assert done.stderr.startswith("error: stdout is closed: the result would be lost\nhint: ")


@pytest.mark.parametrize("threads", ["99999999999", "0", "many"])
def test_a_number_of_threads_that_no_machine_has_is_wrong_usage(run: Run, corpus: Path, threads: str) -> None:
    """Eleven nines were `a bug in elman: Overflow when unpacking long`."""
    found = run("score", "model", corpus, "--threads", threads)
    assert found.code == 2 and "--threads" in found.err and "bug" not in found.err


def test_streams_that_are_closed_are_no_bug(model: Path, corpus: Path, tmp_path: Path) -> None:
    trained = run_shell(f"elman train lm {corpus} --out {tmp_path / 'm'} >&- 2>&-")
    assert trained.returncode == 0
    assert elman.load(tmp_path / "m").next("the cat", k=1)
    for verb in (f"score {model}", f"score {model} -", f"evaluate {model} -", f"train lm - --out {tmp_path / 'n'}"):
        done = run_shell(f"elman {verb} <&-")
        assert done.returncode == 66, verb
        assert done.stderr.startswith("error: cannot read stdin: it is closed\nhint: ")
    assert not (tmp_path / "n").exists()


def test_a_stdout_whose_encoding_cannot_hold_the_text_is_said(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("süß ist das\n" * 20, encoding="utf-8")
    elman.train("lm", text, out=tmp_path / "m", model="bigram", units="space")
    done = run_shell(f"elman next {tmp_path / 'm'} ''", PYTHONIOENCODING="ascii")
    assert done.returncode == 74
    assert done.stderr.startswith("error: stdout is ascii, which has no ")
    assert "PYTHONIOENCODING=utf-8" in done.stderr
    assert run_shell(f"elman next {tmp_path / 'm'} ''", PYTHONIOENCODING="utf-8").returncode == 0


def _heed_interrupts() -> None:
    """A shell that starts a job in the background has it ignore Ctrl-C, and its children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_training_keeps_the_old_model(
    model: Path, corpus: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    out = tmp_path / "model"
    elman.train("lm", corpus, out=out, units="space", reset_lines=True, valid="none", settings={"model.order": 3})
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    fifo = tmp_path / "text.fifo"
    os.mkfifo(fifo)
    command = [sys.executable, "-m", "elman", "train", "lm", str(fifo), "--out", str(out), "--overwrite"]
    started = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_heed_interrupts,  # noqa: PLW1509 - it only resets a signal
    )
    with started as process:
        with fifo.open("wb") as pipe:  # it waits for more text, the lock held
            pipe.write(b"the cat sat\n" * 1000)
            pipe.flush()
            deadline = time.monotonic() + 60
            while not (out / ".lock").exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            busy = run_process("train", "lm", corpus, "--out", out, "--overwrite")
            process.send_signal(number)
            assert process.wait(60) == code
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    assert busy.returncode == 75
    assert busy.stderr.startswith("error: another process is writing into")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert elman.load(out).next("the cat", k=1)


def test_a_ctrl_c_that_nobody_expected_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(arguments: list[str]) -> int:
        raise KeyboardInterrupt

    codes: list[int] = []
    monkeypatch.setattr("elman.cli.app.run", interrupted)
    monkeypatch.setattr("os._exit", codes.append)
    main()
    assert codes == [130]


def test_counting_never_imports_torch(corpus: Path, tmp_path: Path) -> None:
    program = f"""
import sys
from elman.cli.app import run
out = {str(tmp_path / "model")!r}
assert run(["train", "lm", {str(corpus)!r}, "--out", out]) == 0
assert run(["evaluate", out, {str(corpus)!r}]) == 0
assert run(["generate", out, "--tokens", "3"]) == 0
sys.exit("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
