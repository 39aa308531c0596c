"""elman's own routes: next, score, predict, explain, embeddings, sessions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import elman
from tests.commands import LINES
from tests.serve.running import Running, running

PAIRS = [("red", "rot"), ("blue", "blau"), ("house", "haus"), ("mouse", "maus")] * 8
LABELS = [("good film", "pos"), ("bad film", "neg"), ("very good", "pos"), ("very bad", "neg")] * 8


@pytest.fixture(scope="module")
def nets() -> dict[str, Any]:
    """A net of each kind, hardly trained: shapes matter here, not numbers."""
    small: dict[str, Any] = {"epochs": 1, "valid": "none"}
    return {
        "lstm": elman.train(
            "lm", elman.texts(LINES * 4), model="lstm", units="word", settings={"model.hidden": 8}, **small
        ),
        "classify": elman.train("classify", [f"{label}\t{text}" for text, label in LABELS], **small),
        "seq2seq": elman.train("seq2seq", PAIRS, settings={"model.hidden": 8}, **small),
    }


@pytest.fixture(scope="module")
def zoo(nets: dict[str, Any]) -> Iterator[Running]:
    with running(nets) as found:
        yield found


def test_next_is_what_elman_next_shows_and_how_shaping_changes_it(server: Running, model: Path) -> None:
    found = server.post("/v1/next", model="model", text="the cat", k=5, temperature=0.5, top_k=2).json()
    expected = elman.load(model).next("the cat", k=5)
    assert [row["token"] for row in found["tokens"]] == [token for token, _ in expected]
    np.testing.assert_allclose([row["probability"] for row in found["tokens"]], [p for _, p in expected])
    shaped = [row["shaped"] for row in found["tokens"]]
    assert sum(shaped) == pytest.approx(1) and shaped[2:] == [0, 0, 0]


def test_score_says_where_every_token_stands(server: Running, model: Path, stream_model: Path) -> None:
    for name, directory in (("model", model), ("stream", stream_model)):
        text = "the  zebra sat\non the mat"
        found = server.post("/v1/score", model=name, text=text).json()
        score = elman.load(directory).score(text)
        assert found["nats"] == pytest.approx(score.nats) and found["num_tokens"] == score.tokens
        assert found["bits_per_byte"] == pytest.approx(score.bits_per_byte)
        for row, (token, nats) in zip(found["tokens"], score.per_token, strict=True):
            assert row["nats"] == pytest.approx(nats, abs=1e-6)
            written = text[row["start"] : row["end"]]
            assert written == token or row["unknown"] or token == "</s>"
    unknown = [row for row in server.post("/v1/score", text="the zebra sat").json()["tokens"] if row["unknown"]]
    assert [(row["start"], row["end"]) for row in unknown] == [(4, 9)]


def test_a_session_is_where_its_text_is(server: Running) -> None:
    session = server.post("/v1/sessions", model="model", text="the").json()
    for text in (" c", "at", " sat\nthe do", "g"):
        session = server.post(f"/v1/sessions/{session['id']}/advance", text=text).json()
        kept = server.post("/v1/next", session=session["id"], k=15).json()
        fresh = server.post("/v1/next", text=session["text"], k=15).json()
        assert kept == fresh
    assert session["text"] == "the cat sat\nthe dog"


@pytest.mark.parametrize("name", ["model", "stream"])
def test_tokens_take_a_session_as_far_as_their_text(server: Running, name: str) -> None:
    session = server.post("/v1/sessions", model=name, text="the ").json()
    for _ in range(12):
        best = server.post("/v1/next", session=session["id"], k=1).json()["tokens"][0]
        session = server.post(f"/v1/sessions/{session['id']}/advance", tokens=[best["id"]]).json()
    fresh = server.post("/v1/next", text=session["text"], model=name, k=10).json()
    assert server.post("/v1/next", session=session["id"], k=10).json()["tokens"] == fresh["tokens"]


def test_a_branch_goes_its_own_way(server: Running) -> None:
    first = server.post("/v1/sessions", text="the").json()
    second = server.post(f"/v1/sessions/{first['id']}/branch").json()
    assert second["id"] != first["id"] and len(second["id"]) > 30
    server.post(f"/v1/sessions/{second['id']}/advance", text=" cat")
    assert server.get(f"/v1/sessions/{first['id']}").json()["text"] == "the"
    assert server.get(f"/v1/sessions/{second['id']}").json()["text"] == "the cat"


def test_sessions_are_closed_and_the_oldest_leaves(model: Path) -> None:
    with running([model], max_sessions=3) as server:
        ids = [server.post("/v1/sessions", text="the").json()["id"] for _ in range(3)]
        server.get(f"/v1/sessions/{ids[0]}")  # now the second is the one not used for longest
        ids.append(server.post("/v1/sessions", text="a").json()["id"])
        assert [server.get(f"/v1/sessions/{name}").status_code for name in ids] == [200, 404, 200, 200]
        assert httpx.delete(f"{server.url}/v1/sessions/{ids[0]}").status_code == 204
        assert server.get(f"/v1/sessions/{ids[0]}").status_code == 404


def test_an_explanation_is_that_of_elman_explain(server: Running, model: Path) -> None:
    found = server.post("/v1/explain", model="model", text="the cat sat", kind="surprisal", options={"preferred": 2})
    expected = elman.load(model).explain("the cat sat", kind="surprisal", preferred=2)
    body = found.json()
    assert body.pop("explained") == ["model"]
    assert body.pop("picture") == json.loads(json.dumps(expected.picture))
    assert body == json.loads(expected.to_json())


@pytest.mark.parametrize(("kind", "option"), [("counts", "data"), ("states", "features"), ("analogy", "file")])
def test_no_request_names_a_file(zoo: Running, kind: str, option: str) -> None:
    found = zoo.post("/v1/explain", model="lstm", text="the cat", kind=kind, options={option: "/etc/passwd"})
    assert found.status_code == 400
    assert "names a file" in found.json()["error"]["message"]


def test_lines_are_classified_and_translated(zoo: Running, nets: dict[str, Any]) -> None:
    found = zoo.post("/v1/predict", model="classify", input=["good film", "very bad"]).json()["predictions"]
    assert [one["label"] for one in found] == nets["classify"].predict(["good film", "very bad"])
    [translation] = zoo.post("/v1/predict", model="seq2seq", input="red", beam=2, n_best=2).json()["predictions"]
    assert translation["source"] == "red"
    assert zoo.post("/v1/predict", model="classify", input="good", beam=3).status_code == 400
    assert zoo.post("/v1/predict", model="lstm", input="good").status_code == 400
    assert zoo.post("/v1/completions", model="classify", prompt="good").status_code == 400
    assert zoo.post("/v1/predict", model="classify", input="two\nlines").status_code == 400


def test_embeddings_are_those_of_encode_as_the_client_asks_for_them(zoo: Running, nets: dict[str, Any]) -> None:
    texts = ["the cat sat", "a dog"]
    found = zoo.openai().embeddings.create(model="lstm", input=texts)  # asks for base64
    expected = nets["lstm"].encode(texts)
    np.testing.assert_allclose(np.array([row.embedding for row in found.data]), expected, rtol=1e-6)
    plain = zoo.openai().embeddings.create(model="lstm", input=texts[0], encoding_format="float")
    np.testing.assert_allclose(plain.data[0].embedding, expected[0], rtol=1e-6)
    counted = zoo.openai().embeddings.create(model="lstm", input=["the cat, sat.", ""])
    assert (
        counted.usage.prompt_tokens
        == len(nets["lstm"].tokenizer.encode("the cat, sat."))
        == nets["lstm"].count_tokens("the cat, sat.")
    )


def test_a_trailing_space_is_no_word(zoo: Running, nets: dict[str, Any]) -> None:
    for prompt in ("the cat", "the cat "):
        found = zoo.post("/v1/completions", model="lstm", prompt=prompt, seed=2, max_tokens=6).json()
        assert found["choices"][0]["text"] == nets["lstm"].generate(prompt, tokens=6, seed=2)
