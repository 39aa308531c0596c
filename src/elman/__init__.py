"""Language models and sequence models from counts to attention, on your own sequences and your own machine.

model = elman.train("lm", "corpus.txt", out="my-model", model="mkn")
model = elman.load("my-model")
model.next("the cat sat on the", k=5)        # [("mat", 0.31), ...]
model.generate("the cat", tokens=20, seed=1)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "ElmanError",
    "EvaluateOptions",
    "Model",
    "PredictOptions",
    "Score",
    "TaskModel",
    "__version__",
    "compare",
    "import_arpa",
    "import_hf",
    "load",
    "mix",
    "resume",
    "texts",
    "train",
]

if TYPE_CHECKING:
    from elman.api import (
        EvaluateOptions,
        Model,
        PredictOptions,
        Score,
        TaskModel,
        import_arpa,
        import_hf,
        load,
        mix,
        resume,
        texts,
        train,
    )
    from elman.compare import compare as compare
    from elman.core.errors import ElmanError


def __getattr__(name: str) -> Any:
    """The public names, imported when they are first asked for: `import elman` itself costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module 'elman' has no attribute {name!r}")
    if name == "ElmanError":
        from elman.core.errors import ElmanError

        return ElmanError
    if name == "compare":  # a room that can be called
        return import_module("elman.compare")
    from elman import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted(__all__)
