"""What a model of pairs does with a source and its target: for those who look inside."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from elman.core.arrays import Array
from elman.explain.reading import AttentionMap, Reading, head_maps
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS, EOS_ID, UNK_ID

if TYPE_CHECKING:
    from torch import Tensor

    from elman.nets.trace import NetTrace
    from elman.tasks.seq2seq.net import PairTrace


@dataclass(frozen=True)
class PairReading:
    """A source and a target as ids, ends included, and their tokens."""

    net: Any
    source: Array
    target: Array
    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]

    def trace(self) -> PairTrace:
        """What the net does with them. Gradients flow as they are switched."""
        found: PairTrace = self.net.trace(*self.net.words_read(self.source, self.target))
        return found

    def attention_maps(self) -> list[AttentionMap]:
        """Where the decoder looked at each step; of a Transformer every head too, and those of the source itself."""
        with without_gradients():
            traced = self.trace()
            names = {"rows": self.target_tokens, "columns": self.source_tokens}
            if "source" not in traced.target.attention:
                how, weights_S = self.net.source_shares(traced.source.features)
                return [AttentionMap(how, **names, weights=np.tile(weights_S, (len(self.target), 1)))]
            looked = AttentionMap("decoder to source", **names, weights=_numpy(traced.target.attention["source"][0]))
            heads = head_maps(traced.target.layers, "source", **names, prefix="decoder to source, ")
            own = {"rows": self.source_tokens, "columns": self.source_tokens}
            return [looked, *heads[1:], *head_maps(traced.source.layers, "self", **own, prefix="source, ")[1:]]

    def of_source(self, columns: tuple[str, ...]) -> Reading:
        """As a reading of the source, in which the target is what is predicted."""

        def trace(words_SBE: Tensor) -> tuple[NetTrace, Tensor]:
            traced = self.net.trace(words_SBE, self.net.words_read(self.source, self.target)[1])
            return traced.source, traced.log_probs

        return Reading(
            tokens=self.source_tokens,
            is_known=(self.source != UNK_ID).tolist(),
            rows=self.target_tokens,
            columns=columns,
            chosen=self.target,
            words=lambda: self.net.words_read(self.source, self.target)[0],
            trace=trace,
            unrecorded=self._scores,
        )

    def _scores(self) -> Array:
        state = self.net.encode(self.source[None], np.array([len(self.source)]))
        scored: Array = self.net.score(self.target[None], np.array([len(self.target)]), state)[0][0]
        return scored


def _numpy(tensor: Tensor) -> Array:
    found: Array = tensor.detach().cpu().numpy()
    return found


def without_gradients() -> AbstractContextManager[None]:
    """For reading without learning; torch is there by then."""
    import torch

    return torch.no_grad()


def symbols(tokenizer: Tokenizer, ids: Array) -> tuple[str, ...]:
    """Tokens by themselves; the end by its name."""
    return tuple(EOS if token == EOS_ID else tokenizer.tokens[token] for token in ids.tolist())
