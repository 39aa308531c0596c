"""`elman predict`: a line in, a line out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elman.cli import answers, terminal
from elman.cli.options import ModelDirectory, NoVerify
from elman.core.errors import UsageError

if TYPE_CHECKING:
    from elman.tasks.seq2seq.model import SearchOptions, Translation, Translator


def predict(
    context: typer.Context,
    directory: ModelDirectory,
    file: Annotated[Path | None, typer.Argument(help="The sources; - or nothing is stdin.", show_default=False)] = None,
    beam: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="A beam so wide; 1 is greedy. [default: 5]")
    ] = None,
    n_best: Annotated[
        int | None, typer.Option("--n-best", min=1, metavar="N", help="So many for each: number, text, nats.")
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="A", help="Nats are divided by ((5 + length) / 6)^A. [default: 0.6]"),
    ] = None,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="What every target begins with.")] = "",
    max_tokens: Annotated[int | None, typer.Option(min=1, metavar="N", help="Of a target, at most.")] = None,
    alignments: Annotated[
        bool, typer.Option("--alignments", help="Behind each text where attention looked: source-target places.")
    ] = False,
    keep_unknown: Annotated[
        bool, typer.Option("--keep-unknown", help="Write <unk> instead of copying the word that attention looked at.")
    ] = False,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Cut sources that are too long, and count them.")
    ] = False,
    as_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="F",
            help="tag: lines, conllu, columns or jsonl. [default: looks at FILE; stdin is lines]",
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object a line, with probabilities or attention.")
    ] = False,
    no_verify: NoVerify = False,
) -> None:
    """Write an answer for every line, in order, as soon as it is there: a translation, tags, a line with its gaps filled.

    Of files with a word and its tags a line, all is written as it was, with the tags in their column.
    """
    if file is None and sys.stdin.isatty():
        terminal.show_help(context)
    from elman.api import load
    from elman.tasks.classify.model import Classifier
    from elman.tasks.masked.task import Restorer
    from elman.tasks.qa.answerer import Answerer
    from elman.tasks.seq2seq.model import BEAM, LENGTH_PENALTY, SearchOptions, Translator
    from elman.tasks.tag.model import Tagger

    model = load(directory, verify=not no_verify)
    source = "-" if file is None else str(file)
    if not isinstance(model, Translator):
        given = {"--n-best": n_best, "--length-penalty": length_penalty, "--prefix": prefix}
        given |= {"--max-tokens": max_tokens, "--alignments": alignments, "--keep-unknown": keep_unknown}
        answers.refuse(model.record.task, {**given, "--truncate": truncate})
        if not isinstance(model, Answerer):
            answers.refuse(model.record.task, {"--beam": beam})
        if isinstance(model, Classifier):
            answers.refuse(model.record.task, {"--format": as_format})
            answers.print_labels(model, source, json=json)
            return
        if isinstance(model, Answerer):
            answers.refuse(model.record.task, {"--format": as_format})
            answers.print_answers(model, source, json=json, beam=beam)
            return
        if isinstance(model, Tagger):
            answers.print_tags(model, source, as_format=as_format, json=json)
            return
        if isinstance(model, Restorer):
            answers.refuse(model.record.task, {"--format": as_format})
            answers.print_filled(model, source, json=json)
            return
        raise UsageError(f"{directory} holds a model for {model.record.task}, which writes no targets")
    answers.refuse(model.record.task, {"--format": as_format})
    options = SearchOptions(
        beam=beam or max(BEAM, n_best or 1),
        n_best=n_best or 1,
        length_penalty=LENGTH_PENALTY if length_penalty is None else length_penalty,
        prefix=prefix,
        max_tokens=max_tokens,
        copies_unknown=not keep_unknown,
        with_attention=(json and model.config.context == "attention") or alignments,
        truncates=truncate,
    )
    _predict(model, source, options, json=json, alignments=alignments, has_n_best=bool(n_best))


def _predict(
    model: Translator, source: str, options: SearchOptions, *, json: bool, alignments: bool, has_n_best: bool
) -> None:
    number = num_cut = 0
    for lines, found in model.translate_lines([source], options):
        for line, translations in zip(lines, found, strict=True):
            number += 1
            num_cut += any(one.is_cut for one in translations)
            if json:
                predictions = [_record(one) for one in translations]
                terminal.print_json({"source": line, "predictions": predictions})
                continue
            for one in translations:
                columns = [str(number), one.text, f"{one.nats:.4f}"] if has_n_best else [one.text]
                print("\t".join([*columns, _alignment(one)] if alignments else columns))
        sys.stdout.flush()
    if num_cut:
        terminal.say(f"{num_cut:,} of {number:,} sources were cut")


def _record(found: Translation) -> dict[str, Any]:
    record: dict[str, Any] = {"text": found.text, "nats": found.nats, "tokens": list(found.tokens)}
    if found.attention is not None:
        rows = [[round(weight, 4) for weight in row] for row in found.attention.tolist()]
        record |= {"source_tokens": list(found.source_tokens), "attention": rows}
    return record


def _alignment(found: Translation) -> str:
    """The source place that attention looked at most for each target token, as aligners write it: 0-0 2-1."""
    if found.attention is None:
        return ""
    places = found.attention[: len(found.tokens) - 1, : len(found.source_tokens) - 1]
    return " ".join(f"{int(row.argmax())}-{place}" for place, row in enumerate(places) if len(row))
