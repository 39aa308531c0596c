"""Settings: from what a user wrote to records, or to an error that says what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import Field

from elman.core.errors import MissingError, UsageError
from elman.core.settings import Config, Integers, make, merge_settings, parse_pairs, read_recipe, refuse, sections_of


class Cake(Config):
    """Settings to be made."""

    family: str = "cake"
    layers: int = Field(1, ge=1)
    cuts: Integers = ()


def test_a_record_is_made_of_what_was_written() -> None:
    made = make(Cake, {"layers": "3", "cuts": "1,2,5"}, section="model")
    assert (made.layers, made.cuts) == (3, (1, 2, 5))


@pytest.mark.parametrize(
    ("settings", "what", "hint"),
    [
        ({"layres": 2}, "model.layres is not a setting", "did you mean model.layers?"),
        ({"family": "cake", "layres": 2}, "model.layres is not a setting of cake", "did you mean model.layers?"),
        ({"zzz": 2}, "model.zzz is not a setting", "valid settings: model.layers, model.cuts"),
        (
            {"layers": 0},
            "model.layers is a whole number, at least 1 (got 0)",
            "elman settings model.layers says what it is",
        ),
        (
            {"cuts": "1,x"},
            "model.cuts is whole numbers with commas between (got ",
            "elman settings model.cuts says what it is",
        ),
    ],
)
def test_what_is_no_setting_is_named_with_the_nearest(settings: dict[str, object], what: str, hint: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        make(Cake, settings, section="model")
    assert caught.value.what.startswith(what)
    assert caught.value.hint == hint


def test_pairs_become_sections() -> None:
    pairs = parse_pairs(["model.order=5", "data.separator=a=b"])
    assert pairs == {"model.order": "5", "data.separator": "a=b"}
    assert sections_of(pairs) == {"data": {"separator": "a=b"}, "model": {"order": "5"}, "train": {}, "count": {}}
    for wrong in ("order=5", "model.order"):
        with pytest.raises(UsageError, match=r"not of the form section\.key=value"):
            parse_pairs([wrong])
    with pytest.raises(UsageError, match=r"not of the form section\.key"):
        sections_of({"modle.order": 5})


def test_a_recipe_is_overruled_and_flags_contradict_nothing(tmp_path: Path) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text("[model]\norder = 4\nprune = 1\n")
    found = merge_settings({"data.units": "char", "model.family": None}, settings={"model.order": 2}, recipe=recipe)
    assert found == {"data": {"units": "char"}, "model": {"order": 2, "prune": 1}, "train": {}, "count": {}}
    with pytest.raises(UsageError, match=r"data\.units is given twice: char and word"):
        merge_settings({"data.units": "char"}, settings={"data.units": "word"}, recipe=None)
    with pytest.raises(UsageError, match=r"model\.order does not apply to a mixture"):
        refuse(found, ("train", "model"), "a mixture")


def test_a_recipe_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    with pytest.raises(MissingError, match="cannot read the recipe"):
        read_recipe(path)
    for text, message in (
        ("[modle]\n", r"there is no section \[modle\]"),
        ("model = 3\n", "outside a table"),
        ("[", "not TOML"),
        (f"[train]\nsteps = {'9' * 5_000}\n", "a number with too many digits"),
        (f"[data]\nsource = {'[' * 50_000}", "nested too deeply"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=message):
            read_recipe(path)


def test_a_recipe_is_found_beside_a_model_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "g2p").mkdir()
    monkeypatch.chdir(tmp_path)
    assert read_recipe(Path("g2p"))["data"]["source_units"] == "char"
