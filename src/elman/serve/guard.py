"""What stands before every route: limits, who may ask, and what is written down of it. Everything is refused by default.

In this order: the size of the body, the host that was asked for, where the request comes from, the key, the kind of body,
and whether there is room for one more.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import sys
import time
import traceback
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elman.serve.context import Context
from elman.serve.errors import ApiError
from elman.serve.hosts import allowed_hosts, host_of_origin
from elman.serve.studio import PREFIX

MAX_BODY = 1 << 20
WITHOUT_KEY = ("/healthz", "/")  # and the studio's files
SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
        "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """The application, protected, measured and logged."""

    def __init__(self, app: ASGIApp, context: Context) -> None:
        self.app = app
        self.context = context
        key = context.options.api_key
        self._key = None if key is None else _digest(key.encode())
        self._hosts = allowed_hosts(context.options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send, keeps_body=self.context.options.logs_prompts)
        try:
            self._check(scope, Headers(scope=scope))
            await self.app(scope, exchange.receive, exchange.send)
        except ApiError as error:
            await exchange.refuse(error)
        except Exception as error:
            if os.environ.get("ELMAN_DEBUG"):
                traceback.print_exception(error)
            print(f"error: {type(error).__name__} in {scope['method']} {scope['path'][:200]!r}", file=sys.stderr)
            await exchange.refuse(ApiError(500, "a bug in elman: this request failed"))
        finally:
            self._write_down(scope, exchange)

    def _check(self, scope: Scope, headers: Headers) -> None:
        """Refuse what may not come in."""
        length = headers.get("content-length", "0")
        if not length.isdigit() or len(length) > 15 or int(length) > MAX_BODY:
            raise too_large()
        host = headers.get("host", "")
        if self._hosts is not None and host.lower() not in self._hosts:
            raise ApiError(403, "this host is not served here; --allow-host adds one", code="host_not_allowed")
        self._check_origin(scope, headers, host)
        path = scope["path"]
        if path not in WITHOUT_KEY and not path.startswith(PREFIX):
            self._check_key(headers)
        if scope["method"] in ("POST", "PUT", "PATCH"):
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json" and (headers.get("transfer-encoding") or length != "0" or kind):
                raise ApiError(415, "the body must be application/json")
            self.context.admission.check()  # before the body is read: refusing must cost little

    def _check_origin(self, scope: Scope, headers: Headers, host: str) -> None:
        """A page of another origin asks for nothing here: not with its origin named, nor by a browser that says so."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        is_page = scope["path"] == "/" and scope["method"] == "GET" and headers.get("sec-fetch-mode") == "navigate"
        if (origin is not None and host_of_origin(origin) != host.lower()) or (
            site not in ("none", "same-origin") and not is_page
        ):
            raise ApiError(403, "requests from other pages are refused", code="origin_not_allowed")

    def _check_key(self, headers: Headers) -> None:
        if self._key is None:
            return
        scheme, _, given = headers.get("authorization", "").partition(" ")
        is_right = hmac.compare_digest(_digest(given.strip().encode("utf-8", "replace")), self._key)
        if scheme.lower() != "bearer" or not is_right:
            raise ApiError(
                401,
                "the key is missing or wrong: send Authorization: Bearer KEY",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )

    def _write_down(self, scope: Scope, exchange: _Exchange) -> None:
        """One line for each request, without anything of what it said unless that was asked for."""
        route = getattr(scope.get("route"), "path", "none")
        seconds = time.monotonic() - exchange.started
        metrics = self.context.metrics
        metrics.requests.labels(route, exchange.status).inc()
        metrics.seconds.labels(route).observe(seconds)
        if not self.context.options.logs_requests:
            return
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "request_id": exchange.id,
            "method": scope["method"],
            "route": route,
            "status": exchange.status,
            "seconds": round(seconds, 4),
            "bytes_in": exchange.num_received,
            "bytes_out": exchange.num_sent,
        }
        if exchange.body is not None:
            line["body"] = bytes(exchange.body).decode("utf-8", "replace")
        print(json.dumps(line), file=sys.stderr, flush=True)


class _Exchange:
    """One request and its answer: counts both, and adds what every answer has."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, keeps_body: bool) -> None:
        self.id = f"req-{secrets.token_hex(12)}"
        self.started = time.monotonic()
        self.status = 0
        self.num_received = self.num_sent = 0
        self.body = bytearray() if keeps_body else None
        self._scope, self._receive, self._send = scope, receive, send

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            body = message.get("body", b"")
            self.num_received += len(body)
            if self.num_received > MAX_BODY:
                raise too_large()
            if self.body is not None:
                self.body += body
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = self.id
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", "no-store")
        else:
            self.num_sent += len(message.get("body", b""))
        await self._send(message)

    async def refuse(self, error: ApiError) -> None:
        """Answer with an error, if there is no answer yet. What was not read of the body is not waited for."""
        if self.status:
            return
        response = error.response()
        if error.status_code == 413:
            response.headers["connection"] = "close"
        await response(self._scope, self._receive, self.send)


def too_large() -> ApiError:
    """A body beyond the limit."""
    return ApiError(413, f"the body is larger than {MAX_BODY} bytes", code="body_too_large")


def _digest(key: bytes) -> bytes:
    """So that comparing takes as long whatever the key, and however long it is."""
    return hashlib.sha256(key).digest()
