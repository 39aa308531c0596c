"""`elman export`: a model in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from elman.cli import terminal
from elman.cli.options import Json, ModelDirectory, NoVerify
from elman.cli.verb import examples

Format = Literal["arpa", "int8", "onnx"]


@examples(
    "elman export my-model --format arpa --out model.arpa",
    "elman export my-lstm --format int8 --out my-lstm-int8",
    "elman export my-lstm --format onnx --out my-lstm-onnx --json",
)
def export(
    directory: ModelDirectory,
    kind: Annotated[
        Format,
        typer.Option(
            "--format",
            metavar="arpa|int8|onnx",
            help="arpa: a file of n-grams for KenLM, SRILM and others. "
            "int8: a model directory with 8-bit weights in its recurrent nets, smaller and faster. "
            "onnx: a directory of graphs for onnxruntime, with a program that uses them.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="PATH",
            help="The file or directory to write. arpa: - is stdout, .gz is compressed.",
            show_default=False,
        ),
    ],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    json: Json = False,
    no_verify: NoVerify = False,
) -> None:
    """Write a model in another format: for other tools, or smaller."""
    from elman.core.outputs import STDOUT

    more: dict[str, object] = {}
    match kind:
        case "arpa":
            _write_arpa(directory, out, overwrite=overwrite, verify=not no_verify)
        case "int8":
            _write_int8(directory, out, overwrite=overwrite, verify=not no_verify)
        case "onnx":
            more = _write_onnx(directory, out, overwrite=overwrite, verify=not no_verify)
    if str(out) == STDOUT:
        return
    num_bytes = sum(path.stat().st_size for path in ([out] if out.is_file() else out.iterdir()))
    terminal.say(f"wrote {out} ({terminal.size(num_bytes)})")
    if json:
        terminal.print_json({"path": str(out), "format": kind, "bytes": num_bytes, **more})


def _write_arpa(directory: Path, out: Path, *, overwrite: bool, verify: bool) -> None:
    from elman.api import load_language_model
    from elman.core.outputs import check_output

    check_output(out, overwrite=overwrite)
    model = load_language_model(directory, verify=verify)
    with terminal.status(f"writing {out}"):
        model.export(out, overwrite=overwrite)


def _write_int8(directory: Path, out: Path, *, overwrite: bool, verify: bool) -> None:
    from elman.api import load

    with terminal.status(f"writing {out}"):
        load(directory, verify=verify).to_int8().save(out, overwrite=overwrite)


def _write_onnx(directory: Path, out: Path, *, overwrite: bool, verify: bool) -> dict[str, object]:
    """-> what is told of it in JSON"""
    from elman.api import load
    from elman.export.onnx import EXAMPLE, export_onnx

    with terminal.status(f"writing {out}"):
        checked = export_onnx(load(directory, verify=verify), out, overwrite=overwrite)
    terminal.say(f"{checked.steps:,} steps in onnxruntime differ from the model by {checked.difference:.2g} at most")
    terminal.say(f"try it: python {out / EXAMPLE}")
    return {"steps": checked.steps, "largest_difference": checked.difference}
