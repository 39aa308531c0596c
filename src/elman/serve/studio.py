"""The page at `/` and its files, which lie in studio/. No path is made of a request: every file has a route."""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Awaitable, Callable
from importlib.resources import files

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from elman.serve.context import Context
from elman.serve.vega import vega_script

PAGE = "index.html"
PREFIX = "/studio/"
VEGA = PREFIX + "vega.js"
SCRIPT = "text/javascript"


def studio_files() -> dict[str, bytes]:
    """The files of the page, by the path each is served at; the page itself is at `/`."""
    folder = files("elman.serve") / "studio"
    found = {PREFIX + one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()}
    return found | {"/": found[PREFIX + PAGE]}


def add_studio(app: FastAPI, context: Context) -> None:
    """A route for each file, and for the script that draws pictures."""

    async def vega(request: Request) -> Response:
        return _answer(request, await context.in_thread(vega_script), SCRIPT)

    for path, content in studio_files().items():
        app.add_api_route(path, _sender(path, content), methods=["GET"], include_in_schema=False)
    app.add_api_route(VEGA, vega, methods=["GET"], include_in_schema=False)


def _sender(path: str, content: bytes) -> Callable[[Request], Awaitable[Response]]:
    kind = SCRIPT if path.endswith(".js") else mimetypes.guess_type(PAGE if path == "/" else path)[0]

    async def send(request: Request) -> Response:
        return _answer(request, content, kind or "application/octet-stream")

    return send


def _answer(request: Request, content: bytes, kind: str) -> Response:
    """The file, or that the browser has it already."""
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"cache-control": "no-cache", "etag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=kind, headers=headers)
