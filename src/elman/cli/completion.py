"""What a shell can complete: tasks, models, recipes, units. Nothing is imported before somebody presses the key."""

from __future__ import annotations

import typer


def complete_task(incomplete: str) -> list[tuple[str, str]]:
    """Tasks, and what each is for."""
    from elman.tasks.catalogue import TASKS

    return [(name, entry.what) for name, entry in TASKS.items() if name.startswith(incomplete)]


def complete_model(context: typer.Context, incomplete: str) -> list[str]:
    """The models of the task that stands before; of all tasks, if it is none."""
    from elman.tasks.catalogue import TASKS, find_task

    given = [word for word in (context.params.get("task"), *context.args) if word in TASKS]  # a half line is not parsed
    names = [model for task in given[:1] or TASKS for model in find_task(task).model_names()]
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def complete_recipe(incomplete: str) -> list[str]:
    """Recipes that are shipped."""
    from elman.core.settings import recipes

    return [name for name in recipes() if name.startswith(incomplete)]


def complete_units(incomplete: str) -> list[str]:
    """Kinds of units."""
    from elman.text.settings import UNITS

    return [name for name in UNITS if name.startswith(incomplete)]


def complete_setting(incomplete: str) -> list[str]:
    """Keys of --set."""
    from elman.tasks.reference import all_settings

    keys = dict.fromkeys(one.key for one in all_settings())
    return [f"{key}=" for key in keys if key.startswith(incomplete)]


def complete_kind(incomplete: str) -> list[str]:
    """Kinds of explanations."""
    from elman.explain import KINDS

    return [name for name in KINDS if name.startswith(incomplete)]


def complete_compared(context: typer.Context, incomplete: str) -> list[str]:
    """Names of models behind the last comma."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in complete_model(context, last)]
