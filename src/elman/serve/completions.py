"""`POST /v1/completions`: from a request to rows of the batch, and from their parts to an answer or a stream of events."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from elman.api import Model
from elman.core.errors import ElmanError
from elman.lm.shaping import Shaping
from elman.serve.batching import Reading, Worker
from elman.serve.choices import Choice, GivenPrompt, Part, Wish, joined
from elman.serve.errors import ApiError
from elman.serve.handover import Mailbox
from elman.serve.schemas import MAX_PROMPT_TOKENS, CompletionRequest
from elman.serve.served import Served
from elman.text.units.offsets import offsets, pieces
from elman.text.units.vocabulary import EOS, EOS_ID

UNSENT_PARTS = 32  # of a choice, that wait for a slow client while others have its place
MAX_SECONDS = 300.0  # of drawing for one request; what is there then is the answer


def given_prompt(model: Model, prompt: str | list[int]) -> GivenPrompt:
    """A prompt of a request. An end-of-sequence at its beginning, as id or by name, means the start state.

    Tokenizes, so it is not for the event loop.
    """
    if isinstance(prompt, str):
        starts_with_end = prompt.startswith(EOS)
        text = prompt.removeprefix(EOS)
        tokens = model.prompt(text)
        places = [start for start, _ in offsets(text, tokens.ids, model.tokenizer)]
    else:
        starts_with_end = prompt[:1] == [EOS_ID]
        tokens = model.prompt(prompt[starts_with_end:])
        written = list(pieces(tokens.ids, model.tokenizer))
        text = model.tokenizer.decode(tokens.ids)
        places = np.cumsum([0, *map(len, written)])[:-1].tolist()
    if len(tokens.ids) > MAX_PROMPT_TOKENS:
        raise ApiError(
            400,
            f"a prompt has {len(tokens.ids)} tokens, {MAX_PROMPT_TOKENS} are the most",
            param="prompt",
            code="context_length_exceeded",
        )
    return GivenPrompt(text, tokens, places, starts_with_end)


@dataclass(frozen=True)
class Completion:
    """A request that is under way: its choices are rows of the batch, their parts arrive in the mailbox."""

    id: str
    created: int
    request: CompletionRequest
    served: Served
    prompts: list[GivenPrompt]
    choices: list[Choice]
    readings: list[Reading]
    mailbox: Mailbox
    drawn: list[int] = field(default_factory=list)  # tokens of each choice so far

    def cancel(self) -> None:
        """Nobody waits any more: its rows leave the batch before the next token."""
        for choice in self.choices:
            choice.is_cancelled = True
        for reading in self.readings:
            reading.is_cancelled = True

    async def parts(self) -> AsyncIterator[tuple[int, Part]]:
        """The parts of all choices as they come, each with the number of its choice; an error ends them."""
        unfinished = len(self.choices)
        try:
            while unfinished:
                for number, part in await self.mailbox.take():
                    if part.error is not None:
                        raise as_api_error(part.error)
                    unfinished -= part.finish_reason is not None
                    self.drawn[number] = part.num_drawn
                    yield number, part
        finally:
            self.cancel()

    async def answer(self) -> dict[str, Any]:
        """The whole answer."""
        found: list[list[Part]] = [[] for _ in self.choices]
        async for number, part in self.parts():
            found[number].append(part)
        whole = [joined(parts) for parts in found]
        return {
            **self._envelope([self._choice(number, part) for number, part in enumerate(whole)]),
            "usage": self.usage(),
            **self._warnings(),
        }

    async def events(self) -> AsyncIterator[bytes]:
        """The answer in parts, as server-sent events."""
        warnings = self._warnings()
        try:
            async for number, part in self.parts():
                if part.text or part.records or part.finish_reason:
                    yield event(self._envelope([self._choice(number, part)]) | warnings)
        except ApiError as error:
            yield event(error.body())
            return
        options = self.request.stream_options
        if options is not None and options.include_usage:
            yield event({**self._envelope([]), "usage": self.usage()})
        yield b"data: [DONE]\n\n"

    def usage(self) -> dict[str, int]:
        """Tokens that were read and drawn."""
        num_read, num_drawn = sum(prompt.num_tokens for prompt in self.prompts), sum(self.drawn)
        return {"prompt_tokens": num_read, "completion_tokens": num_drawn, "total_tokens": num_read + num_drawn}

    def _choice(self, number: int, part: Part) -> dict[str, Any]:
        logprobs = None if self.request.logprobs is None else part.logprobs()
        return {"index": number, "text": part.text, "logprobs": logprobs, "finish_reason": part.finish_reason}

    def _envelope(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        head = {"id": self.id, "object": "text_completion", "created": self.created, "model": self.served.id}
        return {**head, "choices": choices}

    def _warnings(self) -> dict[str, Any]:
        found = self.request.warnings()
        return {"warnings": found} if found else {}


async def begin(request: CompletionRequest, served: Served, threads: Any) -> Completion:
    """Tokenize the prompts, and hand them to the thread of the model."""
    model, worker = served.language_model()
    loop = asyncio.get_running_loop()
    prompts, wish = await loop.run_in_executor(threads, _prepare, request, model)
    mailbox = Mailbox(limit=UNSENT_PARTS * len(prompts) * (request.n or 1))
    completion = Completion(f"cmpl-{uuid.uuid4().hex}", int(time.time()), request, served, prompts, [], [], mailbox)
    seed = secrets.randbits(64) if request.seed is None else request.seed % (1 << 64)
    for prompt in prompts:
        choices = []
        for copy in range(request.n or 1):
            number = len(completion.choices)
            # the first is what `elman generate --seed` writes
            rng = np.random.default_rng([seed, copy] if copy else seed)
            choice = Choice(model, prompt, wish, mailbox=mailbox, rng=rng, deliver=partial(_put, mailbox, number))
            completion.choices.append(choice)
            completion.drawn.append(0)
            if choice.begin():
                choices.append(choice)
        if choices:
            _start(worker, model, prompt, choices, completion.readings)
    return completion


def _put(mailbox: Mailbox, number: int, part: Part) -> None:
    mailbox.put((number, part))


def _prepare(request: CompletionRequest, model: Model) -> tuple[list[GivenPrompt], Wish]:
    try:
        prompts = [given_prompt(model, prompt) for prompt in request.prompts()]
        stops = request.stops()
        shaping = Shaping(
            1.0 if request.temperature is None else request.temperature,
            request.top_k,
            request.top_p,
            model.forbidden_ids((), unknown=request.unknown),
        )
    except ElmanError as error:
        raise as_api_error(error) from None
    return prompts, Wish(
        max_tokens=16 if request.max_tokens is None else request.max_tokens,
        shaping=shaping,
        stops=[stop for stop in stops if stop != EOS],
        stop_ids=frozenset(model.stop_ids) | ({EOS_ID} if EOS in stops else set()),
        echo=bool(request.echo),
        top=request.logprobs,
        deadline=time.monotonic() + MAX_SECONDS,
    )


def _start(worker: Worker, model: Model, prompt: GivenPrompt, choices: list[Choice], readings: list[Reading]) -> None:
    """Read the prompt once, then let its choices join; those that tell the prompt's probabilities read it themselves."""
    ids = model.remembered(prompt.tokens.ids)
    if choices[0].forced or not len(ids):
        worker.join(choices, None)
        return

    def fail(error: Exception) -> None:
        for choice in choices:
            choice.fail(error)

    reading = Reading(ids, then=lambda state, log_probs: worker.join(choices, state), fail=fail)
    readings.append(reading)
    worker.read(reading)


def event(content: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(content, ensure_ascii=False, allow_nan=False).encode() + b"\n\n"


def as_api_error(error: Exception) -> ApiError:
    """What a client is told of an error: our own words for what can be mended, nothing of a bug."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ElmanError):
        return ApiError(400, str(error).replace("\nhint: ", "; "), code=error.code)
    return ApiError(500, "the model failed on this request")
