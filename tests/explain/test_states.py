"""States and gates: what the layers really hold, correlations by numpy, every task's models, drawings and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elman
from elman.core.errors import UsageError
from elman.explain.recorded import WIDTH, coloured_text, liveliest_part
from tests.explain.test_saliency import MODELS, WORDS, make_lm, shaken

TEXT = 'the cat sat on the mat\na "dog ran" in the (park) zebra\nthe dog sat in a park'


@pytest.fixture(scope="module")
def lstm(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return shaken(make_lm(tmp_path_factory.mktemp("states"), "lstm", **{"model.layers": 2}))


def outputs(model: Any, text: str) -> list[np.ndarray[Any, Any]]:
    """What the layers give out for each token of a text, by the way that scoring takes. -> (T, H) each"""
    net, ids = model.lm, model.ids_of(text)[:-1]
    with torch.inference_mode():
        tokens = torch.cat([torch.ones(1, 1, dtype=torch.long), torch.from_numpy(ids)[:, None]])
        layers, _ = net._layer_vectors(tokens, net.start_training(1))
    return [values[1:, 0].double().numpy() for values in layers[1:]]


def test_the_activations_are_what_the_layers_give_out(lstm: Any) -> None:
    found = lstm.explain(TEXT, kind="states", units=500).data
    assert [(layer["name"], layer["units"]) for layer in found["layers"]] == [
        ("1", 8),
        ("1.c", 8),
        ("2", 8),
        ("2.c", 8),
    ]
    rows = {unit["unit"]: unit["activations"] for unit in found["units"]}
    assert len(rows) == 32 and len(found["tokens"]) == 21
    for layer, values in enumerate(outputs(lstm, TEXT), 1):
        for unit in range(8):
            np.testing.assert_allclose(rows[f"{layer}.{unit + 1}"], values[:, unit], rtol=2e-3, atol=1e-4)


def test_what_is_tracked_is_the_largest_correlation_by_numpy(lstm: Any) -> None:
    found = lstm.explain(TEXT, kind="states", units=500).data
    places = [*range(7), *range(8), *range(6)]  # of the tokens in their lines, two of which have ends
    best = {}
    for unit in found["units"]:
        best[unit["unit"]] = np.corrcoef(unit["activations"], places)[0, 1]
    name = max(best, key=lambda one: abs(best[one]))
    row = next(row for row in found["tracking"] if row["feature"] == "place in line")
    assert row["unit"] == name
    assert row["correlation"] == pytest.approx(best[name], abs=1e-3)
    sizes = [abs(row["correlation"]) for row in found["tracking"]]
    assert sizes == sorted(sizes, reverse=True)


def test_a_unit_that_follows_a_feature_of_ones_own_is_found(lstm: Any, tmp_path: Path) -> None:
    """The feature is a unit's own activation with a little noise, as a user's file would have it."""
    values = outputs(lstm, TEXT)[1][:, 4]
    noise = np.random.default_rng(0).normal(size=len(values)) * values.std() * 0.02
    path = tmp_path / "own.tsv"
    path.write_text("mine\tother\n" + "".join(f"{value}\t{i % 2}\n" for i, value in enumerate(values + noise)))
    found = lstm.explain(TEXT, kind="states", features=str(path)).data
    first = next(row for row in found["tracking"] if row["feature"] == "mine")
    assert first["unit"] in ("2.5", "2.c.5") and abs(first["correlation"]) > 0.98
    wanted = np.corrcoef(outputs(lstm, TEXT)[1][:, 4], values + noise)[0, 1]
    if first["unit"] == "2.5":
        assert first["correlation"] == pytest.approx(wanted, abs=1e-3)


def test_one_unit_is_drawn_over_the_whole_text(lstm: Any) -> None:
    found = lstm.explain(TEXT, kind="states", unit="2.c.3")
    assert [unit["unit"] for unit in found.data["units"]] == ["2.c.3"]
    assert sum(len(row["data"]["values"]) for row in found.picture["vconcat"]) == len(found.data["tokens"])
    drawn = [line for line in found.drawing if any(span.shade for span in line)]
    assert "".join(span.text for span in drawn[0]).startswith("the cat sat on the mat ↵")
    values = found.data["units"][0]["activations"]
    shades = [span.shade for line in drawn for span in line if span.text.strip()]
    np.testing.assert_allclose(shades, np.array(values) / np.abs(values).max(), atol=1e-9)
    assert found.to_png()[:4] == b"\x89PNG"


def test_a_unit_that_is_none_is_refused_with_those_there_are(lstm: Any) -> None:
    with pytest.raises(UsageError, match=r"no unit 3\.1\n.*1\.1 to 1\.8, 1\.c\.1 to 1\.c\.8, 2\.1"):
        lstm.explain(TEXT, kind="states", unit="3.1")


@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_net_shows_its_states(tmp_path: Path, name: str) -> None:
    make, text = MODELS[name]
    model = make(tmp_path)
    found = model.explain(text, kind="states")
    assert all(len(unit["activations"]) == len(found.data["tokens"]) for unit in found.data["units"])
    assert max(len("".join(span.text for span in line)) for line in found.drawing) <= 100
    assert "gates" not in model.kinds() or model.explain(text, kind="gates").data["gates"]
    if name in ("classify", "tag"):
        assert [layer["name"] for layer in found.data["layers"]][:2] == ["1.onward", "1.onward.c"]
        assert any(layer["name"] == "1.backward" for layer in found.data["layers"])


def test_masked_models_and_both_ways_show_theirs(tmp_path: Path) -> None:
    data = tmp_path / "text.txt"
    data.write_text("\n".join(WORDS * 20) + "\n")
    settings = {"model.hidden": 8, "model.embedding": 8}
    for task in ("masked", "bilm"):
        model = elman.train(task, data, valid="none", epochs=1, settings=settings)
        assert model.explain(WORDS[0], kind="states").data["units"]


def test_the_numbers_of_gates_are_numpys(lstm: Any) -> None:
    found = lstm.explain(TEXT, kind="gates").data
    assert [gate["gate"] for gate in found["gates"]] == [
        f"{n}.{g}" for n in (1, 2) for g in ("input", "forget", "output")
    ]
    reading = lstm.reading(TEXT)
    traced, _ = reading.trace(reading.words())
    values = torch.cat(list(traced.layers[1].gates["forget"]))[1:].detach().double().numpy()
    gate = found["gates"][4]
    assert gate["mean"] == pytest.approx(values.mean(), abs=1e-4)
    assert gate["open"] == pytest.approx((values > 0.9).mean(), abs=1e-4)
    assert gate["closed"] == pytest.approx((values < 0.1).mean(), abs=1e-4)
    np.testing.assert_allclose(gate["by_token"], values.mean(axis=1), atol=1e-4)
    assert sum(gate["histogram"]) == pytest.approx(1, abs=2e-3)
    assert gate["histogram"][-2:] == [
        round(((values >= low) & (values <= low + 0.05)).mean(), 4) for low in (0.9, 0.95)
    ]


def test_gates_that_never_move_are_named(tmp_path: Path) -> None:
    model = make_lm(tmp_path, "gru")
    with torch.no_grad():
        layer = model.lm.stack.layers[0]
        for weight in layer.parameters():
            weight.zero_()
        layer.bias[0] = 20.0  # of the first unit of the first gate
        layer.bias[1] = -20.0
    found = model.explain(TEXT, kind="gates")
    first = found.data["gates"][0]
    assert first["gate"] in ("1.reset", "1.update")
    assert (first["always_open"], first["always_closed"]) == ([1], [2])
    assert f"{1}, {1} of 8" in str(found)
    assert not any("candidate" in gate["gate"] for gate in found.data["gates"])


def test_a_long_text_is_cut_and_unknown_words_are_marked_and_said(lstm: Any) -> None:
    found = lstm.explain(TEXT, kind="states", tokens=9)
    assert len(found.data["tokens"]) == 9
    assert "only the first 9 of 21 tokens were looked at" in found.notes
    whole = lstm.explain(TEXT, kind="states", unit="1.1").data["units"][0]["activations"]
    assert lstm.explain(TEXT, kind="states", unit="1.1", tokens=9).data["units"][0]["activations"] == whole[:9]
    assert any("unknown" in note for note in found.notes)
    assert "<unk>" in str(lstm.explain("zebra", kind="states"))


def test_a_long_text_is_cut_for_nets_with_ngram_features_too(tmp_path: Path) -> None:
    """Words were cut and n-gram features were not: sizes did not fit."""
    model = make_lm(tmp_path, "rnn", **{"model.maxent": 2})
    assert len(model.explain(TEXT, kind="states", tokens=5).data["tokens"]) == 5


def test_empty_text_and_nets_without_layers_are_refused(lstm: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no words"):
        lstm.explain("", kind="states")
    flat = make_lm(tmp_path, "window", **{"model.layers": 0, "model.direct": True})
    with pytest.raises(UsageError, match="no layers between"):
        flat.explain(TEXT, kind="states")


def test_models_without_gates_say_what_they_have(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no gates\n.*states"):
        make_lm(tmp_path, "rnn").explain(TEXT, kind="gates")


def test_of_a_long_text_the_part_is_drawn_in_which_a_unit_moves() -> None:
    texts = [*"abcdefg", "↵"] * 100
    values = np.zeros(800)
    values[400:500] = 1.0
    begin = liveliest_part(texts, values, lines=3)
    assert begin % 8 == 0 and values[begin : begin + 192].std() > 0.49
    assert liveliest_part(texts, np.zeros(800), lines=3) == 0


def test_a_picture_of_one_unit_has_rows_of_text_and_says_where_it_ends(lstm: Any) -> None:
    found = lstm.explain("the cat sat\n" * 200, kind="states", unit="1.2")
    assert len(found.picture["vconcat"]) == 6
    assert any("first 600 of 799 tokens" in note for note in found.notes)


def test_text_is_wrapped_and_characters_are_not_set_apart() -> None:
    lines = coloured_text(list("ab c") * 40, np.arange(160.0))
    assert [sum(len(span.text) for span in line) for line in lines] == [WIDTH, WIDTH, 160 - WIDTH, 160 - WIDTH]
    apart = coloured_text(["ab", "↵", "c"], np.array([0.0, 1.0, 2.0]))
    assert ["".join(span.text for span in line).rstrip() for line in apart] == ["ab ↵", "   ▄", "c", "█"]
