"""`/v1/completions`, asked by the real OpenAI client over a real server."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest

import elman
from elman.text.units.vocabulary import EOS_ID
from tests.serve.running import Running, running


def ask(server: Running, prompt: Any, **options: Any) -> Any:
    return server.openai().completions.create(**{"model": "model", "prompt": prompt, "max_tokens": 8, **options})


def test_all_four_shapes_of_a_prompt_are_one_prompt(server: Running) -> None:
    ids = server.post("/tokenize", prompt="the cat").json()["tokens"]
    found = [
        ask(server, prompt, temperature=0).choices[0].text
        for prompt in ("the cat", ["the cat"], ids, [ids], [[EOS_ID, *ids]])
    ]
    assert found == found[:1] * 5


def test_a_seed_writes_what_elman_generate_writes(server: Running, model: Path) -> None:
    local = elman.load(model)
    for seed in range(5):
        expected = local.generate("the cat", tokens=8, temperature=0.8, seed=seed)
        assert ask(server, "the cat", temperature=0.8, seed=seed).choices[0].text == expected


def test_choices_come_in_the_order_of_prompts_and_differ(server: Running) -> None:
    found = ask(server, ["the", "a"], n=4, seed=3, echo=True)
    assert [choice.index for choice in found.choices] == list(range(8))
    assert [choice.text.split()[0] for choice in found.choices] == ["the"] * 4 + ["a"] * 4
    assert len({choice.text for choice in found.choices}) > 2
    assert found.usage.prompt_tokens == 2
    assert found.usage.total_tokens == 2 + found.usage.completion_tokens


def test_echoed_logprobs_are_the_model_s_own(server: Running, model: Path) -> None:
    local = elman.load(model)
    text = "the cat sat on the mat ."
    found = ask(server, text, echo=True, logprobs=2, max_tokens=1, temperature=0).choices[0]
    assert found.logprobs.tokens[:7] == text.split()
    assert len(found.logprobs.tokens) == 8  # one more, as lm-evaluation-harness expects, even if it is the end
    assert found.logprobs.token_logprobs[0] is None
    expected = [-nats for _, nats in local.score(text).per_token]
    np.testing.assert_allclose(found.logprobs.token_logprobs[1:], expected[1:], atol=1e-6)
    assert found.logprobs.text_offset[:7] == [0, 4, 8, 12, 15, 19, 23]
    for value, top in zip(found.logprobs.token_logprobs[1:], found.logprobs.top_logprobs[1:], strict=True):
        assert value in top.values()  # to the bit: the harness compares them


def test_a_leading_end_of_sequence_means_the_start(server: Running, model: Path) -> None:
    text = "the cat sat"
    ids = server.post("/tokenize", prompt=text).json()["tokens"]
    found = ask(server, [EOS_ID, *ids], echo=True, logprobs=1, max_tokens=0).choices[0]
    assert found.text == text
    assert found.logprobs.tokens == ["</s>", "the", "cat", "sat"]
    expected = [-nats for _, nats in elman.load(model).score(text).per_token[:3]]
    np.testing.assert_allclose(found.logprobs.token_logprobs[1:], expected, atol=1e-6)
    assert found.finish_reason == "length"


def test_a_stop_text_ends_it_and_is_not_returned(server: Running) -> None:
    whole = ask(server, "the", temperature=0, max_tokens=12).choices[0].text
    word = whole.split()[3]
    found = ask(server, "the", temperature=0, max_tokens=12, stop=[word, "never"], logprobs=0).choices[0]
    assert found.text == whole[: whole.index(word)]
    assert found.finish_reason == "stop"
    assert "".join(found.logprobs.tokens).replace(" ", "") == found.text.replace(" ", "")


def test_a_stream_model_stops_at_the_end_of_a_line_if_its_name_is_a_stop(server: Running) -> None:
    found = ask(server, "the", model="stream", max_tokens=200, stop="</s>", seed=1).choices[0]
    assert found.finish_reason == "stop"
    assert "\n" not in found.text
    assert "\n" in ask(server, "the", model="stream", max_tokens=200, seed=1).choices[0].text


@pytest.mark.parametrize("name", ["model", "stream"])
def test_a_stream_is_the_answer_in_parts(server: Running, name: str) -> None:
    options: dict[str, Any] = {"model": name, "logprobs": 1, "echo": True, "max_tokens": 30, "stop": ["mat", "t o"]}
    for seed in range(10):
        whole = ask(server, "the cat", seed=seed, **options)
        parts = list(ask(server, "the cat", seed=seed, stream=True, stream_options={"include_usage": True}, **options))
        *parts, last = parts
        assert last.choices == [] and last.usage == whole.usage
        choices = [part.choices[0] for part in parts]
        assert "".join(choice.text for choice in choices) == whole.choices[0].text
        assert [choice.finish_reason for choice in choices[:-1]] == [None] * (len(choices) - 1)
        assert choices[-1].finish_reason == whole.choices[0].finish_reason
        logged = [value for choice in choices for value in choice.logprobs.token_logprobs]
        assert logged == whole.choices[0].logprobs.token_logprobs
        offsets = [value for choice in choices for value in choice.logprobs.text_offset]
        assert offsets == whole.choices[0].logprobs.text_offset


def test_an_empty_prompt_begins_at_the_start(server: Running, model: Path) -> None:
    found = ask(server, "", max_tokens=1, logprobs=3, temperature=0).choices[0]
    token, probability = elman.load(model).next("", k=1)[0]
    assert found.text == token
    assert math.exp(found.logprobs.token_logprobs[0]) == pytest.approx(probability)


def test_an_unknown_model_is_404_and_what_is_wrong_is_400(server: Running) -> None:
    with pytest.raises(openai.NotFoundError, match="there is no model"):
        ask(server, "the", model="gpt-4")
    with pytest.raises(openai.BadRequestError, match="max_tokens"):
        ask(server, "the", max_tokens=-1)
    with pytest.raises(openai.BadRequestError, match="there is no token 99"):
        ask(server, [2, 99])
    with pytest.raises(openai.BadRequestError, match="reserved"):
        ask(server, "the </s> cat")


def test_what_has_no_meaning_here_is_ignored_with_a_warning(server: Running) -> None:
    found = server.post("/v1/completions", prompt="the", user="me", presence_penalty=0, logit_bias={"5": 3}).json()
    assert found["warnings"] == [f"'{name}' has no meaning here and was ignored" for name in ("user", "logit_bias")]


def test_one_too_many_is_told_when_to_come_again(stream_model: Path) -> None:
    wish = {"prompt": "the", "max_tokens": 4096, "n": 8, "stream": True}
    with running([stream_model], max_streams=1, max_waiting=0) as server:
        with httpx.stream("POST", f"{server.url}/v1/completions", json=wish, timeout=60) as held:
            lines = held.iter_lines()
            assert next(lines).startswith("data: ")
            with pytest.raises(openai.RateLimitError) as refused:
                ask(server, "the", model="stream")
            assert refused.value.response.headers["retry-after"] == "1"
            assert server.post("/v1/next", text="the").status_code == 429
            assert server.get("/healthz").json()["requests"] == 1
        again = server.openai(max_retries=5).completions.create(model="stream", prompt="the", max_tokens=2)
        assert again.choices[0].text  # the client itself came again


def test_models_are_listed_as_the_client_and_the_studio_need_them(server: Running) -> None:
    assert [model.id for model in server.openai().models.list()] == ["model", "stream"]
    first, second = server.get("/v1/models").json()["data"]
    assert first["task"] == "lm" and first["left_to_right"] and first["units"] == "space"
    assert "surprisal" in second["kinds"]


def test_the_tokenizer_goes_both_ways(server: Running) -> None:
    for name, text in (("model", "the cat sat"), ("stream", "a cat\nand a dog")):
        ids = server.post("/tokenize", prompt=text, model=name).json()["tokens"]
        assert server.post("/detokenize", tokens=ids, model=name).json()["prompt"] == text
    assert server.post("/tokenize", prompt="</s>").json()["tokens"] == [EOS_ID]
    assert server.get("/tokenizer_info").json()["eos_token"] == "</s>"
