"""The page at `/` and its files, which lie beside this one. No path is made of a request: every file has a route."""

from __future__ import annotations

import mimetypes
from importlib.resources import files

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

PAGE = "index.html"
PREFIX = "/studio/"


def studio_files() -> dict[str, bytes]:
    """The files of the page, by the path each is served at; the page itself is at `/`."""
    folder = files("elman.serve") / "studio"
    if not folder.is_dir():
        return {}
    found = {PREFIX + one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()}
    return found | ({"/": found[PREFIX + PAGE]} if PREFIX + PAGE in found else {})


def add_studio(app: FastAPI) -> None:
    """A route for each file."""
    for path, content in studio_files().items():
        name = PAGE if path == "/" else path
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        app.add_api_route(path, _sender(content, kind), methods=["GET"], include_in_schema=False)


def _sender(content: bytes, kind: str):  # type: ignore[no-untyped-def]
    async def send(request: Request) -> Response:
        return Response(content, media_type=kind, headers={"cache-control": "no-cache"})

    return send
