"""Looking inside a trained model: one file a kind of explanation, and the list of them.

    explain([model], ["the cat sat"], kind="surprisal") -> Explanation

A kind knows models only by what they can do (`Explainable`): read a text with recording on, give its words, its nets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from elman.core.errors import UsageError, no_such
from elman.core.settings import make
from elman.explain.explanation import Explanation
from elman.explain.kind import Explainable, Kind

# Where each is defined. They are imported when they are asked for: most need torch.
KINDS: dict[str, str] = {
    "surprisal": "elman.explain.surprisal.Surprisal",
    "counts": "elman.explain.counts.Counts",
    "gradients": "elman.explain.gradients.Gradients",
    "reach": "elman.explain.reach.Reach",
    "attention": "elman.explain.attention.Attention",
    "saliency": "elman.explain.saliency.Saliency",
    "gates": "elman.explain.states.Gates",
    "states": "elman.explain.states.States",
    "neighbours": "elman.explain.neighbours.Neighbours",
    "analogy": "elman.explain.analogy.Analogy",
    "map": "elman.explain.map.WordMap",
    "cloze": "elman.explain.cloze.Cloze",
    "novelty": "elman.explain.novelty.Novelty",
}

MAX_CHARACTERS = 200_000  # of all texts together: some 40,000 words


def kind_named(name: str, report: Callable[[float], None] = lambda share: None) -> Kind[Any]:
    """A kind of explanation by its name. report: is told how much is done, of one that takes long."""
    if name not in KINDS:
        raise no_such("kind of explanation", name, list(KINDS))
    module, _, class_name = KINDS[name].rpartition(".")
    found: Kind[Any] = getattr(import_module(module), class_name)(report)
    return found


def explain(
    models: Sequence[Explainable],
    texts: Sequence[str],
    *,
    kind: str | None = None,
    options: Mapping[str, Any] | None = None,
    report: Callable[[float], None] = lambda share: None,
) -> Explanation:
    """An explanation of what models do with texts; without a kind, the one that says most for the first model and text.

    texts: at most MAX_CHARACTERS together. options: settings of the kind; those it does not have are refused. report: is
    told how much is done, from 0 to 1, of a kind that takes long.
    """
    name = kind or _usual(models[0], texts)
    chosen = kind_named(name, report)
    for model in models:
        if name not in model.kinds():
            where = model.directory or "this"
            raise UsageError(
                f"{where} holds a model that has no {name}",
                code="not-for-this-model",
                hint=f"it has {', '.join(model.kinds()) or 'nothing to show'}",
            )
    if len(models) > 1 and not chosen.compares:
        raise UsageError(f"{name} explains one model at a time", code="does-not-apply", hint="give one DIR")
    if not texts and chosen.needs_text:
        raise UsageError(
            f"{name} needs a text", code="missing-option", hint="give one behind the model, in quotation marks"
        )
    characters = sum(len(text) for text in texts)
    if characters > MAX_CHARACTERS:
        raise UsageError(
            f"a text of {characters:,} characters is too long to look inside",
            code="unsuitable-text",
            hint=f"give a part of it, at most {MAX_CHARACTERS:,} characters",
        )
    return chosen.explain(models, list(texts), make(chosen.options, options or {}, section="explain"))


def _usual(model: Explainable, texts: Sequence[str]) -> str:
    kinds = model.kinds(texts[0] if texts else "")
    if not kinds:
        raise UsageError(f"{model.directory or 'this'} holds a model with nothing to show", code="not-for-this-model")
    return kinds[0]
