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
