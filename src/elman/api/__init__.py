"""The text level: models that take and give text. What the command line does, Python can do with these."""

from elman.api.make import import_arpa, mix, train
from elman.api.model import Model, Score, load
from elman.api.nets import resume

__all__ = ["Model", "Score", "import_arpa", "load", "mix", "resume", "train"]
