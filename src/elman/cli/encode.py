"""`elman encode`: a vector for each line, and the lines nearest to a text."""

from __future__ import annotations

import json as json_
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from elman.cli import terminal
from elman.cli.options import Errors, ModelDirectory, NoVerify, OverwriteFile, Threads
from elman.cli.verb import examples
from elman.core.errors import UsageError

if TYPE_CHECKING:
    from elman.core.arrays import Array

DIGITS = 6  # of a number that is printed
NEAREST = 10  # lines that are printed


@examples(
    "elman encode my-model lines.txt --out lines.npy",
    "elman encode my-model lines.txt --near 'a text like these'",
)
def encode(
    context: typer.Context,
    directory: ModelDirectory,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The lines; - or nothing is stdin.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="F", help="F.npy: an array, a row a line; F.jsonl: an object a line."),
    ] = None,
    layer: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="0 is the words. [default: the highest layer]")
    ] = None,
    pool: Annotated[
        Literal["last", "mean", "max"] | None,
        typer.Option(
            metavar="P", help="How the tokens of a line become one vector: last, mean or max. [default: mean]"
        ),
    ] = None,
    per_token: Annotated[bool, typer.Option("--per-token", help="A vector for each token instead; JSON only.")] = False,
    near: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Print the lines nearest to TEXT: cosine, number, line.")
    ] = None,
    k: Annotated[
        int | None, typer.Option("--k", min=1, metavar="N", help="With --near: so many lines. [default: 10]")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
    errors: Errors = None,
    overwrite: OverwriteFile = False,
    threads: Threads = None,
    no_verify: NoVerify = False,
) -> None:
    """Give each line a vector: what a net's layers make of its tokens, in one.

    Without --out the numbers are printed, tab-separated, a line for a line. An empty line has zeros.
    """
    if file is None and terminal.is_typed():
        terminal.show_help(context)
    _check_together(
        {"--out": out is not None, "--near": near is not None, "--per-token": per_token, "--json": json}
        | {"--pool": pool is not None, "--k": k is not None, "--overwrite": overwrite}
    )
    if out is None:
        terminal.require_stdout()
    else:
        _check_output(out, per_token=per_token, overwrite=overwrite)
    pool = pool or "mean"
    terminal.limit_threads(threads)
    from elman.api import TaskModel, load

    model: TaskModel[Any] = load(directory, verify=not no_verify)
    found = model.encode_lines(
        ["-" if file is None else str(file)], layer=layer, pool=None if per_token else pool, errors=errors
    )
    if near is not None:
        _print_nearest(found, near, model.encode(near, layer=layer, pool=pool), count=k or NEAREST, json=json)
    elif out is not None:
        number, width = _write(found, out, per_token=per_token)
        terminal.say(f"wrote {out}: {number:,} lines, {width:,} numbers a {'token' if per_token else 'line'}")
    else:
        for line, vector in found:
            if json:
                terminal.print_json(_record(line, vector))
            else:
                print("\t".join(f"{value:.{DIGITS}g}" for value in vector.tolist()))


def _check_together(given: dict[str, bool]) -> None:
    """Refuse flags that could not apply, before a model is loaded."""
    for flag, other in (("--near", "--out"), ("--near", "--per-token"), ("--per-token", "--pool"), ("--out", "--json")):
        if given[flag] and given[other]:
            raise UsageError(
                f"{flag} and {other} do not go together", code="options-conflict", hint=f"leave out {other}"
            )
    for flag, needed in (("--k", "--near"), ("--overwrite", "--out")):
        if given[flag] and not given[needed]:
            raise UsageError(f"{flag} is for {needed}", code="options-conflict", hint=f"leave it out, or give {needed}")
    if given["--per-token"] and not (given["--json"] or given["--out"]):
        raise UsageError("--per-token is for JSON", code="options-conflict", hint="add --json, or --out F.jsonl")


def _check_output(out: Path, *, per_token: bool, overwrite: bool) -> None:
    """Refuse a file that could not be written, before a model is loaded."""
    if out.suffix not in (".npy", ".jsonl"):
        raise UsageError(
            f"{out} is neither .npy nor .jsonl",
            code="bad-value",
            hint="the end of its name says how vectors are written",
        )
    if per_token and out.suffix == ".npy":
        raise UsageError(
            "--per-token is for JSON: lines have different numbers of tokens",
            code="options-conflict",
            hint="--out F.jsonl",
        )
    from elman.core.outputs import check_output

    check_output(out, overwrite=overwrite)


def _write(found: Iterator[tuple[str, Array]], out: Path, *, per_token: bool) -> tuple[int, int]:
    """All vectors in one file, whole or not at all. -> how many lines, and how wide they are"""
    import numpy as np

    from elman.core.outputs import open_output

    number, width = 0, 0
    with open_output(out, overwrite=True) as file:
        if out.suffix == ".npy":
            rows = [vector for _, vector in found]
            number, width = len(rows), len(rows[0]) if rows else 0
            array = np.array(rows, dtype=np.float32).reshape(number, width)
            # np.save would say of a full disk only how many bytes it lacks
            np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
            file.write(array.data)
        else:
            for line, vector in found:
                number, width = number + 1, vector.shape[-1]
                file.write(json_.dumps(_record(line, vector), ensure_ascii=False).encode() + b"\n")
    return number, width


def _record(line: str, vector: Array) -> dict[str, Any]:
    """A line and its vector, or its tokens' vectors."""
    if vector.ndim == 1:
        return {"text": line, "vector": _rounded(vector)}
    return {"text": line, "vectors": [_rounded(row) for row in vector]}


def _rounded(vector: Array) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in vector.tolist()]


def _print_nearest(found: Iterator[tuple[str, Array]], text: str, query: Array, *, count: int, json: bool) -> None:
    """The lines most like a text, the nearest first."""
    import numpy as np

    from elman.tasks.encoding import nearest

    lines, vectors = [], []
    for line, vector in found:
        lines.append(line)
        vectors.append(vector)
    if not query.any():
        raise UsageError(
            f"there is nothing to look for in {text!r}", code="unsuitable-text", hint="give --near a text with words"
        )
    for row, similarity in nearest(np.array(vectors).reshape(len(lines), -1), query, count) if lines else ():
        if json:
            terminal.print_json({"similarity": round(similarity, DIGITS), "line": row + 1, "text": lines[row]})
        else:
            print(f"{similarity:.4f}\t{row + 1}\t{terminal.escape_if_terminal(lines[row])}")
