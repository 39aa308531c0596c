"""Routes of elman's own: what may follow, what a text costs, answers, explanations, and sessions."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin

import numpy as np
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from elman.api import Model, PredictOptions, texts
from elman.core.arrays import Array
from elman.explain import explain as explain_models
from elman.explain import kind_named
from elman.lm.protocol import refuse_nan
from elman.lm.shaping import Shaping, likeliest, shape
from elman.serve.context import Context, unless_gone
from elman.serve.errors import ApiError
from elman.serve.handover import call_model, read_tokens
from elman.serve.schemas import (
    AdvanceRequest,
    ExplainRequest,
    NextRequest,
    PredictRequest,
    ScoreRequest,
    SessionRequest,
)
from elman.serve.served import Served
from elman.serve.sessions import Session, new_id, read_session
from elman.text.units.offsets import MARKS, offsets
from elman.text.units.vocabulary import EOS_ID, UNK_ID

MAX_EXPLAINED = 20_000  # characters
TEXT_OPTIONS = ("target", "unit")  # of explanations, that are neither numbers nor files


def add_routes(app: FastAPI, context: Context) -> None:
    """All of them."""
    models, sessions = context.models, context.sessions

    @app.post("/v1/next")
    async def next_tokens(body: NextRequest, request: Request) -> dict[str, Any]:
        """The likeliest next tokens, with their probabilities before and after shaping."""
        with context.admission.slot():
            if body.session is not None:
                session = sessions.find(body.session)
            else:
                session = await unless_gone(request, _read(models.find_language_model(body.model), body.text or ""))
            model, worker = session.served.language_model()
            shaping = Shaping(body.temperature, body.top_k, body.top_p)
            work = call_model(worker, lambda: refuse_nan(model.lm.predict(session.now.state)[0]))
            log_probs = await unless_gone(request, work)
            ids = session.now.ids
            rows = await context.in_thread(_next_rows, model, ids, log_probs, shaping, body.k, body.prefix)
        found: dict[str, Any] = {"model": session.served.id, "tokens": rows, "num_tokens": len(ids)}
        return found | {"after_unknown": bool(len(ids) and ids[-1] == UNK_ID), "entropy": _entropy(log_probs)}

    @app.post("/v1/score")
    async def score(body: ScoreRequest, request: Request) -> Response:
        """What each token of a text costs, in nats, and where it stands in the text."""
        served = models.find_language_model(body.model)
        model, worker = served.language_model()
        text = body.text.removesuffix("\n")
        with context.admission.slot():
            ids = await context.in_thread(model.ids_of, text)
            work = read_tokens(worker, ids, restarts=model.record.data.reset_lines)
            _, log_probs = await unless_gone(request, work)
            return await context.answer(_costs, served.id, model, text, ids, -log_probs)

    @app.post("/v1/predict")
    async def predict(body: PredictRequest, request: Request) -> Response:
        """Tags, a label, a translation or an answer for each line or record."""
        served = models.find(body.model)
        with context.admission.slot():
            return await unless_gone(request, context.answer(_predict, served, body, is_slow=True))

    @app.post("/v1/explain")
    async def explain(body: ExplainRequest, request: Request) -> Response:
        """What `elman explain` finds, and its picture as a Vega-Lite specification."""
        names = body.model if isinstance(body.model, list) else [body.model]
        chosen = [models.find(name) for name in names]
        with context.admission.slot():
            return await unless_gone(request, context.answer(_explain, chosen, body, is_slow=True))

    @app.post("/v1/sessions")
    async def open_session(body: SessionRequest, request: Request) -> dict[str, Any]:
        """Read a text and keep the state after it."""
        served = models.find_language_model(body.model)
        with context.admission.slot():
            return sessions.keep(await unless_gone(request, _read(served, body.text))).as_json()

    @app.get("/v1/sessions/{name}")
    async def show_session(name: str) -> dict[str, Any]:
        """What a session has read."""
        return sessions.find(name).as_json()

    @app.post("/v1/sessions/{name}/advance")
    async def advance(name: str, body: AdvanceRequest, request: Request) -> dict[str, Any]:
        """Read on: a text that follows, or tokens."""
        session = sessions.find(name)
        with context.admission.slot():
            return sessions.keep(await unless_gone(request, _advance(session, body))).as_json()

    @app.post("/v1/sessions/{name}/branch")
    async def branch(name: str) -> dict[str, Any]:
        """Another session that has read the same, under an id of its own."""
        return sessions.keep(replace(sessions.find(name), id=new_id())).as_json()

    @app.delete("/v1/sessions/{name}", status_code=204)
    async def close_session(name: str) -> Response:
        """Forget it."""
        sessions.close(name)
        return Response(status_code=204)

    async def _read(served: Served, text: str) -> Session:
        model, _ = served.language_model()
        return await read_session(new_id(), served, text, await context.in_thread(model.prompt, text))

    async def _advance(session: Session, body: AdvanceRequest) -> Session:
        model, _ = session.served.language_model()
        text, prompt = await context.in_thread(_extend, model, session, body)
        return await read_session(session.id, session.served, text, prompt, session)


def _extend(model: Model, session: Session, body: AdvanceRequest) -> tuple[str, Any]:
    """The text of a session with what follows it, and its tokens."""
    if body.text is not None:
        text = session.text + body.text
        return text, model.prompt(text)
    writer = model.writer(replace(model.prompt(session.now.ids.tolist()), has_space=session.has_space))
    prompt = model.prompt([*session.now.ids.tolist(), *(body.tokens or ())])
    pieces = ["\n" if token == EOS_ID else writer.push(token) for token in body.tokens or ()]
    return session.text + "".join(pieces), prompt


def _next_rows(
    model: Model, ids: Array, log_probs: Array, shaping: Shaping, k: int, prefix: str
) -> list[dict[str, Any]]:
    shaped = shape(log_probs[None], shaping)[0]
    if prefix:
        symbols = model.tokenizer.tokens
        chosen = np.array([place for place, one in enumerate(symbols) if one.lstrip(MARKS).startswith(prefix)], int)
        best = chosen[likeliest(log_probs[chosen], min(k, len(chosen)))] if len(chosen) else chosen
    else:
        best = likeliest(log_probs, min(k, len(log_probs)))
    return [
        {
            "token": model.symbol(token, ids),
            "id": token,
            "probability": math.exp(float(log_probs[token])),
            "shaped": math.exp(float(shaped[token])),
        }
        for token in best.tolist()
    ]


def _entropy(log_probs: Array) -> float:
    """In nats."""
    possible = log_probs[np.isfinite(log_probs)].astype(np.float64)
    return float(-(np.exp(possible) * possible).sum())


def _costs(name: str, model: Model, text: str, ids: Array, nats: Array) -> dict[str, Any]:
    """A text's cost, token by token; the end of the last line stands behind it."""
    total = model.summarise(text, ids, nats)
    rows = [
        {
            "token": symbol,
            "id": int(token),
            "nats": _finite(float(cost)),
            "start": start,
            "end": end,
            "unknown": bool(token == UNK_ID),
        }
        for symbol, token, cost, (start, end) in zip(
            model.symbols(ids), ids, nats, offsets(text, ids, model.tokenizer), strict=True
        )
    ]
    return {
        "model": name,
        "nats": _finite(total.nats),
        "num_tokens": total.tokens,
        "perplexity": _finite(total.perplexity),
        "bits_per_byte": _finite(total.bits_per_byte),
        "unknown": total.unknown,
        "tokens": rows,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _predict(served: Served, body: PredictRequest) -> dict[str, Any]:
    given = body.input if isinstance(body.input, list) else [body.input]
    lines = [one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in given]
    if any("\n" in line or "\r" in line for line in lines):
        raise ApiError(400, "a line has a line break in it: give several lines as a list", param="input")
    options = PredictOptions(
        beam=body.beam,
        n_best=body.n_best,
        length_penalty=body.length_penalty,
        prefix=body.prefix,
        max_tokens=body.max_tokens,
        details=True,
    )
    found = [one.as_json() for one in served.model.predict_lines([texts(lines)], options)]
    return {"model": served.id, "predictions": found}


def _explain(chosen: list[Served], body: ExplainRequest) -> dict[str, Any]:
    given = [body.text] if isinstance(body.text, str) else body.text
    if sum(map(len, given)) > MAX_EXPLAINED:
        raise ApiError(400, f"a text to be explained has at most {MAX_EXPLAINED} characters", param="text")
    first = chosen[0].model
    kind = body.kind or next(iter(first.kinds(given[0] if given else "")), None)
    if kind is not None:
        fields = kind_named(kind).options.model_fields
        for name in body.options:
            if name in fields and name not in TEXT_OPTIONS and not _is_harmless(fields[name].annotation):
                raise ApiError(400, f"{name} names a file, and no request reads files", param=f"options.{name}")
    found = explain_models(
        [one.model for one in chosen], [one for one in given if one], kind=kind, options=body.options
    )
    return {"explained": [one.id for one in chosen], **found.to_dict(), "picture": found.picture}


def _is_harmless(annotation: Any) -> bool:
    """Whether a setting is a number, a switch or one of some words: whatever else it is could be the name of a file."""
    if get_origin(annotation) is Literal or annotation in (int, float, bool, type(None), ...):
        return True
    parts = get_args(annotation)
    return bool(parts) and all(_is_harmless(part) for part in parts)
