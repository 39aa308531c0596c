"""`elman rescore`: lists in, lists out, ranked by what the model knows."""

from __future__ import annotations

from pathlib import Path

import jiwer
import pytest

import elman
from tests.commands import Run

SAID = ["the cat sat on the mat .", "the dog sat on the log .", "who saw the mat ?", "a cat and a dog sat on a mat ."]
HEARD = ["mat the on sat cat the .", "the dog sat log on the .", "who saw mat the ?", "a dog a cat and sat a mat on ."]


@pytest.fixture
def lists(tmp_path: Path) -> Path:
    """What was said is second in every list, by a little."""
    path = tmp_path / "nbest.tsv"
    rows = [
        f"{number}\t-1.0\t{heard}\n{number}\t-1.2\t{said}\n{number}\t-9\tthe\n"
        for number, (said, heard) in enumerate(zip(SAID * 3, HEARD * 3, strict=True))
    ]
    path.write_text("".join(rows))
    return path


@pytest.fixture
def references(tmp_path: Path) -> Path:
    path = tmp_path / "references.tsv"
    path.write_text("".join(f"{number}\t{said}\n" for number, said in enumerate(SAID * 3)))
    return path


def test_scores_are_those_of_the_formula(run: Run, model: Path, lists: Path) -> None:
    done = run("rescore", model, lists, "--weight", "0.5", "--bonus", "0.25")
    assert done.code == 0 and "id TAB score TAB text" in done.err
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert len(rows) == 36
    assert [row[2] for row in rows[::3]] == SAID * 3
    nats = elman.load(model).score(SAID[0]).nats
    assert float(rows[0][1]) == pytest.approx(-1.2 - 0.5 * nats + 0.25 * 7, abs=1e-5)


def test_tuned_on_references_it_is_right_and_says_how_much(
    run: Run, model: Path, lists: Path, references: Path
) -> None:
    found = run("rescore", model, lists, "--references", references, "--json").json
    before = jiwer.wer(SAID * 3, HEARD * 3)
    assert found["wer_before"] == pytest.approx(before)
    assert found["wer_after"] == found["wer_oracle"] == found["wer_same_lists"] == 0
    assert found["weight"] > 0
    assert found["schema_version"] == 1
    assert (found["lists"], found["hypotheses"], found["judged_lists"]) == (12, 36, 12)
    assert found["read_tokens"] < found["tokens"]
    done = run("rescore", model, lists, "--references", references, "--n-best", "1")
    assert [line.split("\t")[2] for line in done.out.splitlines()] == SAID * 3
    assert "after" in done.err


def test_through_a_pipe_it_is_the_same(run: Run, model: Path, lists: Path, references: Path) -> None:
    expected = run("rescore", model, lists, "--references", references).out
    assert run("rescore", model, "-", "--references", references, stdin=lists.read_bytes()).out == expected
    by_hand = run("rescore", model, lists, "--weight", "1").out
    assert run("rescore", model, "-", "--weight", "1", stdin=lists.read_bytes()).out == by_hand


def test_with_weight_zero_the_order_stays(run: Run, model: Path, lists: Path) -> None:
    rows = [line.split("\t") for line in run("rescore", model, lists, "--weight", "0").out.splitlines()]
    assert [[row[0], float(row[1]), row[2]] for row in rows] == [
        [row[0], float(row[1]), row[2]] for row in (line.split("\t") for line in lists.read_text().splitlines())
    ]


def test_lists_without_a_reference_are_ranked_and_not_measured(
    run: Run, model: Path, lists: Path, references: Path
) -> None:
    references.write_text("".join(references.read_text().splitlines(keepends=True)[:8]) + "x\tnobody\n")
    done = run("rescore", model, lists, "--references", references)
    assert len(done.out.splitlines()) == 36
    assert "of 12 lists and 9 references 8 belong together" in done.err
    references.write_text("x\tnobody\n")
    failed = run("rescore", model, lists, "--references", references)
    assert failed.code == 65 and "none of the lists has a reference" in failed.err


def test_costs_are_suspected(run: Run, model: Path, lists: Path) -> None:
    lists.write_text(lists.read_text().replace("\t-", "\t"))
    assert "--costs?" in run("rescore", model, lists).err
    done = run("rescore", model, lists, "--costs", "--weight", "0.5")
    assert "--costs?" not in done.err
    assert [line.split("\t")[2] for line in done.out.splitlines()[::3]] == SAID * 3


def test_unknown_words_pay_for_their_spelling(run: Run, corpus: Path, tmp_path: Path) -> None:
    """`<unk>` alone may be likelier than a known word: nonsense would win."""
    text = tmp_path / "rare.txt"
    rare = "".join(f"the {word} sat on the mat .\n" for word in ("hen", "pig", "cow", "owl", "bat", "ant", "fox"))
    text.write_text(corpus.read_text() + rare * 1)
    elman.train("lm", text, out=tmp_path / "m", units="space", reset_lines=True, valid="none")
    lists = tmp_path / "n.tsv"
    lists.write_text("1\t0\tthe xqzzyqwx sat on the mat .\n1\t0\tthe dog sat on the mat .\n")
    done = run("rescore", tmp_path / "m", lists, "--weight", "1")
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert "dog" in rows[0][2]
    model = elman.load(tmp_path / "m")
    score = model.score("the xqzzyqwx sat on the mat .")
    spelled = score.bits_per_byte * 0.6931471805599453 * len("the xqzzyqwx sat on the mat .\n")
    assert -float(rows[1][1]) == pytest.approx(spelled, abs=1e-4)


def test_impossible_hypotheses_come_last(run: Run, corpus: Path, tmp_path: Path) -> None:
    elman.train(
        "lm",
        corpus,
        out=tmp_path / "m",
        model="bigram",
        units="space",
        valid="none",
        settings={"model.smoothing": "ml"},
    )
    lists = tmp_path / "n.tsv"
    lists.write_text("1\t0\tmat mat mat\n1\t-5\tthe cat sat on the mat .\n")
    rows = run("rescore", tmp_path / "m", lists, "--weight", "1").out.splitlines()
    assert rows[0].endswith("the cat sat on the mat .")


@pytest.mark.parametrize("text", ["a </s> b", "<s>"])
def test_reserved_symbols_are_named_by_their_line(run: Run, model: Path, tmp_path: Path, text: str) -> None:
    lists = tmp_path / "n.tsv"
    lists.write_text(f"1\t0\tthe cat\n2\t0\t{text}\n")
    failed = run("rescore", model, lists)
    assert failed.code == 65
    assert f"line 2 of {lists} contains" in failed.err


def test_a_file_without_lists_is_refused(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "n.tsv").write_text("")
    assert "there are no lists" in run("rescore", model, tmp_path / "n.tsv").err
    assert run("rescore", model, tmp_path / "none.tsv").code == 66
    (tmp_path / "n.tsv").write_text("1 0 the cat\n")
    failed = run("rescore", model, tmp_path / "n.tsv")
    assert failed.code == 65 and "line 1 of" in failed.err and "--errors skip" in failed.err
