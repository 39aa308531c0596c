"""The text level: models that take and give text. What the command line does, Python can do with these."""

from elman.api.make import import_arpa, load, load_language_model, resume, train
from elman.api.mixing import mix
from elman.api.model import Model, Score
from elman.api.tasks import TaskModel

__all__ = ["Model", "Score", "TaskModel", "import_arpa", "load", "load_language_model", "mix", "resume", "train"]
