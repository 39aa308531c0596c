"""Writes docs/settings.md from the records themselves, so that the two never differ (a test compares them)."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from elman.tasks.reference import Setting, all_settings, explain_settings

PLACE = Path(__file__).with_name("settings.md")

HEAD = """\
# Settings

<!-- made by docs/make_settings.py from the program itself; `make docs` makes it again -->

What `--set KEY=VALUE` takes, and a recipe in its tables `[data]`, `[model]`, `[train]` and `[count]`. `elman settings PATTERN`
prints the same. Where no default is given, none is set, or it is chosen by the data and the time and said when it is. A setting
that cannot apply is an error, and so is one that does not exist.
"""
TITLES = {
    "data": "How data is read and becomes tokens.",
    "model": "What a model is made of. Behind a task, in brackets, are its models that have the setting; without, all have it.",
    "train": "How nets are trained. Models that count (`uniform` to `snm`) have none of these.",
    "count": "Which engine counts (docs/scale.md). Nets have none of these.",
    "explain": "What `elman explain --kind K --set KEY=VALUE` takes (`explain.` may be left out); behind each, its kinds.",
}


def render() -> str:
    """The whole page."""
    parts = [HEAD]
    for section, settings in groupby([*all_settings(), *explain_settings()], key=lambda one: one.key.partition(".")[0]):
        parts.append(
            f"## {section}\n\n{TITLES[section]}\n\n| key | meaning | values | default | for |\n|---|---|---|---|---|\n"
        )
        parts[-1] += "\n".join(map(_row, settings)) + "\n"
    return "\n".join(parts)


def _row(one: Setting) -> str:
    cells = (f"`{one.key}`", one.meaning, one.values, f"`{one.default}`" if one.default else "", ", ".join(one.owners))
    return f"| {' | '.join(cell.replace('<unk>', '`<unk>`') for cell in cells)} |"


if __name__ == "__main__":
    PLACE.write_text(render(), encoding="utf-8")
