"""Routes that other programs know: OpenAI's models, completions and embeddings, and a tokenizer over HTTP."""

from __future__ import annotations

import base64
import contextlib
from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from elman.serve import completions
from elman.serve.context import Context, unless_gone
from elman.serve.schemas import CompletionRequest, DetokenizeRequest, EmbeddingsRequest, TokenizeRequest
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


def make_router(context: Context) -> APIRouter:
    """The routes."""
    router = APIRouter()
    models = context.models

    @router.get("/v1/models")
    async def list_models() -> dict[str, Any]:
        """The models that are served."""
        return {"object": "list", "data": [one.as_json() for one in models.values()]}

    @router.get("/v1/models/{name}")
    async def show_model(name: str) -> dict[str, Any]:
        """One of them."""
        return models.find(name).as_json()

    @router.post("/v1/completions")
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
            return JSONResponse(await unless_gone(request, completion.answer()))

    @router.post("/v1/embeddings")
    async def embed(body: EmbeddingsRequest, request: Request) -> dict[str, Any]:
        """A vector for each text, by `elman encode`."""
        served = models.find(body.model)
        texts = [body.input] if isinstance(body.input, str) else body.input
        with context.admission.slot():
            work = context.in_thread(served.model.encode, texts, layer=body.layer, pool=body.pool)
            vectors = (await unless_gone(request, work)).astype(np.float32)
        encoded = [
            base64.b64encode(vector.tobytes()).decode() if body.encoding_format == "base64" else vector.tolist()
            for vector in vectors
        ]
        rows = [{"object": "embedding", "index": row, "embedding": vector} for row, vector in enumerate(encoded)]
        num_words = sum(len(text.split()) for text in texts)
        usage = {"prompt_tokens": num_words, "total_tokens": num_words}
        return {"object": "list", "data": rows, "model": served.id, "usage": usage}

    @router.post("/tokenize")
    async def tokenize(body: TokenizeRequest) -> dict[str, Any]:
        """The ids of a text; a leading `</s>` is the end-of-sequence."""
        model, _ = models.find_language_model(body.model).language_model()
        with context.admission.slot():
            found = await context.in_thread(completions.given_prompt, model, body.prompt)
        ids = ([EOS_ID] if found.starts_with_end else []) + found.tokens.ids.tolist()
        return {"tokens": ids, "count": len(ids)}

    @router.post("/detokenize")
    async def detokenize(body: DetokenizeRequest) -> dict[str, Any]:
        """The text of ids; a leading end-of-sequence is `</s>`."""
        model, _ = models.find_language_model(body.model).language_model()
        with context.admission.slot():
            found = await context.in_thread(completions.given_prompt, model, body.tokens)
        return {"prompt": (EOS if found.starts_with_end else "") + found.text}

    @router.get("/tokenizer_info")
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

    return router
