"""`elman doctor` says of everything that was broken on purpose what it is, and of what is whole that it is."""

from __future__ import annotations

import json
import shutil
from importlib import metadata
from pathlib import Path

import pytest

import elman
from elman.cli.app import run
from elman.core.files import lock
from elman.doctor import examine, installation


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("doctor")
    (folder / "text.txt").write_text("a b c d\nb c d a\nc d e\n" * 50)
    elman.train("lm", folder / "text.txt", out=folder / "model", model="kn")
    return folder / "model"


def wrongs(path: Path | None) -> list[str]:
    return [finding.what for finding in examine(path) if finding.level == "wrong"]


def notes(path: Path | None) -> str:
    return "\n".join(finding.what for finding in examine(path) if finding.level == "note")


def test_a_model_that_is_whole(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", str(model)]) == 0
    assert "add up to 1" in capsys.readouterr().out
    assert run(["doctor", str(model), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["is_well"] is True


@pytest.mark.parametrize("name", ["README.md", "config.json", "model.safetensors", "tokenizer.json", "manifest.json"])
def test_any_damaged_file_of_a_model_is_named(
    model: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(model, tmp_path / "model")
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 0x81
    (copy / name).write_bytes(content)
    assert len(found := wrongs(copy)) == 1 and name in found[0]
    assert run(["doctor", str(copy)]) == 1
    assert f"WRONG {copy}" in capsys.readouterr().out


def test_what_does_not_belong_to_a_model_is_named(model: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(model, tmp_path / "model")
    for name in ("weights.pt", "config.json.new", "holiday.jpg"):
        (copy / name).write_bytes(b"")
    assert wrongs(copy) == ["weights.pt may be pickled: loading such a file can run any program"]
    assert "config.json.new is left over" in notes(copy) and "holiday.jpg is not part of the model" in notes(copy)


def test_an_unfinished_run_is_sent_on(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "run.json").write_text("{}")
    (found,) = examine(tmp_path)
    assert found.remedy == f"elman resume {tmp_path} goes on with it"


def test_a_run_that_is_going_on_is_busy_not_unfinished(tmp_path: Path) -> None:
    """The doctor sent people to `elman resume`, which then refused: another process was writing there."""
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "run.json").write_text("{}")
    with lock(tmp_path):
        (found,) = examine(tmp_path)
    assert found.what == f"busy: another process is writing into {tmp_path}"
    assert "unfinished" in notes(tmp_path)


@pytest.mark.parametrize(
    ("content", "wrong", "said"),
    [
        (b"a b\nc \xff\nd\n", "line 2 of", "1 of 3 lines would be dropped"),
        (b"a b\n" * 10, None, "90% of the lines were there before"),
        (b"a <unk> b\n", None, "it contains <unk>"),
        (b"", "there is no text in", ""),
        (b"%PDF-1.4 ...", "is a PDF", ""),
        (b"x" * (2 << 20), None, "line 1 of"),
    ],
)
def test_a_text_is_read_for_what_would_surprise(tmp_path: Path, content: bytes, wrong: str | None, said: str) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    found = wrongs(path)
    assert (not found) if wrong is None else (len(found) == 1 and wrong in found[0])
    assert said in notes(path)


def test_a_file_is_sent_to_its_task(tmp_path: Path) -> None:
    path = tmp_path / "words.conll"
    path.write_text("the\tD\ncat\tN\n\nthe\tD\ndog\tN\n\n" * 20)
    assert any(f"elman train tag {path}" in finding.what for finding in examine(path))


def test_an_installation_that_lacks_something_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrongs(None) == []
    versions = {"numpy": "1.0", "scipy": None, "fastapi": None}

    def version(name: str) -> str | None:
        return versions[name] if name in versions else metadata.version(name)

    monkeypatch.setattr(installation, "_version", version)
    found = wrongs(None)
    assert [what.split()[0] for what in found] == ["numpy", "scipy"]
    assert "`elman serve` and `elman studio` cannot be used: fastapi missing" in notes(None)


def test_nothing_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", str(tmp_path / "nothing")]) == 66
    assert "there is no file or directory" in capsys.readouterr().err
