"""What every verb shares: help, exit codes, messages, signals, pipes."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import elman
from elman.cli import main, terminal
from tests.commands import LINES, Run, run_process

VERBS = [
    *("demo", "train", "resume", "evaluate", "score", "generate", "next"),
    *("predict", "encode", "mix", "export", "import", "info"),
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


def test_help_needs_neither_numpy_nor_torch_and_less_than_a_third_of_a_second() -> None:
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
    times = []
    for _ in range(3):  # processor time: the machine may be busy with other things
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run_process("--help").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(times) < 0.3


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
        (["next", "DIR", "x", "--k", "0"], "invalid value for '--k'", "see elman next --help"),
        (
            ["export", "DIR", "--format", "onnxx", "--out", "x"],
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


def test_a_stdout_that_is_not_there_is_no_trouble(model: Path) -> None:
    done = subprocess.run(["sh", "-c", f"{sys.executable} -m elman info {model} >&-"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


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
