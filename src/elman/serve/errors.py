"""What a client is told when a request is refused: OpenAI's error envelope, whatever went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

INVALID, TOO_MANY, INTERNAL = "invalid_request_error", "rate_limit_error", "server_error"
KINDS = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: TOO_MANY}


class ApiError(HTTPException):
    """A request that is refused, with the status and the words of the answer.

    It is one of the framework's own errors, since those alone come out of reading a body as they are.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, dict(headers or {}))
        self.param = param
        self.code = code

    def body(self) -> dict[str, Any]:
        """The envelope."""
        kind = KINDS.get(self.status_code, INTERNAL if self.status_code >= 500 else INVALID)
        return {"error": {"message": printable(self.detail), "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        """The envelope as an answer. A refusal that would be refused again is not worth trying again."""
        may_retry = {"x-should-retry": "true" if self.status_code in (429, 503) else "false"}
        return JSONResponse(self.body(), self.status_code, headers={**may_retry, **(self.headers or {})})


def printable(text: str) -> str:
    """A text that can be sent: lone surrogates escaped."""
    return text.encode("utf-8", "backslashreplace").decode()
