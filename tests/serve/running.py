"""A real server on loopback, in this process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai

from elman.serve.context import Context, ServeOptions
from elman.serve.served import Models, load_models, serve_models
from elman.serve.server import Server, listen

KEY = "a-key-that-nobody-guesses"


@dataclass(frozen=True)
class Running:
    """A server that answers."""

    url: str
    port: int
    context: Context
    routes: list[Any]
    clients: contextlib.ExitStack  # closed with the server: a connection nobody closed fails another test
    key: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.key is None else {"authorization": f"Bearer {self.key}"}

    def openai(self, **options: Any) -> openai.OpenAI:
        """The real client."""
        client = openai.OpenAI(base_url=f"{self.url}/v1", api_key=self.key or "none", **{"max_retries": 0, **options})
        return self.clients.enter_context(client)

    def post(self, path: str, **body: Any) -> httpx.Response:
        return httpx.post(self.url + path, json=body, headers=self.headers, timeout=60)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return httpx.get(self.url + path, **{"headers": self.headers, "timeout": 60, **options})


@contextlib.contextmanager
def running(models: Models | dict[str, Any] | list[Path], **options: Any) -> Iterator[Running]:
    """A server of models, or of directories."""
    rows = options.get("max_streams", 64)
    if isinstance(models, list):
        models = load_models(models, max_rows=rows)
    elif isinstance(models, dict):
        models = serve_models(models, max_rows=rows)
    found, asked = listen(ServeOptions(**{"port": 0, **options}))
    ready = threading.Event()
    server = Server(models, asked, on_ready=ready.set)
    thread = threading.Thread(target=lambda: server.run(sockets=[found]), daemon=True)
    thread.start()
    assert ready.wait(60)
    context, routes = server.guard.context, server.guard.app.routes
    try:
        with contextlib.ExitStack() as clients:
            yield Running(f"http://127.0.0.1:{asked.port}", asked.port, context, routes, clients, asked.api_key)
    finally:
        server.should_exit = True
        thread.join(30)
        found.close()
        assert not thread.is_alive()
