"""What belongs to a model of pairs besides its weights: the tokenizers of both sides."""

from __future__ import annotations

from typing import NamedTuple

from elman.text.units.tokenizer import Tokenizer

SOURCE_PREFIX = "source_"  # prefix of the source tokenizer's files; the target's have the usual names


class Tokenizers(NamedTuple):
    """Those of both sides; the same one twice where the vocabulary is shared."""

    source: Tokenizer
    target: Tokenizer

    def files(self) -> dict[str, bytes]:
        """Both tokenizers', or one's where both are the same."""
        found = dict(self.target.files())
        if self.source is not self.target:
            found |= {SOURCE_PREFIX + name: content for name, content in self.source.files().items()}
        return found
