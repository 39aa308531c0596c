"""What a request may say: every number has bounds, every list and text a length, every float is finite.

OpenAI's clients send fields that have no meaning here: they are named in the answer's `warnings` and otherwise ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

MAX_CHARACTERS = 500_000  # of a text
MAX_PROMPTS = 128
MAX_PROMPT_TOKENS = 65_536
MAX_TOKENS = 4096  # that are drawn
MAX_ROWS = 128  # prompts times n
NEUTRAL: tuple[Any, ...] = ({}, [], "", None, 0, 0.0, False, 1, 1.0)  # values of ignored fields that change nothing


def _refuse_surrogates(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("the text has a lone surrogate, which is no character") from None
    return text


Text = Annotated[str, Field(max_length=MAX_CHARACTERS), AfterValidator(_refuse_surrogates)]
Name = Annotated[str, Field(max_length=200), AfterValidator(_refuse_surrogates)]
TokenId = Annotated[int, Field(ge=0, lt=1 << 31)]
TokenIds = Annotated[list[TokenId], Field(max_length=MAX_PROMPT_TOKENS)]
Temperature = Annotated[float, Field(ge=0, le=100, description="below 1 sharper, above 1 flatter, 0 is greedy")]
TopK = Annotated[int, Field(ge=1, le=1 << 31, description="only the k likeliest tokens")]
TopP = Annotated[float, Field(ge=0, le=1, description="only the likeliest tokens that together reach this probability")]


class Request(BaseModel):
    """What every request is."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    def warnings(self) -> list[str]:
        """What was said and ignored."""
        extra = self.model_extra or {}
        names = [ascii(name[:60]) for name, value in extra.items() if value not in NEUTRAL]
        return [f"{name} has no meaning here and was ignored" for name in names[:16]]


class ModelRequest(Request):
    """A request to one model."""

    model: Name | None = Field(None, description="its id; the first that fits if not given")


class StreamOptions(Request):
    """How a stream is sent."""

    include_usage: bool | None = None


class CompletionRequest(ModelRequest):
    """`POST /v1/completions`, as OpenAI has it."""

    prompt: (
        Text
        | Annotated[list[Text], Field(min_length=1, max_length=MAX_PROMPTS)]
        | Annotated[list[TokenId], Field(min_length=1, max_length=MAX_PROMPT_TOKENS)]
        | Annotated[list[TokenIds], Field(min_length=1, max_length=MAX_PROMPTS)]
    ) = ""
    max_tokens: Annotated[int, Field(ge=0, le=MAX_TOKENS)] | None = 16
    temperature: Temperature | None = 1.0
    top_p: TopP | None = 1.0
    top_k: TopK | None = None
    n: Annotated[int, Field(ge=1, le=16)] | None = 1
    best_of: Annotated[int, Field(ge=1, le=16)] | None = None
    stop: (
        Annotated[Text, Field(min_length=1)]
        | Annotated[list[Annotated[Text, Field(min_length=1)]], Field(max_length=16)]
        | None
    ) = None
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] | None = None
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool | None = False
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    unknown: bool = Field(False, description="whether <unk> may be written")

    @model_validator(mode="after")
    def _fits(self) -> CompletionRequest:
        if self.best_of not in (None, self.n or 1):
            raise ValueError("best_of must be n: no other continuations are drawn")
        if len(self.prompts()) * (self.n or 1) > MAX_ROWS:
            raise ValueError(f"prompts times n are at most {MAX_ROWS}")
        if sum(map(len, self.prompts())) > max(MAX_CHARACTERS, MAX_PROMPT_TOKENS):
            raise ValueError(f"the prompts together are at most {MAX_CHARACTERS} long")
        return self

    def prompts(self) -> list[str | list[int]]:
        """All prompts, each a text or ids."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if self.prompt and isinstance(self.prompt[0], int):
            return [self.prompt]
        return self.prompt  # type: ignore[return-value]

    def stops(self) -> list[str]:
        """The stop texts."""
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or ())


class NextRequest(ModelRequest):
    """`POST /v1/next`: what may follow a text, or the text of a session."""

    text: Text | None = None
    session: Name | None = None
    k: Annotated[int, Field(ge=1, le=1000)] = 10
    prefix: Text = Field("", description="only tokens that begin so: what may finish a word")
    temperature: Temperature = 1.0
    top_k: TopK | None = None
    top_p: TopP | None = None

    @model_validator(mode="after")
    def _has_one(self) -> NextRequest:
        if (self.text is None) == (self.session is None):
            raise ValueError("give either text or session")
        return self


class ScoreRequest(ModelRequest):
    """`POST /v1/score`: what each token of a text costs."""

    text: Text


class PredictRequest(ModelRequest):
    """`POST /v1/predict`: lines to be tagged, classified, translated or answered."""

    input: (
        Text
        | Annotated[list[Text], Field(min_length=1, max_length=64)]
        | Annotated[list[dict[str, Text]], Field(min_length=1, max_length=64)]
        | dict[str, Text]
    ) = Field(description="a line or several, or records like {context, question}")
    beam: Annotated[int, Field(ge=1, le=64)] | None = None
    n_best: Annotated[int, Field(ge=1, le=64)] | None = None
    length_penalty: Annotated[float, Field(ge=0, le=10)] | None = None
    prefix: Text = ""
    max_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None


class ExplainRequest(Request):
    """`POST /v1/explain`: the data and the picture of `elman explain`."""

    model: Name | Annotated[list[Name], Field(min_length=1, max_length=8)] | None = None
    text: Text | Annotated[list[Text], Field(max_length=64)] = ""
    kind: Name | None = None
    options: dict[Name, Text | float | int | bool | None] = Field({}, max_length=32)


class EmbeddingsRequest(ModelRequest):
    """`POST /v1/embeddings`, as OpenAI has it."""

    input: Text | Annotated[list[Text], Field(min_length=1, max_length=2048)]
    encoding_format: Literal["float", "base64"] | None = "float"
    layer: Annotated[int, Field(ge=0, le=1000)] | None = None
    pool: Literal["last", "mean", "max"] = "mean"


class SessionRequest(ModelRequest):
    """`POST /v1/sessions`: a state that is kept."""

    text: Text = ""


class AdvanceRequest(Request):
    """`POST /v1/sessions/{id}/advance`: read on, by text or by token ids."""

    text: Text | None = None
    tokens: TokenIds | None = None

    @model_validator(mode="after")
    def _has_one(self) -> AdvanceRequest:
        if (self.text is None) == (self.tokens is None):
            raise ValueError("give either text or tokens")
        return self


class TokenizeRequest(ModelRequest):
    """`POST /tokenize`"""

    prompt: Text


class DetokenizeRequest(ModelRequest):
    """`POST /detokenize`"""

    tokens: TokenIds


JsonObject = dict[str, Any]
