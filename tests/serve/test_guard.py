"""Who may ask what: hosts, origins, keys, kinds of bodies, headers of answers, for every route there is."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.routing import Route

from elman.core.errors import UsageError
from elman.serve.context import ServeOptions
from elman.serve.guard import MAX_BODY
from elman.serve.hosts import check_options, is_loopback
from elman.serve.studio import PREFIX
from tests.serve.running import KEY, Running, running

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


@pytest.fixture(scope="module")
def locked(model: Path) -> Iterator[Running]:
    with running([model], api_key=KEY) as found:
        yield found


def paths(server: Running) -> list[str]:
    """Every path that is served, with a name in the place of names."""
    found = [route.path for route in server.routes if isinstance(route, Route)]
    assert len(found) > 15
    return [re.sub(r"\{\w+\}", "model", path) for path in found]


def raw(server: Running, request: bytes) -> int:
    """The status of an answer to bytes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        connection.sendall(request)
        return int(connection.makefile("rb").readline().split()[1])


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "localhost",
        "localhost:1",
        "localhost.:{port}",
        "localhost.evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:80",
        "127.0.0.1.:{port}",
        "127.1:{port}",
        "0x7f000001:{port}",
        "2130706433:{port}",
        "0.0.0.0:{port}",
        "127.0.0.2:{port}",
        "[::]:{port}",
        "[::ffff:127.0.0.1]:{port}",
        "::1:{port}",
        "user@localhost:{port}",
        "localhost:{port}, evil.example",
        " ",
        "",
    ],
)
def test_another_host_is_refused(server: Running, host: str) -> None:
    value = host.format(port=server.port)
    assert raw(server, f"GET /v1/models HTTP/1.1\r\nHost: {value}\r\n\r\n".encode()) == 403


@pytest.mark.parametrize("host", ["localhost:{port}", "127.0.0.1:{port}", "[::1]:{port}", "LOCALHOST:{port}"])
def test_the_own_names_are_served(server: Running, host: str) -> None:
    assert server.get("/v1/models", headers={"host": host.format(port=server.port)}).status_code == 200


def test_no_host_at_all_is_refused(server: Running) -> None:
    assert raw(server, b"GET /v1/models HTTP/1.0\r\n\r\n") == 403


def test_a_host_that_was_allowed_is_served(model: Path) -> None:
    with running([model], allowed_hosts=("models.lan",)) as server:
        for host in ("models.lan", f"models.lan:{server.port}"):
            assert server.get("/healthz", headers={"host": host}).status_code == 200
        assert server.get("/healthz", headers={"host": "other.lan"}).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://localhost.evil.example"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "null"},
        {"origin": "file://"},
        {"origin": ""},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_page_from_elsewhere_gets_nothing_by_any_method(server: Running, headers: dict[str, str]) -> None:
    with httpx.Client(base_url=server.url, headers=headers, timeout=30) as client:
        for path in paths(server):
            for method in METHODS:
                found = client.request(method, path)
                assert found.status_code == 403, (method, path)
                assert "access-control-allow-origin" not in found.headers


def test_the_own_page_may_ask(server: Running) -> None:
    headers = {"origin": server.url, "sec-fetch-site": "same-origin"}
    assert httpx.post(f"{server.url}/v1/next", json={"text": "the"}, headers=headers).status_code == 200


def test_every_route_but_health_and_the_page_needs_the_key(locked: Running) -> None:
    with httpx.Client(base_url=locked.url, timeout=30) as client:
        for path in paths(locked):
            is_open = path in ("/", "/healthz") or path.startswith(PREFIX)
            for method in METHODS:
                wrong = {"authorization": "Bearer a-key-that-somebody-guessed"}
                for headers in ({}, wrong, {"authorization": f"Basic {KEY}"}, {"authorization": KEY}):
                    status = client.request(method, path, headers=headers).status_code
                    assert (status != 401) == is_open, (method, path, headers)
    assert locked.get("/v1/models").status_code == 200
    assert locked.openai().completions.create(model="model", prompt="the", max_tokens=2).choices


def test_the_key_is_never_written_down(model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with running([model], api_key=KEY) as server:
        server.get("/v1/models")
        server.get(f"/v1/models?key={KEY}", headers={"authorization": f"Bearer {KEY}x"})
        server.post("/v1/score", text="what nobody should read")
        assert KEY not in server.get("/metrics").text
        assert KEY not in repr(server.context.options)
    log = capfd.readouterr().err
    assert '"route": "/v1/score"' in log
    assert KEY not in log and "nobody should read" not in log


def test_prompts_are_in_the_log_if_they_are_asked_for(model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with running([model], logs_prompts=True) as server:
        identity = server.post("/v1/score", text="the cat").headers["x-request-id"]
    log = capfd.readouterr().err
    assert "the cat" in log and identity in log


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.org", "10.0.0.1"])
def test_another_address_needs_a_key(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(UsageError, match="no key"):
        check_options(ServeOptions(host=host))
    check_options(ServeOptions(host=host, api_key=KEY))


def test_only_json_is_read(server: Running) -> None:
    body = b'{"text": "the"}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/json", ""):
        found = httpx.post(f"{server.url}/v1/next", content=body, headers={"content-type": kind} if kind else {})
        assert found.status_code == 415, kind
    good = {"content-type": "application/json; charset=utf-8"}
    assert httpx.post(f"{server.url}/v1/next", content=body, headers=good).status_code == 200


def test_a_body_beyond_the_limit_is_refused_at_once(server: Running) -> None:
    head = f"POST /v1/score HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
    assert raw(server, f"{head}Content-Length: {MAX_BODY + 1}\r\n\r\n".encode()) == 413  # before any of it was sent
    assert raw(server, f"{head}Content-Length: {10**30}\r\n\r\n".encode()) in (400, 413)

    def endless() -> Iterator[bytes]:
        for _ in range(40):
            yield b" " * 65536

    found = httpx.post(f"{server.url}/v1/score", content=endless(), headers={"content-type": "application/json"})
    assert found.status_code == 413
    assert found.json()["error"]["code"] == "body_too_large"


def test_every_answer_forbids_frames_sniffing_and_foreign_scripts(server: Running) -> None:
    for path in [*paths(server), "/no-such-route", "/v1/models/none"]:
        headers = server.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"], path
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-request-id"].startswith("req-")
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


def test_the_reference_shows_every_route_without_a_script(server: Running) -> None:
    page = server.get("/docs").text
    for path in server.get("/openapi.json").json()["paths"]:
        assert path in page
    assert "max_tokens" in page and "<script" not in page and "http://" not in page and "https://" not in page


def test_what_is_not_there_is_said_in_the_envelope(server: Running) -> None:
    for path in ("/no-such-route", "/v1/models/..%2f..%2fetc%2fpasswd", "/studio/../../app.py", "/v1/sessions/x"):
        found = server.get(path)
        assert found.status_code == 404, path
        assert found.json()["error"]["type"] == "not_found_error"
    assert server.get("/v1/completions").status_code == 405
