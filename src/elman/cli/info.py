"""`elman info`: what a model is, how it was made, its numbers."""

from __future__ import annotations

from elman.cli import terminal
from elman.cli.options import Json, ModelDirectory, NoVerify
from elman.cli.verb import examples


@examples(
    "elman info my-model",
    "elman info my-model --json",
)
def info(directory: ModelDirectory, json: Json = False, no_verify: NoVerify = False) -> None:
    """Say what a model is, how it was made, and its numbers."""
    from elman.api import load

    found = load(directory, verify=not no_verify).info()
    if json:
        terminal.print_json(found)
        return
    flat = {key: value for key, value in found.items() if not isinstance(value, dict | list)}
    flat |= {f"model.{key}": value for key, value in found["settings"].items() if key != "members"}
    valid = found["valid"] or {}
    flat |= {f"valid.{key}": value for key, value in valid.items() if key not in terminal.TABLES}
    terminal.print_record(flat)
    for note in found["notes"]:
        print(f"note  {terminal.escape(note)}")
    terminal.print_tables(valid)
