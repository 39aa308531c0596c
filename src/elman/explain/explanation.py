"""An explanation: what was found, and the same as a picture, as a drawing for a terminal and as text."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from elman import pictures
from elman.core.errors import UsageError
from elman.core.outputs import check_output, open_output

BLOCKS = " ▁▂▃▄▅▆▇█"
LONGEST_TOKEN = 40  # characters of a token in a picture or drawing


@dataclass(frozen=True)
class Span:
    """A piece of a line on a terminal. shade: from -1 (blue) over 0 (none) to 1 (orange)."""

    text: str
    shade: float = 0.0


Line = Sequence[Span]


@dataclass(frozen=True, repr=False)
class Explanation:
    """What was found (`data`, as JSON), a picture of it (Vega-Lite) and a drawing (lines for a terminal)."""

    kind: str
    title: str
    data: dict[str, Any]
    picture: pictures.Spec
    drawing: Sequence[Line]
    notes: Sequence[str] = ()

    def __repr__(self) -> str:
        return f"<Explanation: {self.kind}, {self.title}>"

    def __str__(self) -> str:
        return "\n".join("".join(span.text for span in line).rstrip() for line in self.drawing)

    def to_dict(self) -> dict[str, Any]:
        """Everything that was found, ready for JSON."""
        return {"kind": self.kind, "title": self.title, **self.data, "notes": list(self.notes)}

    def to_json(self) -> str:
        """`to_dict` as text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    def to_svg(self) -> str:
        """The picture, as SVG."""
        return pictures.render(self.picture, ".svg").decode()

    def to_png(self) -> bytes:
        """The picture, as PNG."""
        return pictures.render(self.picture, ".png")

    def to_html(self) -> str:
        """A page by itself, without scripts: the picture, what is worth knowing, and what was found as JSON inside."""
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        data = self.to_json().replace("<", "\\u003c")
        return (
            f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(self.title)}</title>"
            f"<style>{STYLE}</style><h1>{escape(self.title)}</h1>{notes}<figure>{self.to_svg()}</figure>"
            f'<script type="application/json">{data}</script></html>'
        )

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write it into a file; the end of its name says how: .html, .png, .svg or .json."""
        path = Path(path)
        check_path(path, overwrite=overwrite)
        match path.suffix:
            case ".json":
                content = self.to_json().encode() + b"\n"
            case ".html":
                content = self.to_html().encode()
            case ".svg":
                content = self.to_svg().encode()
            case _:
                content = self.to_png()
        with open_output(path, overwrite=overwrite) as file:
            file.write(content)

    def _repr_html_(self) -> str:
        """For notebooks: the picture as an image, and the notes."""
        image = base64.b64encode(self.to_svg().encode()).decode()
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return f"<img alt='{escape(self.title)}' src='data:image/svg+xml;base64,{image}'/>{notes}"


STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#222;background:#fff}"
    "h1{font-size:1.3rem}figure{margin:0;overflow-x:auto}p{color:#555}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}p{color:#aaa}figure{background:#fff;border-radius:6px}}"
)


def check_path(path: Path, *, overwrite: bool) -> None:
    """Refuse a file that no explanation can be written into, before there is one."""
    if path.suffix not in pictures.FORMATS:
        raise UsageError(
            f"cannot write an explanation into {path}",
            code="bad-value",
            hint=f"its name ends in {', '.join(pictures.FORMATS)}",
        )
    check_output(path, overwrite=overwrite)


def bar(share: float, width: int = 20) -> str:
    """A bar so long, of blocks; share is from 0 to 1."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]


def column(share: float) -> str:
    """One character so high; share is from 0 to 1."""
    return BLOCKS[round(max(0.0, min(1.0, share)) * 8)]


def shorten(text: str, width: int) -> str:
    """A text that may be of any length, cut to so many characters."""
    return text if len(text) <= width else text[: width - 1] + "…"


def shown(token: str) -> str:
    """A token so that spaces and ends can be seen; a very long one is cut."""
    token = shorten(token, LONGEST_TOKEN)
    return token.replace(" ", "·").replace("\n", "↵").replace("\t", "→") or "∅"
