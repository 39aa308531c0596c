"""The models that count, and the caches that stand beside others in a mixture."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from elman.core.settings import Config, Integers

Smoothing = Literal["ml", "add", "interpolated", "witten-bell", "absolute"]


class UniformConfig(Config):
    """Every symbol as likely as any other: the model every other one has to beat."""

    family: Literal["uniform"] = "uniform"


class UnigramConfig(Config):
    """Words by their frequency alone."""

    family: Literal["unigram"] = "unigram"
    smoothing: Literal["ml", "add"] = "add"
    alpha: float | None = Field(None, gt=0)  # tuned on held-out text if not given

    @model_validator(mode="after")
    def _all_apply(self) -> Self:
        _check_smoothing(self.smoothing, self.alpha, ())
        return self

    @property
    def order(self) -> int:
        return 1


class BigramConfig(Config):
    """One word of history."""

    family: Literal["bigram"] = "bigram"
    smoothing: Smoothing = "add"
    alpha: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _all_apply(self) -> Self:
        _check_smoothing(self.smoothing, self.alpha, ())
        return self

    @property
    def order(self) -> int:
        return 2


class NgramConfig(Config):
    """order - 1 words of history, smoothed in one of the classic ways."""

    family: Literal["ngram"] = "ngram"
    order: int = Field(3, ge=1, le=20)
    smoothing: Smoothing = "interpolated"
    alpha: float | None = Field(None, gt=0)  # `add` only
    prune: Integers = ()  # drop k-grams seen at most prune[k-1] times; the last number holds for higher orders

    @field_validator("prune")
    @classmethod
    def _prune_rises(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return _checked_prune(value)

    @model_validator(mode="after")
    def _all_apply(self) -> Self:
        _check_smoothing(self.smoothing, self.alpha, self.prune)
        return self


class KneserNeyConfig(Config):
    """Interpolated Kneser-Ney: `kn` with one discount an order, `mkn` with three (Chen & Goodman 1998)."""

    family: Literal["kn", "mkn"] = "mkn"
    order: int = Field(5, ge=1, le=20)
    prune: Integers = ()

    @field_validator("prune")
    @classmethod
    def _prune_rises(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        return _checked_prune(value)


class SnmConfig(Config):
    """Sparse non-negative matrix estimation: n-gram and skip-gram features, adjustment fitted on held-out text."""

    family: Literal["snm"] = "snm"
    order: int = Field(5, ge=1, le=10)  # n-gram features of 0 .. order-1 words
    skip_words: int = Field(2, ge=0, le=4)  # words of context in a skip-gram feature; 0 for none
    max_skip: int = Field(3, ge=1, le=10)  # words a skip-gram may leave out
    reach: int = Field(20, ge=0, le=200)  # single words beyond, as far back as this, wherever they stand; 0 for none


class CacheConfig(Config):
    """What was said is said again: p from the text just read. Only useful inside a mixture."""

    family: Literal["cache"] = "cache"
    window: int | None = Field(None, ge=1)  # only the last so many words; without a decay all of them equally
    decay: float | None = Field(None, gt=0, le=1)  # each step's weight times this; 0.995 where there is no window

    @model_validator(mode="after")
    def _forgets(self) -> Self:
        if self.window is None and self.decay == 1:
            raise ValueError("a cache that never forgets needs a window")
        return self

    @property
    def kept(self) -> float:
        """What is left of a word's weight after one more word."""
        return self.decay or (0.995 if self.window is None else 1.0)


class NeuralCacheConfig(Config):
    """What was said after a like history is said again (Grave et al. 2017). Only beside a net, inside a mixture."""

    family: Literal["neural-cache"] = "neural-cache"
    window: int = Field(2000, ge=1)  # so many histories are kept
    theta: float | None = Field(None, ge=0)  # how much likeness counts; tuned if not given
    decay: float | None = Field(None, gt=0, le=1)  # each step's weight times this; tuned if not given
    net: int | None = Field(None, ge=0)  # whose histories: a place among the members; the first net if not given


def _checked_prune(value: tuple[int, ...]) -> tuple[int, ...]:
    if any(count < 0 for count in value) or list(value) != sorted(value):
        raise ValueError("prune takes counts that never fall from one order to the next, like 0,0,1")
    if value and value[0] > 0:
        raise ValueError("words are not pruned, so prune begins with 0; data.min_count leaves out rare words")
    return value


def _check_smoothing(smoothing: str, alpha: float | None, prune: tuple[int, ...]) -> None:
    if alpha is not None and smoothing != "add":
        raise ValueError(f"alpha is for smoothing=add, not for {smoothing}")
    if any(prune) and smoothing in ("ml", "add"):
        raise ValueError(f"prune needs a smoothing that backs off, and {smoothing} does not")
