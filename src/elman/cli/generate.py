"""`elman generate`: text from a model, streamed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from elman.cli import terminal
from elman.cli.options import Json, ModelDirectory, NoVerify, Threads
from elman.cli.verb import examples
from elman.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from elman.api import Model
    from elman.explain.novelty import Copied
    from elman.lm.shaping import Shaping

    LookFor: TypeAlias = Callable[[str], Copied]


@examples(
    "elman generate my-model --prompt 'Once upon' --tokens 50 --top-p 0.9",
    "elman generate my-model --samples 5 --seed 1 --json",
)
def generate(
    directory: ModelDirectory,
    prompt: Annotated[str, typer.Option("--prompt", "-p", metavar="TEXT", help="The text to continue.")] = "",
    tokens: Annotated[int, typer.Option("--tokens", "-n", min=1, metavar="N", help="At most so many tokens.")] = 100,
    samples: Annotated[int, typer.Option(min=1, metavar="N", help="How many continuations.")] = 1,
    temperature: Annotated[
        float | None,
        typer.Option(min=0, metavar="T", help="Below 1 safer, above 1 wilder, 0 the likeliest. [default: 1]"),
    ] = None,
    top_k: Annotated[int | None, typer.Option(min=1, metavar="K", help="Only the K likeliest symbols.")] = None,
    top_p: Annotated[
        float | None, typer.Option(min=0, max=1, metavar="P", help="Only the likeliest symbols that make up P.")
    ] = None,
    beam: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The likeliest line a beam of N finds, not a chance one.")
    ] = None,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="End before this text. May be repeated.")
    ] = None,
    forbid: Annotated[
        list[str] | None, typer.Option(metavar="SYMBOL", help="Never write this. May be repeated.")
    ] = None,
    unknown: Annotated[bool, typer.Option("--unknown", help="Write <unk> where an unknown word would stand.")] = False,
    seed: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Seed of the chance. [default: a new one, printed]")
    ] = None,
    novelty: Annotated[
        bool,
        typer.Option("--novelty", help="Mark «what is copied» from the training text, in spans of 5 tokens and more."),
    ] = False,
    threads: Threads = None,
    json: Json = False,
    no_verify: NoVerify = False,
) -> None:
    """Write text that continues a prompt."""
    terminal.limit_threads(threads)
    from elman.api import load_language_model

    stop, forbid = stop or [], forbid or []
    model = load_language_model(directory, verify=not no_verify)
    look_for = _looker(model) if novelty else None  # refuses before anything is written
    if beam is not None:
        given = {
            "--temperature": temperature,
            "--top-k": top_k,
            "--top-p": top_p,
            "--seed": seed,
            "--stop": stop or None,
        }
        for flag, value in given.items():
            if value is not None:
                raise UsageError(
                    f"{flag} does not apply to --beam", code="options-conflict", hint="a beam leaves nothing to chance"
                )
        found = model.beam(prompt, width=beam, tokens=tokens, n_best=samples, forbid=forbid, unknown=unknown)
        _print_found(prompt, found, look_for, json=json)
        return
    from elman.lm.shaping import Shaping

    forbidden = model.forbidden_ids(forbid, unknown=unknown)
    shaping = Shaping(1.0 if temperature is None else temperature, top_k, top_p, forbidden)
    _sample(model, prompt, look_for, tokens=tokens, samples=samples, shaping=shaping, stop=stop, seed=seed, json=json)


def _looker(model: Model) -> LookFor:
    """What finds the parts of a text that stand in the training text."""
    from elman.explain.novelty import look_for

    index = model.training_index()
    return lambda text: look_for(index, model, model.tokenizer.encode_text(text))


def _sample(
    model: Model,
    prompt: str,
    look_for: LookFor | None,
    *,
    tokens: int,
    samples: int,
    shaping: Shaping,
    stop: list[str],
    seed: int | None,
    json: bool,
) -> None:
    import numpy as np

    if seed is None:
        seed = int(np.random.SeedSequence().generate_state(1)[0])
    texts = []
    for number in range(samples):
        rng = np.random.default_rng([seed, number] if number else seed)
        pieces = model.stream(prompt, tokens=tokens, shaping=shaping, rng=rng, stop=stop)
        if json:
            texts.append("".join(pieces))
            continue
        if look_for is not None:
            _print_marked(look_for("".join(pieces)))
            continue
        if sys.stdout.isatty() and sys.stderr.isatty() and prompt:
            print(terminal.dim(terminal.escape(prompt)), end="", file=sys.stderr, flush=True)
        for piece in pieces:
            print(terminal.escape_if_terminal(piece), end="", flush=True)
        print(flush=True)
    if json:
        terminal.print_json({"prompt": prompt, "texts": texts, "seed": seed} | _novelty(texts, look_for))
    else:
        terminal.say(f"seed {seed}")


def _novelty(texts: list[str], look_for: LookFor | None) -> dict[str, Any]:
    return {} if look_for is None else {"novelty": [look_for(text).as_json() for text in texts]}


def _print_marked(copied: Copied) -> None:
    from elman.cli.drawing import print_drawing
    from elman.explain.novelty import lines_of

    print_drawing(lines_of(copied.marked()))


def _print_found(prompt: str, found: list[tuple[str, float]], look_for: LookFor | None, *, json: bool) -> None:
    texts = [text for text, _ in found]
    if json:
        nats = [nats for _, nats in found]
        terminal.print_json({"prompt": prompt, "texts": texts, "nats": nats} | _novelty(texts, look_for))
        return
    for text in texts:
        if look_for is not None:
            _print_marked(look_for(text))
            continue
        print(terminal.escape_if_terminal(text))
