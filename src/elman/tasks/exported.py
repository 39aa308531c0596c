"""A trained model as other programs run it: graphs, and all that belongs to them. Knows no format and needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elman.core.errors import UsageError

if TYPE_CHECKING:
    from elman.nets.graphs import NetGraphs


EXAMPLE = '''\
"""{purpose}

Needs onnxruntime, numpy and tokenizers.
"""

{modules}
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

here = Path(__file__).parent
facts = json.loads((here / "export.json").read_text(encoding="utf-8"))
{body}'''


def example_program(purpose: str, body: str, *, modules: Sequence[str] = ()) -> str:
    """A program that runs without elman. `body` finds the facts of the export in `facts`, its files in the folder `here`."""
    imports = "\n".join(f"import {module}" for module in sorted({"json", "sys", *modules}))
    return EXAMPLE.format(purpose=purpose, modules=imports, body=body)


@dataclass(frozen=True)
class Exported:
    """The graphs of a model and what is written beside them."""

    net: NetGraphs
    files: Mapping[str, bytes]  # its tokenizers, by name
    example: str  # a Python program that uses the graphs and the files
    facts: Mapping[str, Any] = field(default_factory=dict)  # what a program has to know besides, as the labels


class Exports:
    """A model that can be given to other programs, as far as it says so."""

    record: Any
    directory: Path | None

    def exported(self) -> Exported:
        """Its graphs, its vocabulary and an example; an error where it has none."""
        raise UsageError(
            f"{self.directory or 'this'} holds a model for {self.record.task}, which has no graphs to export",
            code="not-for-this-model",
            hint="lm, masked, seq2seq, tag and classify have",
        )
