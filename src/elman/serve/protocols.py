"""Routes that other programs know: OpenAI's models, completions and embeddings, and a tokenizer over HTTP."""

from __future__ import annotations

import base64
import contextlib
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from elman.serve import completions
from elman.serve.context import Context, unless_gone
from elman.serve.schemas import CompletionRequest, DetokenizeRequest, EmbeddingsRequest, TokenizeRequest
from elman.serve.served import Served
from elman.text.units.vocabulary import EOS, EOS_ID, UNK


class EventStream(StreamingResponse):
    """A stream of events that gives back what it holds, however it ends."""

    def __init__(self, completion: completions.Completion, held: contextlib.ExitStack) -> None:
        super().__init__(completion.events(), media_type="text/event-stream", headers={"cache-control": "no-store"})
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send, then let go."""
        with self._held:
            await super().__call__(scope, receive, send)


def add_routes(app: FastAPI, context: Context) -> None:
    """All of them."""
    models = context.models

    @app.get("/v1/models")
    async def list_models() -> dict[str, Any]:
        """The models that are served."""
        return {"object": "list", "data": [one.listing for one in models.values()]}

    @app.get("/v1/models/{name}")
    async def show_model(name: str) -> dict[str, Any]:
        """One of them."""
        return models.find(name).listing

    @app.post("/v1/completions")
    async def complete(body: CompletionRequest, request: Request) -> Response:
        """Continue one or several prompts, as OpenAI's completions do."""
        served = models.find_language_model(body.model)
        with contextlib.ExitStack() as held:
            held.enter_context(context.admission.slot())
            completion = await completions.begin(body, served, models.threads)
            held.callback(completion.cancel)
            held.callback(context.count, completion)
            if body.stream:
                return EventStream(completion, held.pop_all())
            return await context.answer(dict, await unless_gone(request, completion.answer()))

    @app.post("/v1/embeddings")
    async def embed(body: EmbeddingsRequest, request: Request) -> Response:
        """A vector for each text, by `elman encode`."""
        served = models.find(body.model)
        with context.admission.slot():
            return await unless_gone(request, context.answer(_embed, served, body, is_slow=True))

    @app.post("/tokenize")
    async def tokenize(body: TokenizeRequest) -> dict[str, Any]:
        """The ids of a text; a leading `</s>` is the end-of-sequence."""
        model, _ = models.find_language_model(body.model).language_model()
        with context.admission.slot():
            found = await context.in_thread(completions.given_prompt, model, body.prompt)
        ids = ([EOS_ID] if found.starts_with_end else []) + found.tokens.ids.tolist()
        return {"tokens": ids, "count": len(ids)}

    @app.post("/detokenize")
    async def detokenize(body: DetokenizeRequest) -> dict[str, Any]:
        """The text of ids; a leading end-of-sequence is `</s>`."""
        model, _ = models.find_language_model(body.model).language_model()
        with context.admission.slot():
            found = await context.in_thread(completions.given_prompt, model, body.tokens)
        return {"prompt": (EOS if found.starts_with_end else "") + found.text}

    @app.get("/tokenizer_info")
    async def tokenizer_info(model: str | None = None) -> dict[str, Any]:
        """What the tokenizer's special tokens are called."""
        served = models.find_language_model(model)
        tokenizer = served.language_model()[0].tokenizer
        return {
            "model": served.id,
            "units": tokenizer.units,
            "vocab_size": tokenizer.vocab_size,
            "eos_token": EOS,
            "unk_token": UNK,
        }


def _embed(served: Served, body: EmbeddingsRequest) -> dict[str, Any]:
    texts = [body.input] if isinstance(body.input, str) else body.input
    vectors = served.model.encode(texts, layer=body.layer, pool=body.pool).astype("<f4")
    encoded = [
        base64.b64encode(vector.tobytes()).decode() if body.encoding_format == "base64" else vector.tolist()
        for vector in vectors
    ]
    rows = [{"object": "embedding", "index": row, "embedding": vector} for row, vector in enumerate(encoded)]
    num_tokens = sum(map(served.model.count_tokens, texts))
    usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    return {"object": "list", "data": rows, "model": served.id, "usage": usage}
