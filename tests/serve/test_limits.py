"""What no request may ask for is refused with 400 and an envelope: never 500, never a part of an answer."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from elman.serve.schemas import MAX_CHARACTERS, MAX_PROMPT_TOKENS, MAX_PROMPTS, MAX_TOKENS
from tests.serve.running import Running

HUGE = (-1, -(1 << 63), 1 << 63, 1 << 64, 10**40, 1e400, "5", True, [1], {}, 1.5)
FLOATS = (-0.001, 1e400, -1e400, "NaN", "1", [], {})
NAMES = ("..", "../model", "/etc/passwd", "model/../model", "model\0", "MODEL", "model ", "%2e%2e", "．．", "C:\\", "")


def table() -> list[tuple[str, dict[str, Any]]]:
    """Requests that are wrong in one place each."""
    found: list[tuple[str, dict[str, Any]]] = []

    def add(path: str, key: str, *values: Any, **good: Any) -> None:
        found.extend((path, {**good, key: value}) for value in values)

    add("/v1/completions", "max_tokens", *HUGE, MAX_TOKENS + 1, prompt="the")
    add("/v1/completions", "n", 0, 17, *HUGE[:8], prompt="the")
    add("/v1/completions", "best_of", 0, 2, 17, *HUGE[:5], prompt="the")
    add("/v1/completions", "logprobs", 21, *HUGE, prompt="the")
    add("/v1/completions", "temperature", 100.5, *FLOATS, prompt="the")
    add("/v1/completions", "top_p", 1.001, *FLOATS, prompt="the")
    add("/v1/completions", "top_k", 0, *HUGE, prompt="the")
    add("/v1/completions", "seed", 1 << 63, 10**40, "1", 0.5, [], prompt="the")
    add("/v1/completions", "stop", "", [""], ["x"] * 17, 5, [5], {}, "\ud800", prompt="the")
    add("/v1/completions", "stream", "yes", 1, [], prompt="the")
    add("/v1/completions", "echo", "yes", 1, prompt="the")
    add("/v1/completions", "stream_options", 5, [], {"include_usage": 3}, prompt="the")
    add("/v1/completions", "prompt", 5, None, {}, [], [[]] * 200, [{}], [[[1]]], [["a"]], [1, "a"], [1.5], [-1])
    add("/v1/completions", "prompt", "\ud800", ["a", "\udfff"], [1 << 40], [999], [[1 << 63]], "the </s>")
    add(
        "/v1/completions",
        "prompt",
        ["a"] * (MAX_PROMPTS + 1),
        [1] * (MAX_PROMPT_TOKENS + 1),
        "a" * (MAX_CHARACTERS + 1),
    )
    add("/v1/completions", "prompt", ["a"] * 100, n=2)
    add("/v1/next", "k", 0, 1001, *HUGE, text="the")
    add("/v1/next", "temperature", *FLOATS, text="the")
    add("/v1/next", "text", None, 5, [], "\ud800")
    add("/v1/score", "text", None, 5, [], ["the"], "\ud800\udc00x\ud800", "a" * (MAX_CHARACTERS + 1))
    add("/v1/explain", "kind", "none", 5, [], text="the")
    add(
        "/v1/explain",
        "options",
        5,
        [],
        {"preferred": -1},
        {"preferred": 10**30},
        {"none": 1},
        text="the",
        kind="surprisal",
    )
    add("/v1/explain", "options", {"data": "/etc/passwd"}, {"other": "/"}, text="the", kind="counts")
    add("/v1/explain", "model", [], ["model"] * 9, 5, text="the")
    add("/v1/explain", "text", "a " * 20_000, 5, {}, kind="surprisal")
    add("/v1/embeddings", "input", None, 5, [], [5], "\ud800")
    add("/v1/embeddings", "layer", *HUGE, input="the")
    add("/v1/embeddings", "pool", "min", 5, None, input="the")
    add("/v1/embeddings", "encoding_format", "hex", 5, input="the")
    add("/v1/predict", "input", None, 5, [], ["a"] * 65, "the", [{"a": 1}])
    add("/v1/predict", "beam", 0, 65, *HUGE, input="the")
    add("/v1/sessions", "text", None, 5, "\ud800", "the </s> cat")
    add("/tokenize", "prompt", None, 5, "\ud800", "a </s> b")
    add("/detokenize", "tokens", None, 5, [5.5], [999], [-1], [1 << 70], "the")
    return found


@pytest.mark.parametrize("part", range(4))
def test_what_is_out_of_bounds_is_refused(server: Running, part: int) -> None:
    requests = table()
    assert len(requests) > 150
    with httpx.Client(base_url=server.url, timeout=60, headers={"content-type": "application/json"}) as client:
        for path, body in requests[part::4]:
            found = client.post(path, content=json.dumps(body).encode())
            assert found.status_code == 400, (path, str(body)[:100], found.text[:300])
            error = found.json()["error"]
            assert error["message"] and error["type"] == "invalid_request_error"
            assert set(error) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"5",
        b"\xff\xfe",
        b'{"text": "\xff"}',
        b'{"text": "a", "k": NaN}',
        b'{"text": "a", "temperature": Infinity}',
        b'{"text": "a", "temperature": -Infinity}',
        b'{"text": "a", "k": 1' + b"0" * 5000 + b"}",
        b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"text": "\\ud800"}',
    ],
)
def test_what_is_no_json_of_ours_is_refused(server: Running, body: bytes) -> None:
    found = httpx.post(f"{server.url}/v1/next", content=body, headers={"content-type": "application/json"}, timeout=60)
    assert found.status_code == 400, found.text[:200]
    assert "error" in found.json()


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_a_name_of_the_list_and_no_path(server: Running, name: str) -> None:
    for path, body in (
        ("/v1/completions", {"prompt": "the"}),
        ("/v1/next", {"text": "the"}),
        ("/v1/explain", {"text": "a"}),
    ):
        found = server.post(path, model=name, **body)
        assert found.status_code == 404, (path, name)
        assert found.json()["error"]["code"] == "model_not_found"


def test_a_refusal_comes_before_the_first_event(server: Running) -> None:
    found = server.post("/v1/completions", prompt=[1, 999], stream=True)
    assert found.status_code == 400
    assert found.headers["content-type"] == "application/json"
