"""A model as a person meets it in Python: one line in a terminal, a table and the curve of its training in a notebook."""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path
from typing import Any

from elman import store

SHOWN_NUMBERS = 2  # in the one line: those that `evaluate` puts first say most


class Shown:
    """What every model shows of itself."""

    record: Any
    directory: Path | None

    def vocabulary(self) -> str:
        """What it knows: symbols, words, labels."""
        return ""

    def __repr__(self) -> str:
        numbers = [
            f"{key} {value:.4g}"
            for key, value in self._numbers().items()
            if isinstance(value, float) and not key.endswith(("_low", "_high"))  # bounds of the number before them
        ]
        parts = [self._kind(), self.vocabulary(), *numbers[:SHOWN_NUMBERS]]
        place = f" in {self.directory}" if self.directory else ""
        return f"<{type(self).__name__}: {', '.join(part for part in parts if part)}{place}>"

    def _repr_html_(self) -> str:
        """For notebooks: what it is, its numbers, and the curve of its training where there is one."""
        record = self.record
        rows: dict[str, Any] = {"task": self._kind(), "knows": self.vocabulary(), "seconds": record.seconds}
        rows |= self._numbers()
        cells = "".join(
            f"<tr><th style='text-align:left'>{escape(key)}</th><td>{escape(_written(value))}</td></tr>"
            for key, value in rows.items()
            if value not in (None, "")
        )
        return f"<table><caption>{escape(str(self.directory or 'not saved'))}</caption>{cells}</table>{self._curve()}"

    def _kind(self) -> str:
        return " ".join(part for part in (self.record.task, getattr(self.record.model, "family", "")) if part)

    def _numbers(self) -> dict[str, Any]:
        """On the held-out data; tables and lists left out."""
        return {key: value for key, value in (self.record.valid or {}).items() if not isinstance(value, dict | list)}

    def _curve(self) -> str:
        """As an image: a picture from somebody else's model directory runs no script there."""
        path = None if self.directory is None else self.directory / store.CURVES
        if path is None or not path.is_file():
            return ""
        data = base64.b64encode(path.read_bytes()).decode()
        return f"<img alt='curves of the training' src='data:image/svg+xml;base64,{data}'/>"


def _written(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4f}"
