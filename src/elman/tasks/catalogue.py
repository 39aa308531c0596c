"""The list of tasks. A new one is a folder and a line here; nothing is imported before it is asked for."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, NamedTuple

from elman import store
from elman.core.errors import DataError, no_such
from elman.tasks.base import Task, TaskModel


class Entry(NamedTuple):
    """Where a task is, and what it is for."""

    module: str
    name: str  # of its class
    what: str


TASKS = {
    "lm": Entry("elman.tasks.lm.task", "LmTask", "a language model"),
    "masked": Entry("elman.tasks.masked.task", "MaskedTask", "hidden words, from both sides"),
    "bilm": Entry("elman.tasks.bilm.task", "BilmTask", "a forward and a backward language model"),
    "seq2seq": Entry("elman.tasks.seq2seq.task", "Seq2SeqTask", "pairs of a source and a target"),
    "tag": Entry("elman.tasks.tag.task", "TagTask", "words with tags"),
    "classify": Entry("elman.tasks.classify.task", "ClassifyTask", "texts with labels"),
    "qa": Entry("elman.tasks.qa.task", "QaTask", "questions about texts"),
}


def find_task(name: str) -> Task[Any]:
    """The task of that name."""
    if name not in TASKS:
        raise no_such("task", name, TASKS)
    entry = TASKS[name]
    task: Task[Any] = getattr(importlib.import_module(entry.module), entry.name)()
    return task


def load_model(directory: Path, *, verify: bool = True) -> TaskModel[Any]:
    """The model in a directory, whatever it is for."""
    name = store.task_of(directory, verify=verify)
    if name not in TASKS:
        raise DataError(
            f"{directory} holds a model for {name!r}, which this version has not",
            code="other-version",
            hint="upgrade elman",
        )
    return find_task(name).load(directory, verify=verify)
