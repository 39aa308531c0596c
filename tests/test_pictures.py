"""Pictures: drawn offline, in every format, of the data they were given."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from elman import pictures
from elman.core.errors import ElmanError, UsageError
from elman.curves import training_curves
from elman.tasks import run
from elman.training.progress import Wording

JOURNAL: list[dict[str, Any]] = [
    {"step": 10, "tokens": 100, "perplexity": 500.0, "learning_rate": 0.1, "gradient_norm": 2.0},
    {"step": 15, "tokens": 150, "guard": "went back"},
    {"step": 20, "tokens": 200, "perplexity": 300.0, "learning_rate": 0.05, "gradient_norm": None},
    {"step": 20, "tokens": 200, "valid_perplexity": 250.0},
    {"step": 20, "tokens": 200, "final_perplexity": 240.5},
]


def test_curves_hold_every_number_of_the_journal():
    above, below = training_curves(JOURNAL)["vconcat"]
    curves, end, label = (layer["data"]["values"] for layer in above["layer"])
    assert [(row["tokens"], row["perplexity"], row["text"]) for row in curves] == [
        (100, pytest.approx(500.0), "training"),
        (200, pytest.approx(300.0), "training"),
        (200, 250.0, "validation"),
    ]
    assert end == label == [{"tokens": 200, "perplexity": 240.5, "text": "validation"}]
    rates, norms = (chart["data"]["values"] for chart in below["hconcat"])
    assert rates == [{"tokens": 100, "learning_rate": 0.1}, {"tokens": 200, "learning_rate": 0.05}]
    assert norms == [{"tokens": 100, "gradient_norm": 2.0}]
    drawn = pictures.render(training_curves(JOURNAL), ".svg").decode()
    assert ">240.5<" in drawn and ">validation<" in drawn and "gradient norm" in drawn


def test_a_long_run_is_drawn_in_few_means_and_its_beginning_cut_off():
    journal = [
        {"tokens": 10 * step, "perplexity": math.exp(9 / step + (step % 2)), "learning_rate": step, "gradient_norm": 1}
        for step in range(1, 3001)
    ]
    above, below = training_curves(journal)["vconcat"]
    curve = above["layer"][0]["data"]["values"]
    assert len(curve) == 299  # the first mean is 22 and more times the last
    assert curve[-1] == {"tokens": 30000, "perplexity": pytest.approx(math.exp(0.503), rel=1e-3), "text": "training"}
    assert below["hconcat"][0]["data"]["values"][0] == {"tokens": 100, "learning_rate": 5.5}
    low, high = above["layer"][0]["encoding"]["y"]["scale"]["domain"]
    assert low < 1.65 and high == max(row["perplexity"] for row in curve) < 20


def test_a_run_without_numbers_has_no_curves():
    assert training_curves([]) is None
    assert training_curves([{"tokens": 0, "perplexity": 3.0}, {"tokens": 9, "perplexity": None}]) is None
    assert run._curves([], Wording(), None, pytest.fail) == {}


def test_the_curves_are_the_same_under_a_budget_and_left_out_where_it_is_spent():
    said: list[str] = []
    ((name, drawn),) = run._curves(JOURNAL, Wording(), None, said.append).items()
    assert (name, drawn[:4]) == ("curves.svg", b"<svg")
    assert run._curves(JOURNAL, Wording(), 100.0, said.append) == {name: drawn}
    assert not said
    for seconds in (-1.0, 0.001):
        assert run._curves(JOURNAL, Wording(), seconds, said.append) == {}
    assert said == ["this budget had no time to draw the curves of the run"] * 2


def test_nothing_in_the_current_directory_is_executed_to_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a budget, curves are drawn by another Python, which imported a vl_convert.py from wherever it was started."""
    for name in ("vl_convert.py", "json.py", "sitecustomize.py", "usercustomize.py"):
        (tmp_path / name).write_text("import pathlib; pathlib.Path('executed').touch(); raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # as `python -m elman` has it
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert run._curves(JOURNAL, Wording(), 100.0, pytest.fail).keys() == {"curves.svg"}
    assert not (tmp_path / "executed").exists()


def test_a_picture_that_cannot_be_drawn_is_said_and_costs_nothing_else(monkeypatch: pytest.MonkeyPatch):
    said: list[str] = []
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ElmanError, match="cannot render the chart"):
        pictures.render_within({}, 10.0)
    assert run._curves(JOURNAL, Wording(), 10.0, said.append) == {}
    assert "cannot render the chart" in said[0]


@pytest.mark.parametrize(("kind", "begin"), [(".svg", b"<svg"), (".png", b"\x89PNG"), (".json", b"{")])
def test_a_picture_is_drawn_in_each_format(tmp_path, kind, begin):
    path = tmp_path / f"curve{kind}"
    pictures.write(training_curves(JOURNAL), path)
    assert path.read_bytes().startswith(begin)


def test_a_page_needs_nothing_from_outside(tmp_path):
    page = pictures.render(training_curves(JOURNAL), ".html").decode()
    assert "<script src=" not in page.replace("'", '"')


def test_an_unknown_format_is_refused_by_name():
    with pytest.raises(UsageError, match="gif"):
        pictures.render(training_curves(JOURNAL), ".gif")


def test_an_attention_map_has_a_cell_for_every_pair_and_repeated_tokens_keep_their_places() -> None:
    spec = pictures.attention_map([[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]], sources=["a", "b", "a"], targets=["x", "x"])
    assert len(spec["data"]["values"]) == 6
    assert spec["data"]["values"][1] == {"source": 1, "target": 0, "weight": 0.1}
    drawn = pictures.render(spec, ".svg").decode()
    assert drawn.count(">a<") == 2 and drawn.count(">x<") == 2


def test_numbers_by_length_are_a_line_for_each_model() -> None:
    table = [{"from": 1, "to": 10, "bleu": 30.0}, {"from": 11, "to": 20, "bleu": 20.0}]
    spec = pictures.by_length({"attention": table, "initial": table[:1]})
    assert spec["data"]["values"][1] == {"source tokens": 15.5, "BLEU": 20.0, "model": "attention"}
    assert b"initial" in pictures.render(spec, ".svg")


def test_a_confusion_map_has_the_share_of_its_row_in_every_cell() -> None:
    spec = pictures.confusion_map(["a", "b"], [[3, 1], [0, 0]])
    cells = {(cell["right"], cell["given"]): (cell["times"], cell["share"]) for cell in spec["data"]["values"]}
    assert cells == {("a", "a"): (3, 0.75), ("a", "b"): (1, 0.25), ("b", "a"): (0, 0.0), ("b", "b"): (0, 0.0)}
    assert pictures.render(spec, ".svg").startswith(b"<svg")


def test_control_characters_in_a_text_are_seen_and_do_not_end_the_process() -> None:
    """vl-convert aborts the whole Python process at a character that XML does not allow."""
    rows = [{"place": 0, "nats": 1.0, "model": "m\x01"}]
    spec = pictures.token_bars(rows, tokens=["a\x00b"], title="\ud800 \x1b[31m")
    program = (
        "import json, sys; from elman import pictures; print(pictures.render(json.loads(sys.argv[1]), '.svg').decode())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, json.dumps(spec)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "m\\x01" in done.stdout and "\\x1b[31m" in done.stdout
