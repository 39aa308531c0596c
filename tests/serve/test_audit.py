"""Whatever a request or a file says: nothing else is opened, nobody is called, nothing is unpickled, no program is run."""

from __future__ import annotations

import io
import os
import pickle
import random
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

import elman
from elman.api import import_hf
from elman.core.errors import ElmanError
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
_is_hooked: list[bool] = []
_is_watching = False


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _is_watching and event in WATCHED:
        _events.append((event, arguments))


def _is_ours(event: str, arguments: tuple[Any, ...]) -> bool:
    """What the test itself does: its client connects to loopback."""
    return event == "socket.connect" and arguments[1][0] in ("127.0.0.1", "::1")


@contextmanager
def watching() -> Iterator[list[tuple[str, Any]]]:
    """What happens meanwhile, of what is watched."""
    global _is_watching
    if not _is_hooked:  # once: no hook can be taken away again
        _is_hooked.append(True)
        sys.addaudithook(_hook)
    _events.clear()
    _is_watching = True
    try:
        yield _events
    finally:
        _is_watching = False


def test_no_name_in_a_request_becomes_a_path(model: Path) -> None:
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
        with watching() as events:
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
    found = [(event, arguments) for event, arguments in events if not _is_ours(event, arguments)]
    assert not found, found[:5]


class Harm:
    """What makes a directory when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = str(place)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.place,)


def pickles(place: Path) -> list[bytes]:
    """As programs of old saved models: pickles of every protocol, and the archive of torch.save."""
    archive = io.BytesIO()
    torch.save({"weight": torch.zeros(2), "harm": Harm(place)}, archive)
    return [*(pickle.dumps({"weight": Harm(place)}, protocol) for protocol in range(6)), archive.getvalue()]


def test_a_pickle_in_place_of_a_file_of_a_model_is_refused(model: Path, tmp_path: Path) -> None:
    harm, places = tmp_path / "harm", ("config.json", "model.safetensors", "tokenizer.json", "manifest.json")
    copy, foreign = tmp_path / "copy", tmp_path / "foreign"
    shutil.copytree(model, copy)
    foreign.mkdir()
    (foreign / "config.json").write_text(
        '{"model_type": "gpt2", "vocab_size": 300, "n_embd": 8, "n_layer": 1, "n_head": 1}'
    )
    refused = 0
    for content in pickles(harm):
        for name in places:
            whole = (copy / name).read_bytes()
            (copy / name).write_bytes(content)
            with watching() as events, pytest.raises(ElmanError):
                elman.load(copy, verify=False)
            assert not [event for event in events if event[0] != "open"], name
            (copy / name).write_bytes(whole)
            refused += 1
        (foreign / "pytorch_model.bin").write_bytes(content)
        with watching() as events, pytest.raises(ElmanError):
            import_hf(foreign, out=tmp_path / "out")
        assert not [event for event in events if event[0] == "pickle.find_class"]
        refused += 1
    assert refused == 35 and not harm.exists() and not (tmp_path / "out").exists()
    elman.load(copy)  # nothing but the pickles was wrong
