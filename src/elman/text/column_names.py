"""Names that columns of tables and keys of records usually have, by what they hold."""

from __future__ import annotations

from collections.abc import Sequence

TEXTS = (
    *("text", "sentence", "sentence1", "sentence2", "phrase", "review", "document", "content", "title", "headline"),
    *("tweet", "message", "comment", "utterance", "body", "description", "email"),
)
LABELS = (
    *("label", "labels", "class", "category", "topic", "sentiment", "polarity", "stars", "score", "rating", "intent"),
    *("emotion", "tag", "target"),
)
SOURCES = ("source", "src", "input", "question", "query", "prompt", "article", "word", "lemma", "text")
TARGETS = (
    *("target", "tgt", "trg", "output", "answer", "response", "reply", "translation", "summary", "form"),
    *("pronunciation", "highlights"),
)
OTHERS = ("features", "context", "tokens", "tags", "id", "name", "en", "de", "fr", "es")

_ALL = {*TEXTS, *LABELS, *SOURCES, *TARGETS, *OTHERS}


def is_column_name(name: str) -> bool:
    """Whether columns are usually called so, and nothing that anyone says."""
    return name.strip().lower() in _ALL


def find_name(names: Sequence[str], usual: Sequence[str]) -> str | None:
    """The one of these names that comes first among the usual ones."""
    by_lower = {name.lower(): name for name in reversed(names)}
    return next((by_lower[name] for name in usual if name in by_lower), None)
