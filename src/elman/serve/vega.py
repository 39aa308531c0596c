"""Vega, Vega-Lite and their expression interpreter as one script for the studio, as vl-convert ships them.

Made of vl-convert's own copy, without any network; that takes two seconds, so the script is kept in the user's cache.
"""

from __future__ import annotations

import contextlib
from functools import cache
from importlib import metadata

from elman.core.errors import ElmanError
from elman.core.files import write_bytes
from elman.core.verified import user_cache

SNIPPET = "window.vegaEmbed = vegaEmbed;"


@cache
def vega_script() -> bytes:
    """The script. It defines `window.vegaEmbed`, and runs no code that is made of text if it is called with `ast: true`."""
    path = user_cache() / f"vega-{metadata.version('vl-convert-python')}.js"
    with contextlib.suppress(OSError):
        return path.read_bytes()
    import vl_convert

    script: bytes = vl_convert.javascript_bundle(SNIPPET).encode()
    with contextlib.suppress(OSError, ElmanError):  # without a cache it is made again the next time
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, script)
    return script
