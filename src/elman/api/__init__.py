"""The text level: models that take and give text. What the command line does, Python can do with these."""

from elman.api.make import import_arpa, load, load_language_model, resume, train
from elman.tasks.base import TaskModel
from elman.tasks.lm.mixing import mix
from elman.tasks.lm.model import Model, Score

__all__ = ["Model", "Score", "TaskModel", "import_arpa", "load", "load_language_model", "mix", "resume", "train"]
