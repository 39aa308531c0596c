"""Which addresses are this machine's own, and by which names a server may be asked."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from elman.core.errors import UsageError
from elman.serve.context import ServeOptions

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def is_everywhere(host: str) -> bool:
    """Whether an address means all of the machine's."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def check_options(options: ServeOptions) -> None:
    """Refuse to be reached from elsewhere without a key."""
    if not is_loopback(options.host) and options.api_key is None:
        raise UsageError(
            f"--host {options.host} can be reached from other machines, and there is no key",
            code="bad-key",
            hint="--api-key-file F, with a key in the file; or leave out --host to serve this machine alone",
        )


def allowed_hosts(options: ServeOptions) -> frozenset[str] | None:
    """Values of the Host header that are served: the own addresses with the port, and those that were allowed.

    None for all of them: where a server listens on every address its names are not known, and the key protects it.
    """
    if is_everywhere(options.host) and not options.allowed_hosts:
        return None
    own = options.host.strip("[]")
    names = [*LOOPBACK, f"[{own}]" if ":" in own else own]
    found = {f"{name}:{options.port}".lower() for name in names}
    if options.port == 80:
        found |= {name.lower() for name in names}
    for name in options.allowed_hosts:
        found |= {name.lower(), f"{name}:{options.port}".lower()}
    return frozenset(found)


def host_of_origin(origin: str) -> str | None:
    """The host and port of an Origin header; None where it is no page's, like `null`."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return None
    return parts.netloc.lower() if parts.scheme in ("http", "https") and parts.netloc else None
