"""`elman rescore`: n-best lists, ranked again."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elman.cli import terminal
from elman.cli.options import Errors, Json, ModelDirectory, NoVerify, Threads
from elman.cli.verb import examples
from elman.core.errors import DataError

if TYPE_CHECKING:
    from elman.rescore.rescoring import Counts

WEIGHT, BONUS = 0.5, 0.0  # where there are no references to tune them on
COSTS_SHARE = 0.9  # of lists whose first score is the lowest: they look like costs


@examples(
    "elman rescore my-model nbest.tsv --references dev.tsv > reranked.tsv",
    "elman rescore my-model test.tsv --weight 0.6 --bonus 1.2 --n-best 1",
)
def rescore(
    directory: ModelDirectory,
    nbest: Annotated[
        Path,
        typer.Argument(
            metavar="NBEST",
            help="Lines id TAB score TAB text, or as Moses, Marian, Kaldi or ESPnet write them; - is stdin.",
            show_default=False,
        ),
    ],
    references: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Lines id TAB text: tune for word error, and measure it.")
    ] = None,
    weight: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="W", help="What a nat of the model counts. [default: tuned, or 0.5]"),
    ] = None,
    bonus: Annotated[
        float | None, typer.Option(metavar="B", help="Added for each word. [default: tuned, or 0]")
    ] = None,
    n_best: Annotated[
        int | None, typer.Option("--n-best", min=1, metavar="N", help="Print so many of each list. [default: all]")
    ] = None,
    costs: Annotated[bool, typer.Option("--costs", help="The scores are costs: the lower the better.")] = False,
    acoustic_scale: Annotated[
        float, typer.Option(min=0.0, metavar="S", help="Kaldi: what the acoustic costs are multiplied by.")
    ] = 0.1,
    errors: Errors = None,
    json: Json = False,
    threads: Threads = None,
    no_verify: NoVerify = False,
) -> None:
    """Rank n-best lists again: score + W x the model's log-probability + B x words, the best first.

    Lists are printed in the layout they came in, with their new scores; --json prints the numbers instead.
    """
    terminal.limit_threads(threads)
    from elman.api import load_language_model
    from elman.rescore.nbest import read_lists, read_references
    from elman.rescore.rescoring import Rescorer, find_weights, measure, readable
    from elman.rescore.tuning import Weights

    model = load_language_model(directory, verify=not no_verify)
    reading = model.record.data.reading(errors)
    said = None if references is None else read_references(str(references), reading)
    with readable(nbest, twice=said is not None) as source:
        rescorer = Rescorer(
            model, lambda: read_lists(str(source), reading, are_costs=costs, acoustic_scale=acoustic_scale)
        )
        numbers: dict[str, Any] = {}
        weights = Weights(WEIGHT if weight is None else weight, BONUS if bonus is None else bonus)
        if said is not None:
            with terminal.status("scoring"):
                judged = rescorer.judge(said)
            with terminal.status("tuning"):
                weights = find_weights(judged, weight=weight, bonus=bonus)
                numbers = measure(judged, weights, weight=weight, bonus=bonus)
        layout = None
        for scored in rescorer.lists():
            if layout is None:
                layout = scored.nbest.layout.name
                terminal.say(f"{nbest}: {layout}")
            if not json:
                print("\n".join(scored.lines(weights, n_best)))
    if layout is None:
        raise DataError(f"there are no lists in {nbest}", code="empty-data", hint="a line is id TAB score TAB text")
    sys.stdout.flush()
    counts = rescorer.counts
    _warn(counts, costs=costs, spells_unknown=model.spelling is not None)
    terminal.say(f"--weight {weights.weight:g} --bonus {weights.bonus:g}: {_describe(numbers)}")
    if said is not None and numbers["judged_lists"] < max(len(said), counts.lists):
        terminal.say(
            f"of {counts.lists:,} lists and {len(said):,} references {numbers['judged_lists']:,} belong together; "
            "only these are measured"
        )
    if json:
        terminal.print_json({"layout": layout, **dataclasses.asdict(counts), **dataclasses.asdict(weights), **numbers})


def _describe(numbers: dict[str, Any]) -> str:
    """What became of the word errors, in a sentence."""
    if not numbers:
        return "there are no --references to measure word errors by"
    before, after, oracle = (numbers[f"wer_{name}"] for name in ("before", "after", "oracle"))
    found = f"word error rate {before:.2%} before, {after:.2%} after" if after is not None else f"{before:.2%} before"
    if "wer_same_lists" in numbers:
        found += " (tuned on one half of the lists, measured on the other, both ways, five times)"
        found += f", {numbers['wer_same_lists']:.2%} on the lists it was tuned on"
    return f"{found}; no ranking has less than {oracle:.2%}"


def _warn(counts: Counts, *, costs: bool, spells_unknown: bool) -> None:
    """Say what makes the result doubtful."""
    from elman.lm.evaluate import warnings

    if not costs and counts.rising_lists > COSTS_SHARE * counts.lists:
        terminal.say(
            f"in {counts.rising_lists:,} of {counts.lists:,} lists the first score is the lowest: are they --costs?"
        )
    lines = {"lines": counts.hypotheses, "unknown": counts.unknown}
    for warning in warnings(counts.tokens, **lines, spells_unknown=spells_unknown):
        terminal.say(warning)
