"""Whatever a request says: no file is opened, nobody is called, nothing is unpickled and no program is run."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any

import httpx

from tests.serve.running import running

NAMES = int(os.environ.get("ELMAN_NAMES", "200"))
PARTS = [
    "..",
    ".",
    "/",
    "\\",
    "%2e",
    "%2f",
    "%00",
    "\0",
    "etc",
    "passwd",
    "C:",
    "file:",
    "//",
    "~",
    "．",
    "‥",
    "model",
    "http:",
]
WATCHED = ("open", "socket.connect", "pickle.find_class", "subprocess.Popen", "os.system", "os.exec", "ctypes.dlopen")

_events: list[tuple[str, Any]] = []
_is_watching = False


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _is_watching and event in WATCHED:
        _events.append((event, arguments))


def _is_ours(event: str, arguments: tuple[Any, ...]) -> bool:
    """What the test itself does: its client connects to loopback."""
    return event == "socket.connect" and arguments[1][0] in ("127.0.0.1", "::1")


def test_no_name_in_a_request_becomes_a_path(model: Path) -> None:
    global _is_watching
    sys.addaudithook(_hook)
    rng = random.Random(0)
    names = ["".join(rng.choices(PARTS, k=rng.randint(1, 8))) for _ in range(NAMES)]
    with running([model]) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        bodies: list[tuple[str, dict[str, Any]]] = [
            ("/v1/completions", {"prompt": "the", "max_tokens": 2}),
            ("/v1/next", {"text": "the"}),
            ("/v1/explain", {"text": "the", "kind": "surprisal"}),
            ("/v1/embeddings", {"input": "the"}),
            ("/v1/predict", {"input": "the"}),
        ]
        for path, body in bodies:
            client.post(path, json=body)  # what is imported at the first request is no answer to a name
        for path in ("/", "/v1/models/none", "/v1/sessions/none"):
            client.get(path)  # the framework looks up the source of each of our functions once
        _events.clear()
        _is_watching = True
        try:
            for number, name in enumerate(names):
                path, body = bodies[number % len(bodies)]
                if name != "model":
                    assert client.post(path, json={**body, "model": name}).status_code == 404
                assert client.post("/v1/next", json={"session": name}).status_code in (400, 404)
                assert client.post("/v1/explain", json={"text": name, "kind": name}).status_code == 400
                for place in (f"/v1/models/{name}", f"/studio/{name}", f"/v1/sessions/{name}"):
                    try:
                        status = client.get(place).status_code
                    except (httpx.InvalidURL, UnicodeError):
                        continue
                    assert status in (200, 307, 400, 404, 405), (place, status)
        finally:
            _is_watching = False
    found = [(event, arguments) for event, arguments in _events if not _is_ours(event, arguments)]
    assert not found, found[:5]
