"""A text as a net reads it, for those who look inside: its tokens, what is predicted from them, and its trace.

T tokens that are read · R predictions · C columns that a prediction chooses from · E width of a word
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from elman.core.arrays import Array
from elman.core.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

    from elman.nets.trace import LayerTrace, NetTrace


MAX_AT_ONCE = 2_000  # tokens of a text that cannot be cut: read from both sides, or each looking at all others


def refuse_empty(tokens: Sequence[Any]) -> None:
    """Nothing can be read of a text without words."""
    if not tokens:
        raise UsageError("there are no words in the text", code="unsuitable-text", hint="give a text with words")


def refuse_long(tokens: Sequence[Any] | Array) -> None:
    """A text that has to be read all at once cannot have any length: what is recorded of it has to fit into memory."""
    if len(tokens) > MAX_AT_ONCE:
        raise UsageError(
            f"a text of {len(tokens):,} tokens is too long: this model reads all of it at once",
            code="unsuitable-text",
            hint=f"give at most {MAX_AT_ONCE:,} tokens",
        )


@dataclass(frozen=True)
class Reading:
    """One text on its way through a net.

    Each prediction is a row of scores (R, C): log-probabilities of a language model, else the numbers that a softmax or a
    CRF turns into probabilities. `chosen` is the column that the row is about: the token that came, the best label.
    """

    tokens: Sequence[str]  # T, as they are read; a language model begins with its start symbol
    is_known: Sequence[bool]  # T, whether a token is in the vocabulary
    rows: Sequence[str]  # R, what each prediction is about
    columns: Sequence[str]  # C
    chosen: Array  # (R,)
    words: Callable[[], Tensor]  # the vectors that are read, (T, 1, E)
    trace: Callable[[Tensor], tuple[NetTrace, Tensor]]  # from such vectors to what was recorded and the scores, (R, C)
    unrecorded: Callable[[], Array]  # the score of each chosen column without recording, (R,): equal by law
    is_local: bool = False  # prediction r is made of `NetTrace.features[r]` alone
    is_causal: bool = False  # prediction t is made of the tokens up to t alone
    notes: Sequence[str] = ()  # what the net alone does not show of the prediction


@dataclass(frozen=True)
class AttentionMap:
    """Where somebody looked: weights (rows, columns), each row summing to one."""

    name: str  # whose: "layer 1, head 2"
    rows: Sequence[str]  # who looked
    columns: Sequence[str]  # at what
    weights: Array


def head_maps(
    layers: Sequence[LayerTrace], of: str, *, rows: Sequence[str], columns: Sequence[str], prefix: str = ""
) -> list[AttentionMap]:
    """Every head of every layer that attends to something (`of`: self, source), and their mean in the last layer first."""
    found = []
    for number, layer in enumerate(layers, 1):
        if of not in layer.attention:
            continue
        for head, weights_TS in enumerate(layer.attention[of][0].detach().cpu().numpy(), 1):
            found.append(AttentionMap(f"{prefix}layer {number}, head {head}", rows, columns, weights_TS))
    if not found:
        return []
    last = layers[-1].attention[of][0].detach().cpu().numpy().mean(axis=0)
    return [AttentionMap(f"{prefix}layer {len(layers)}, mean of its heads", rows, columns, last), *found]
