"""What can be compared by name, task by task, what each looks at, and how the nets' time is divided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Entry:
    """A model that is to be trained and measured."""

    name: str
    model: str | None = None  # as --model calls it; None of a mixture, and for the task's default
    what: str = ""  # it looks at; {back} is how many tokens its settings say
    settings: Mapping[str, Any] = field(default_factory=dict)
    share: float = 1.0  # of the nets' time, beside other nets'
    members: tuple[str, ...] = ()  # of a mixture: other entries and caches

    @property
    def directory(self) -> str:
        """The name of its directory."""
        return "".join(letter if letter.isalnum() or letter in "+-._" else "-" for letter in self.name).lstrip(".-")


BACK = "{back} tokens back"

LANGUAGE_MODELS = (
    Entry("uniform", "uniform", "nothing"),
    Entry("unigram", "unigram", "frequencies"),
    # add-alpha spreads too much over unseen words: on 40,000 tokens it is worse than the unigram (449 and 324)
    Entry("bigram", "bigram", "1 token back", {"model.smoothing": "interpolated"}),
    Entry("ngram", "ngram", BACK),
    Entry("kn", "kn", BACK),
    Entry("mkn", "mkn", BACK),
    Entry("snm", "snm", "skip-grams"),
    Entry("window", "window", BACK),
    Entry("rnn", "rnn", "all, fading"),
    Entry("gru", "gru", "all, gated", share=2.0),
    Entry("lstm", "lstm", "all, gated", share=3.0),
    Entry("transformer", "transformer", BACK, share=2.0),
)
READERS = (  # of words or texts from both sides
    Entry("rnn", "rnn", "all, fading"),
    Entry("gru", "gru", "all, gated"),
    Entry("lstm", "lstm", "all, gated"),
)
PAIRS = (
    Entry("initial", "lstm", "its end, once", {"model.context": "initial"}),
    Entry("every", "lstm", "its end, always", {"model.context": "every"}),
    Entry("attention", "lstm", "where it wants", {"model.context": "attention"}),
    Entry("gru-attention", "gru", "where it wants", {"model.context": "attention"}),
    Entry("transformer", "transformer", "where it wants, per head"),
)
ENTRIES: dict[str, tuple[Entry, ...]] = {
    "lm": LANGUAGE_MODELS,
    "seq2seq": PAIRS,
    "tag": READERS,
    "classify": READERS,
}
MIXTURE = "mkn+lstm+cache"
USUAL: dict[str, tuple[str, ...]] = {  # what is compared where nothing is asked for
    "lm": ("unigram", "bigram", "ngram", "mkn", "snm", "window", "rnn", "gru", "lstm", "transformer", MIXTURE),
    "seq2seq": ("initial", "attention", "gru-attention", "transformer"),
    "tag": ("rnn", "gru", "lstm"),
    "classify": ("rnn", "gru", "lstm"),
}


def looks_at(entry: Entry, settings: Mapping[str, Any]) -> str:
    """What a model with these settings looks at, in words."""
    back = settings.get("window", settings.get("order", 1) - 1)
    return entry.what.format(back=back).replace("1 tokens", "1 token") if "{back}" in entry.what else entry.what
