"""The verbs that use a model: evaluate, score, generate, next, info, mix, export, import."""

from __future__ import annotations

import gzip
import json
import math
import os
import pty
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import elman
from elman.core.errors import WriteError
from tests.commands import LINES, Run

KEYS = ["perplexity", "nats_per_token", "bits_per_byte", "tokens", "unknown_tokens", "impossible_tokens", "signature"]


def test_evaluate_prints_the_contract_and_its_seed(run: Run, model: Path, corpus: Path) -> None:
    found = run("evaluate", model, corpus, "--json").json
    assert found.keys() >= {*KEYS, "schema_version", "seed"}
    assert found["perplexity"] == pytest.approx(math.exp(found["nats_per_token"]))
    assert found["tokens"] == sum(len(line.split()) + 1 for line in LINES) * 20
    shown = dict(line.split(maxsplit=1) for line in run("evaluate", model, corpus).out.splitlines())
    assert shown.keys() >= {*KEYS, "seed"}
    assert float(shown["perplexity"]) == pytest.approx(found["perplexity"], rel=1e-3)


def test_an_impossible_token_makes_the_perplexity_null(run: Run, corpus: Path, tmp_path: Path) -> None:
    run(
        "train",
        "lm",
        corpus,
        "--out",
        tmp_path / "m",
        "--model",
        "bigram",
        "--set",
        "model.smoothing=ml",
        "--units",
        "space",
    )
    text = tmp_path / "text.txt"
    text.write_text("mat the the cat\n")
    result = run("evaluate", tmp_path / "m", text, "--json")
    assert result.json["perplexity"] is None
    assert result.json["impossible_tokens"] > 0
    assert "probability zero" in result.err
    scored = run("score", tmp_path / "m", text, "--json", "--per-token").json
    assert scored["nats"] is None


def test_unknown_words_are_counted(run: Run, model: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the zebra sat on the quagga .\n")
    assert run("evaluate", model, text, "--json").json["unknown_tokens"] == 2


def test_scores_come_line_by_line_and_add_up_to_evaluate(run: Run, model: Path, corpus: Path) -> None:
    rows = [line.split("\t") for line in run("score", model, corpus).out.splitlines()]
    assert len(rows) == 100
    found = run("evaluate", model, corpus, "--json").json
    assert sum(int(row[1]) for row in rows) == found["tokens"]
    assert sum(float(row[0]) for row in rows) == pytest.approx(found["nats_per_token"] * found["tokens"], rel=1e-5)
    nats, tokens, perplexity, unknown = (float(cell) for cell in rows[0])
    assert perplexity == pytest.approx(math.exp(nats / tokens), rel=1e-4)
    assert unknown == 0


def test_per_token_scores_add_up(run: Run, model: Path) -> None:
    (row,) = run("score", model, "-", "--per-token", stdin=b"the cat sat\n").out.splitlines()
    nats, tokens, _, _, *cells = row.split("\t")
    assert cells[0::2] == ["the", "cat", "sat", "</s>"]
    assert tokens == "4"
    assert sum(map(float, cells[1::2])) == pytest.approx(float(nats), abs=1e-5)
    found = run("score", model, "-", "--per-token", "--json", stdin=b"the cat sat\n").json
    assert [token for token, _ in found["per_token"]] == ["the", "cat", "sat", "</s>"]


BAD = b"the cat\nbad \xff byte\n<s> is reserved\nthe mat\nlast \0\n"


@pytest.mark.parametrize(("errors", "good"), [("skip", [0, 3]), ("replace", [0, 1, 3, 4])])
def test_score_gives_a_line_for_a_line_whatever_is_in_it(run: Run, model: Path, errors: str, good: list[int]) -> None:
    result = run("score", model, "--errors", errors, stdin=BAD)
    rows = result.out.splitlines()
    assert [number for number, row in enumerate(rows) if row] == good
    assert len(rows) == 5
    assert ("3 lines are no text" if errors == "skip" else "1 line is no text") in result.err
    records = [
        json.loads(line) for line in run("score", model, "--errors", errors, "--json", stdin=BAD).out.splitlines()
    ]
    assert [number for number, record in enumerate(records) if record["nats"] is not None] == good
    assert rows[3].split("\t")[0] == f"{records[3]['nats']:.6f}"


def test_score_keeps_its_place_with_a_model_that_was_trained_to_skip_bad_lines(
    run: Run, corpus: Path, tmp_path: Path
) -> None:
    """Bad lines were dropped and every later score stood beside another line."""
    settings = {"data.skip_bad": True}
    elman.train("lm", corpus, out=tmp_path / "m", model="unigram", units="space", settings=settings)
    rows = run("score", tmp_path / "m", stdin=BAD).out.splitlines()
    assert [bool(row) for row in rows] == [True, False, False, True, False]
    assert run("score", tmp_path / "m", "--errors", "stop", stdin=BAD).code == 65


def test_score_stops_at_what_is_no_text_unless_told_otherwise(run: Run, model: Path) -> None:
    result = run("score", model, stdin=BAD)
    assert result.code == 65
    assert "line 2 of - is not UTF-8" in result.err


def test_a_record_is_a_line_for_score(run: Run, model: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.jsonl"
    text.write_text('{"text": "the cat\\nthe mat"}\n\nnonsense\n{"text": "the dog"}\n')
    rows = run("score", model, text, "--errors", "skip").out.splitlines()
    assert [row.split("\t")[1] if row else None for row in rows] == ["6", None, None, "3"]


def test_score_can_read_lines_in_their_context(run: Run, stream_model: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the\nmat .\n" * 3)
    alone, stream = (run("score", stream_model, text, *flags).out.splitlines() for flags in ((), ("--stream",)))
    assert alone[0] == stream[0] and alone[1] == alone[3]
    total = run("evaluate", stream_model, text, "--stream", "--json").json
    nats = sum(float(row.split("\t")[0]) for row in stream)
    assert nats == pytest.approx(total["nats_per_token"] * total["tokens"], rel=1e-5)


def test_score_can_put_the_line_beside_its_score(run: Run, model: Path) -> None:
    (row,) = run("score", model, "--text", stdin=b"the\tcat xyz\n").out.splitlines()
    assert row.split("\t")[3:] == ["1", "the\\tcat xyz"]
    assert run("score", model, "--text", "--json", stdin=b"the\tcat\n").json["text"] == "the\tcat"


@pytest.mark.parametrize("flags", [("--seed", "1"), ("--beam", "3"), ("--temperature", "0")])
def test_generate_writes_unk_only_where_it_is_asked_to(
    run: Run, corpus: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    settings = {"data.min_count": 60}
    elman.train("lm", corpus, out=tmp_path / "m", model="unigram", units="space", settings=settings)
    command = ("generate", tmp_path / "m", "--tokens", "40", *flags)
    assert "<unk>" not in run(*command).out
    if "--beam" not in flags:
        assert "<unk>" in run(*command, "--unknown").out


def test_an_empty_line_costs_its_end(run: Run, model: Path) -> None:
    rows = run("score", model, stdin=b"\nthe cat\n").out.splitlines()
    assert [row.split("\t")[1] for row in rows] == ["1", "3"]


def test_a_line_is_answered_before_the_next_one_is_there(model: Path) -> None:
    command = [sys.executable, "-m", "elman", "score", str(model)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in LINES[:3]:
            process.stdin.write(line + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()  # hangs, were it not answered
            assert answer.split("\t")[1] == str(len(line.split()) + 1)
        process.stdin.close()
        assert process.wait(60) == 0


def test_score_on_a_terminal_shows_help_instead_of_waiting(
    run: Run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    result = run("score", model)
    assert result.code == 2
    assert "Usage: elman score" in result.err
    assert "nothing to read" in result.err


def test_generated_text_is_the_same_for_the_same_seed(run: Run, model: Path) -> None:
    first, again, other = (run("generate", model, "--seed", seed, "--tokens", 8) for seed in (5, 5, 6))
    assert first.code == 0
    assert first.err == "seed 5\n"
    assert first.out == again.out != other.out


def test_a_seed_that_was_not_given_is_printed_and_repeats(run: Run, model: Path) -> None:
    first = run("generate", model, "--prompt", "the")
    seed = first.err.split()[-1]
    assert run("generate", model, "--prompt", "the", "--seed", seed).out == first.out


def test_generate_shapes_stops_and_forbids(run: Run, stream_model: Path, model: Path) -> None:
    greedy = [run("generate", model, "--prompt", "the", "--temperature", 0, "--tokens", 5).out for _ in range(2)]
    assert greedy[0] == greedy[1]
    assert run("generate", model, "--prompt", "the", "--top-k", 1, "--tokens", 5).out == greedy[0]
    text = run("generate", stream_model, "--tokens", 200, "--seed", 1, "--forbid", "t", "--forbid", "e").out
    assert not set("te") & set(text)
    full = run("generate", stream_model, "--tokens", 200, "--seed", 2).out
    cut = run("generate", stream_model, "--tokens", 200, "--seed", 2, "--stop", "s", "--stop", "on").out
    assert cut.rstrip("\n") == full[: min(full.index("s"), full.index("on"))].rstrip("\n")


def test_a_space_at_the_end_of_a_prompt_is_the_one_that_the_next_word_brings(run: Run, model: Path) -> None:
    """Of units between spaces it was written twice: `the  cat`."""
    greedy = [run("generate", model, "--prompt", prompt, "--temperature", 0).out for prompt in ("the", "the ")]
    assert greedy[0] == f" {greedy[1]}" and not greedy[1].startswith(" ")


def test_several_samples_differ_and_the_first_is_the_only_one(run: Run, stream_model: Path) -> None:
    found = run("generate", stream_model, "--samples", 3, "--seed", 1, "--tokens", 30, "--json").json
    assert len(set(found["texts"])) == 3
    assert run("generate", stream_model, "--seed", 1, "--tokens", 30, "--json").json["texts"] == found["texts"][:1]


def test_a_beam_finds_the_likeliest_line(run: Run, model: Path) -> None:
    found = run("generate", model, "--prompt", "the cat", "--beam", 20, "--samples", 3, "--tokens", 12, "--json").json
    assert found["nats"] == sorted(found["nats"])
    loaded = elman.load(model)
    prompt_nats = sum(nats for _, nats in loaded.score("the cat").per_token[:-1])
    for text, nats in zip(found["texts"], found["nats"], strict=True):
        assert loaded.score("the cat" + text).nats - prompt_nats == pytest.approx(nats, abs=1e-4)
    result = run("generate", model, "--beam", 3, "--temperature", 0.5)
    assert (result.code, result.err.splitlines()[0]) == (2, "error: --temperature does not apply to --beam")


def test_generated_text_comes_as_it_is_drawn_and_cannot_steer_the_terminal(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a\x1b[31mb\x07\n" * 50)
    elman.train("lm", text, out=tmp_path / "m", units="char", model="bigram")
    command = [sys.executable, "-m", "elman", "generate", str(tmp_path / "m"), "--tokens", "200000", "--seed", "1"]
    controller, worker = pty.openpty()
    with subprocess.Popen(command, stdout=worker, stderr=subprocess.DEVNULL) as process:
        os.close(worker)
        seen = b""
        deadline = time.monotonic() + 60
        while len(seen) < 300 and time.monotonic() < deadline:
            seen += os.read(controller, 1000)
        is_running = process.poll() is None
        process.terminate()
        process.wait(60)
    os.close(controller)
    assert is_running
    assert b"\\x1b[31m" in seen
    assert b"\x1b" not in seen
    assert b"\x07" not in seen


def test_next_is_a_distribution(run: Run, model: Path) -> None:
    found = run("next", model, "the cat", "--k", 1000, "--json").json
    probabilities = [entry["probability"] for entry in found["next"]]
    assert sum(probabilities) == pytest.approx(1, abs=1e-5)
    assert probabilities == sorted(probabilities, reverse=True)
    first = run("next", model, "the cat", "--k", 1).out.rstrip("\n").split("\t")
    assert first[1] == found["next"][0]["token"]


def test_info_says_what_a_model_is(run: Run, model: Path) -> None:
    found = run("info", model, "--json").json
    assert found["model"] == "mkn"
    assert found["settings"]["order"] == 3
    assert found["vocab_size"] == 15
    assert found["source"]["lines"] == 100
    shown = run("info", model).out
    assert "model.order" in shown
    assert "discount" in shown


@pytest.mark.parametrize(
    "verb", [["info"], ["next", "x"], ["evaluate", "/dev/null"], ["generate"], ["score", "/dev/null"]]
)
def test_no_model_there_is_66(run: Run, tmp_path: Path, verb: list[str]) -> None:
    name, *rest = verb
    result = run(name, tmp_path / "nowhere", *rest)
    assert result.code == 66
    assert result.err.startswith(f"error: there is no model at {tmp_path / 'nowhere'}")
    result = run(name, tmp_path, *rest)
    assert result.code == 66


def test_a_damaged_model_is_refused_unless_asked_not_to_look(run: Run, model: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config))
    result = run("info", copy)
    assert result.code == 65
    assert "config.json" in result.err
    assert run("info", copy, "--no-verify").code == 0


def test_damage_that_nobody_looked_for_is_a_message_or_a_model(run: Run, model: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    good = (model / "model.safetensors").read_bytes()
    rng = np.random.default_rng(1)
    for _ in range(40):
        bad = bytearray(good)
        for place in rng.integers(0, len(bad), 30):
            bad[place] = rng.integers(256)
        (copy / "model.safetensors").write_bytes(bad)
        result = run("next", copy, "the cat sat on", "--no-verify")
        assert result.code in (0, 1, 65)
        assert "Traceback" not in result.err
        assert result.code == 0 or result.err.startswith("error: ")


def test_mixing_with_a_cache_and_refusing_strangers(
    run: Run, corpus: Path, model: Path, stream_model: Path, tmp_path: Path
) -> None:
    alone = run("evaluate", model, corpus, "--json").json["perplexity"]
    for name in ("cache", "cache:decay=0.9", "cache:window=5"):
        result = run("mix", model, name, "--valid", corpus, "--out", tmp_path / "mix", "--json", "--overwrite")
        assert result.code == 0, result.err
        assert result.json["model"] == "mixture"
        assert [member["family"] for member in result.json["settings"]["members"]] == ["mkn", "cache"]
        assert run("evaluate", tmp_path / "mix", corpus, "--json").json["perplexity"] <= alone * 1.001
        assert "the cache forgets with every line" in result.err
    strangers = run("mix", model, stream_model, "--valid", corpus, "--out", tmp_path / "no")
    assert strangers.code == 65
    assert "different vocabularies" in strangers.err
    assert not (tmp_path / "no").exists()
    lonely = run("mix", "cache", "--valid", corpus, "--out", tmp_path / "no")
    assert (lonely.code, lonely.err.splitlines()[0]) == (2, "error: a mixture of caches alone knows nothing")
    wrong = run("mix", model, "cache:decy=0.9", "--valid", corpus, "--out", tmp_path / "no")
    assert (wrong.code, wrong.err.splitlines()[1]) == (2, "hint: did you mean cache.decay?")


def test_a_model_that_went_through_arpa_scores_the_same(run: Run, model: Path, corpus: Path, tmp_path: Path) -> None:
    assert run("export", model, "--format", "arpa", "--out", tmp_path / "m.arpa").code == 0
    assert (tmp_path / "m.arpa").read_text().lstrip().startswith("\\data\\")
    assert run("import", tmp_path / "m.arpa", "--out", tmp_path / "back").code == 0
    before, after = (run("evaluate", place, corpus, "--json").json for place in (model, tmp_path / "back"))
    assert after["perplexity"] == pytest.approx(before["perplexity"], rel=1e-5)
    assert after["tokens"] == before["tokens"]


@pytest.mark.parametrize(
    ("units", "text"), [("word", "The cat's hat, red.\nA cat!\n" * 4), ("char", "abba\nbab\n" * 4)]
)
def test_an_exported_model_comes_back_with_its_units(run: Run, tmp_path: Path, units: str, text: str) -> None:
    """A model of words came back as one of `space` units: most words were unknown to it, and its perplexity was another."""
    (tmp_path / "t.txt").write_text(text)
    elman.train("lm", tmp_path / "t.txt", valid="none", units=units, reset_lines=True, out=tmp_path / "m")
    assert run("export", tmp_path / "m", "--format", "arpa", "--out", tmp_path / "m.arpa").code == 0
    assert run("import", tmp_path / "m.arpa", "--out", tmp_path / "back").code == 0
    before, after = (run("evaluate", tmp_path / name, tmp_path / "t.txt", "--json").json for name in ("m", "back"))
    assert after["tokens"] == before["tokens"] and after["unknown_tokens"] == before["unknown_tokens"]
    assert after["perplexity"] == pytest.approx(before["perplexity"], rel=1e-5)


def test_no_spelling_is_promised_where_unknown_words_have_none(run: Run, model: Path, tmp_path: Path) -> None:
    """Of an imported model it was said that its bits_per_byte counts the spelling of unknown words."""
    assert run("export", model, "--format", "arpa", "--out", tmp_path / "m.arpa").code == 0
    assert run("import", tmp_path / "m.arpa", "--out", tmp_path / "back").code == 0
    for verb in ("evaluate", "score"):
        warned = run(verb, tmp_path / "back", "-", stdin=b"nothing known here\n").err
        assert "unknown to the model" in warned and "leaves out how they are spelled" in warned


def test_an_export_overwrites_nothing_unasked_and_no_model_at_all(run: Run, model: Path, tmp_path: Path) -> None:
    """It replaced a thesis, and the model's own tensors, with an ARPA file."""
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("ten years")
    refused = run("export", model, "--format", "arpa", "--out", thesis)
    assert (refused.code, thesis.read_text()) == (74, "ten years")
    assert refused.err.splitlines() == [f"error: {thesis} is there already", "hint: --overwrite replaces it"]
    assert run("export", model, "--format", "arpa", "--out", thesis, "--overwrite").code == 0
    assert thesis.read_text().startswith("\\data\\")
    before = (model / "model.safetensors").read_bytes()
    own = run("export", model, "--format", "arpa", "--out", model / "model.safetensors", "--overwrite")
    assert own.code == 74 and "is a file of the model in" in own.err
    with pytest.raises(WriteError, match="is a file of the model in"):
        elman.load(model).export(model / "model.safetensors", overwrite=True)
    with pytest.raises(WriteError, match="is there already"):
        elman.load(model).export(thesis)
    assert (model / "model.safetensors").read_bytes() == before


def test_an_export_goes_to_stdout_or_is_compressed(run: Run, model: Path, tmp_path: Path) -> None:
    printed = run("export", model, "--format", "arpa", "--out", "-")
    assert printed.code == 0 and printed.err == ""
    assert run("export", model, "--format", "arpa", "--out", tmp_path / "m.arpa.gz").code == 0
    assert gzip.decompress((tmp_path / "m.arpa.gz").read_bytes()).decode() == printed.out
    assert run("import", tmp_path / "m.arpa.gz", "--out", tmp_path / "back").code == 0


def test_what_cannot_be_exported_says_so(run: Run, stream_model: Path, tmp_path: Path) -> None:
    result = run("export", stream_model, "--format", "arpa", "--out", tmp_path / "m.arpa")
    assert result.code in (1, 2)
    assert result.err.startswith("error: ")
    assert list(tmp_path.iterdir()) == []


def test_a_broken_arpa_file_is_refused(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.arpa"
    path.write_text("\\data\\\nngram 1=2\n\n\\1-grams:\n-1\ta\n")
    result = run("import", path, "--out", tmp_path / "m")
    assert result.code == 65
    assert not (tmp_path / "m").exists()
    assert run("import", tmp_path / "nowhere.arpa", "--out", tmp_path / "m").code == 66
