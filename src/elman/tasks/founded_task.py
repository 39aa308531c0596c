"""Tasks whose nets may begin with the words and cells of a trained language model (`--init DIR`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from elman.core.errors import UsageError
from elman.tasks.base import A, H, NetTask, R, TrainRequest
from elman.tasks.foundation import Foundation, Given
from elman.text.units.tokenizer import Tokenizer


class FoundedTask(NetTask[R, A, H]):
    """A task whose net reads texts with an encoder that a language model can have trained before."""

    flags = frozenset({"init"})
    takes_foundation = True
    foundation_units: ClassVar[tuple[str, ...]] = (
        "space",
        "word",
    )  # of a foundation whose symbols are ours; any, if empty

    def complete(self, request: TrainRequest) -> TrainRequest:
        """The sizes of words and cells are those of the foundation; what it has settled cannot be set."""
        if request.init is None:
            return request
        base = read_foundation(request.init)
        units = base.tokenizer.units
        if self.foundation_units and units not in self.foundation_units:
            raise UsageError(
                f"{base.name} reads {units} units, and the words of {self.name} are not its symbols",
                code="base-mismatch",
                hint=f"train one with --units {' or '.join(self.foundation_units)}",
            )
        given = request.settings
        if given["model"].get("vectors") is not None:
            raise UsageError(
                "model.vectors and --init both give words their vectors",
                code="options-conflict",
                hint="leave one of them out",
            )
        model = settle("model", given["model"], self.settled_model(base, given["model"]), base)
        if "layers" not in model and len(base.onward) > 1 and base.reads_both == is_bidirectional(model):
            model["layers"] = len(base.onward)
        settled = self.settled_data(base, given["data"])
        if base.tokenizer.normalize != "none":
            settled["normalize"] = base.tokenizer.normalize
        data = settle("data", given["data"], settled, base)
        return replace(request, settings={**given, "model": model, "data": data})

    def settled_model(self, base: Foundation, given: Mapping[str, Any]) -> dict[str, Any]:
        """What the net's sizes have to be."""
        cells = {"family": base.family, "hidden": base.hidden} if base.onward else {}
        return {"embedding": base.embedding, **cells}

    def settled_data(self, base: Foundation, given: Mapping[str, Any]) -> dict[str, Any]:
        """How texts have to be read."""
        return {}

    def foundation_parts(self, net: Any) -> tuple[Any, Any]:
        """The words and the layers of a net that a foundation is copied into."""
        return net.encoder.embedding, net.encoder.stack


def read_foundation(directory: Path) -> Foundation:
    """What the model in a directory gives to others."""
    from elman.tasks.catalogue import load_model

    return load_model(directory).foundation()


def foundation_of(request: TrainRequest) -> Foundation | None:
    """The one that was asked for."""
    return None if request.init is None else read_foundation(request.init)


def foundation_words(base: Foundation | None, *, lower_case: bool = False) -> Iterable[str]:
    """Its words: all of them are known, seen in training or not."""
    return () if base is None else base.word_rows(lower_case=lower_case)


def give(base: Foundation | None, words: Tokenizer, *, lower_case: bool = False) -> Given | None:
    """A foundation for a net that knows these words."""
    return None if base is None else Given(base, base.rows_for(words.tokens, lower_case=lower_case))


def settle(section: str, given: Mapping[str, Any], settled: Mapping[str, Any], base: Foundation) -> dict[str, Any]:
    """The settings with those that a foundation has settled; an error for one that says otherwise."""
    for key, value in settled.items():
        if str(given.get(key, value)).lower() not in (str(value).lower(), "auto"):
            raise UsageError(
                f"{section}.{key}={given[key]} does not fit {base.name}, where it is {value}",
                code="base-mismatch",
                hint="leave it out, or train without --init",
            )
    return {**given, **settled}


def is_bidirectional(model: Mapping[str, Any]) -> bool:
    """Whether a net with these settings reads from both sides."""
    return str(model.get("bidirectional", True)).lower() != "false"
