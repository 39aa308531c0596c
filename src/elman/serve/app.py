"""The application: every route, and what becomes of every error."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from elman import __version__
from elman.serve import comparisons, own, protocols
from elman.serve.context import Context, ServeOptions
from elman.serve.errors import ApiError
from elman.serve.guard import Guard
from elman.serve.handover import Pacer
from elman.serve.reference import reference_page
from elman.serve.served import Models
from elman.serve.studio import add_studio

REFUSALS = {
    400: "The request is not understood, or asks for what is not possible",
    401: "The key is missing or wrong",
    403: "The request comes from another page or host",
    404: "There is no such model, session or route",
    405: "The route does not take this method",
    413: "The body is larger than 1 MiB",
    415: "The body is not application/json",
    429: "Too many requests are under way; try again after Retry-After seconds",
    503: "The server is shutting down",
}


def make_app(models: Models, options: ServeOptions | None = None) -> Guard:
    """The server's application, with all that protects it around it."""
    options = options or ServeOptions()
    context = Context.make(models, options)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        for served in models.values():
            if served.worker is not None:
                served.worker.pace = Pacer(asyncio.get_running_loop())
        yield
        context.admission.is_closing = True
        models.close()

    schema = {"type": "object", "properties": {"error": {"type": "object"}}, "required": ["error"]}
    app = FastAPI(
        title="elman",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        responses={
            status: {"description": text, "content": {"application/json": {"schema": schema}}}
            for status, text in REFUSALS.items()
        },
    )
    protocols.add_routes(app, context)
    own.add_routes(app, context)
    comparisons.add_routes(app, models.comparisons, models.ids_by_directory())
    _add_operations(app, context)
    add_studio(app, context)
    _forget_422(app)
    _add_reference(app)
    app.add_exception_handler(ApiError, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse_invalid)
    app.add_exception_handler(HTTPException, _refuse_http)
    return Guard(app, context)


def _add_operations(app: FastAPI, context: Context) -> None:
    @app.get("/healthz")
    async def healthz() -> dict[str, Any]:
        """Whether the server is up, and how much is under way."""
        return {"status": "ok", "models": len(context.models), "requests": context.admission.num_admitted}

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Counters for Prometheus."""
        return Response(context.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _add_reference(app: FastAPI) -> None:
    page = reference_page(app.openapi())

    @app.get("/docs", include_in_schema=False)
    async def reference() -> Response:
        return HTMLResponse(page)


def _forget_422(app: FastAPI) -> None:
    """What is invalid is 400 here, as it is at OpenAI."""
    for route in app.openapi()["paths"].values():
        for operation in route.values():
            operation["responses"].pop("422", None)


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


async def _refuse_invalid(request: Request, error: Exception) -> Response:
    """The first thing that is wrong with a request, in words; nothing of what it said."""
    assert isinstance(error, RequestValidationError)
    found = error.errors()[:8]
    if found[0]["type"] == "json_invalid":
        return ApiError(400, "the body is not JSON").response()
    place = ".".join(
        str(part) for part in found[0]["loc"] if part not in ("body", "query", "path") and not _is_tag(part)
    )
    same = [one["msg"].removeprefix("Value error, ") for one in found if one["loc"][:2] == found[0]["loc"][:2]]
    message = ", or ".join(dict.fromkeys(same))
    return ApiError(400, f"{place[:200]}: {message}" if place else message, param=place[:200] or None).response()


def _is_tag(part: str | int) -> bool:
    """Whether a part of a place names a kind of values, of which several are accepted there."""
    return isinstance(part, str) and (
        part in ("str", "int", "float", "bool", "none", "dict") or "[" in part or "-" in part
    )


async def _refuse_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return ApiError(error.status_code, str(error.detail), headers=error.headers).response()
