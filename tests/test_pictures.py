"""Pictures: drawn offline, in every format, of the data they were given."""

import pytest

from elman import pictures
from elman.errors import UsageError

JOURNAL = [
    {"step": 10, "tokens": 100, "perplexity": 500.0},
    {"step": 20, "tokens": 200, "perplexity": 300.0},
    {"step": 20, "tokens": 200, "valid_perplexity": 250.0},
]


def test_curves_hold_every_number_of_the_journal():
    values = pictures.training_curves(JOURNAL)["data"]["values"]
    assert [(row["tokens"], row["perplexity"]) for row in values] == [(100, 500.0), (200, 300.0), (200, 250.0)]
    assert {row["text"] for row in values} == {"training (with dropout)", "validation"}


@pytest.mark.parametrize(("kind", "begin"), [(".svg", b"<svg"), (".png", b"\x89PNG"), (".json", b"{")])
def test_a_picture_is_drawn_in_each_format(tmp_path, kind, begin):
    path = tmp_path / f"curve{kind}"
    pictures.write(pictures.training_curves(JOURNAL), path)
    assert path.read_bytes().startswith(begin)


def test_a_page_needs_nothing_from_outside(tmp_path):
    page = pictures.render(pictures.training_curves(JOURNAL), ".html").decode()
    assert "<script src=" not in page.replace("'", '"')


def test_an_unknown_format_is_refused_by_name():
    with pytest.raises(UsageError, match="gif"):
        pictures.render(pictures.training_curves(JOURNAL), ".gif")


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
