"""A causal language model of the Transformers library as a `FreeModel`: the state is its keys and values, and what was read.

The window. A model reads `context` tokens at most. When they are full, the last half of them is read again from the first
position, in a fresh cache, and reading goes on: so every token is predicted from at least half a context, reading costs no more
than twice as much, and what happens depends on the state alone. Cutting a text anywhere changes nothing.

B rows · T tokens to read · N tokens in the cache · V our symbols · U symbols of the library's model
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from elman.core.arrays import Array
from elman.core.errors import DataError, UsageError
from elman.core.tensors import DAMAGED, require_table
from elman.lm.protocol import num_rows, select
from elman.tasks.lm.families.hf import HfConfig

IDS = "symbols.ids"  # of our symbols in the library's vocabulary, among the tensors
WEIGHTS = "net."
READ_LOGITS = 1 << 25  # rows times tokens times symbols that are in memory at once


@dataclass(frozen=True)
class HfState:
    """What each row has read since its window began, padded behind, and what comes next."""

    keys: tuple[Tensor, ...]  # by layer (B, heads, N, D)
    values: tuple[Tensor, ...]
    tokens: Tensor  # (B, N)
    lengths: Tensor  # (B,) tokens that are real
    log_probs: Tensor  # (B, V) of the next token


class HfModel:
    """See the module."""

    def __init__(self, config: HfConfig, net: nn.Module, ids: Array) -> None:
        self.config = config
        self.net = net.eval().requires_grad_(False)
        self.ids = ids
        self.vocab_size = len(ids)
        place = torch.from_numpy(ids.astype(np.int64))
        self._is_possible = place >= 0
        self._logit_of = place.clamp(min=0)
        # what has no id there is read as the start: it is in no text, but whoever asks gets an answer
        self._read_as = torch.where(self._is_possible, place, config.start)

    # ------------------------------------------------------------------------------------------------- the protocol

    def start(self, rows: int) -> HfState:
        """The start symbol is read."""
        with torch.inference_mode():
            state = self._fresh(torch.full((1, 1), self.config.start))
            return select(state, np.zeros(rows, dtype=np.int64))

    def predict(self, state: HfState) -> Array:
        """-> (B, V)"""
        return state.log_probs.float().numpy().copy()

    def advance(self, tokens: Array, state: HfState) -> HfState:
        """Read one token per row."""
        with torch.inference_mode():
            return self._read(torch.from_numpy(np.asarray(tokens, dtype=np.int64))[:, None], state)[1]

    def score(self, tokens: Array, lengths: Array, state: HfState) -> tuple[Array, HfState]:
        """Log-probability of each token, 0 at padding, and the new state. Padding is never read."""
        lengths = np.asarray(lengths)
        order = np.argsort(-lengths, kind="stable")
        tokens_BT = torch.from_numpy(np.asarray(tokens, dtype=np.int64)[order])
        log_probs_BT = torch.zeros(tokens_BT.shape)
        with torch.inference_mode():
            state = select(state, order)
            finished: list[HfState] = []
            for first, last in pairwise(sorted({0, *lengths.tolist()})):
                active = int((lengths >= last).sum())
                if active < num_rows(state):
                    finished.append(select(state, np.arange(active, num_rows(state))))
                    state = select(state, np.arange(active))
                scored, state = self._read(tokens_BT[:active, first:last], state)
                log_probs_BT[:active, first:last] = scored
            back = np.argsort(order)
            return log_probs_BT.numpy()[back], select(self.join([state, *reversed(finished)]), back)

    def join(self, states: Sequence[HfState]) -> HfState:
        """The rows of several states as one batch, shorter ones padded."""
        if len(states) == 1:
            return states[0]
        size = max(state.tokens.shape[1] for state in states)
        with torch.inference_mode():
            return HfState(
                _joined([state.keys for state in states], size),
                _joined([state.values for state in states], size),
                torch.cat([nn.functional.pad(state.tokens, (0, size - state.tokens.shape[1])) for state in states]),
                torch.cat([state.lengths for state in states]),
                torch.cat([state.log_probs for state in states]),
            )

    # ------------------------------------------------------------------------------------------------------ reading

    def _read(self, tokens_BT: Tensor, state: HfState) -> tuple[Tensor, HfState]:
        """Log-probabilities of tokens that are ours, and the state after them."""
        scored: list[Tensor] = []
        most = max(1, READ_LOGITS // max(1, len(tokens_BT) * self.vocab_size))
        done = 0
        while done < tokens_BT.shape[1]:
            state = self._with_room(state)
            room = self.config.context - int(state.lengths.max())
            piece_BT = tokens_BT[:, done : done + min(most, room)]
            log_probs_BTV, after = self._forward(self._read_as[piece_BT], state)
            before_BTV = torch.cat([state.log_probs[:, None], log_probs_BTV[:, :-1]], dim=1)
            scored.append(before_BTV.gather(2, piece_BT[:, :, None])[:, :, 0].float())
            state, done = after, done + piece_BT.shape[1]
        return torch.cat(scored, dim=1), state

    def _with_room(self, state: HfState) -> HfState:
        """The same state; windows that are full begin anew with the last half of what they read."""
        is_full = state.lengths >= self.config.context
        if not is_full.any():
            return state
        full, other = (torch.nonzero(mask)[:, 0].numpy() for mask in (is_full, ~is_full))
        old = select(state, full)
        kept = self.config.context // 2
        fresh = self._fresh(old.tokens[:, self.config.context - kept : self.config.context])
        # what comes next was said from all that the window held
        renewed = HfState(fresh.keys, fresh.values, fresh.tokens, fresh.lengths, old.log_probs)
        if not len(other):
            return renewed
        return select(self.join([renewed, select(state, other)]), np.argsort(np.concatenate([full, other])))

    def _fresh(self, tokens_BN: Tensor) -> HfState:
        """The state of a window that holds these tokens of the library's vocabulary."""
        empty = torch.zeros(len(tokens_BN), 0, dtype=torch.int64)
        nothing = HfState((), (), empty, empty.sum(dim=1), torch.zeros(len(tokens_BN), 0))
        return self._forward(tokens_BN, nothing)[1]

    def _forward(self, tokens_BT: Tensor, state: HfState) -> tuple[Tensor, HfState]:
        """Log-probabilities of our symbols after each token, (B, T, V), and the state after the last one."""
        from transformers import DynamicCache

        rows, num_new = tokens_BT.shape
        num_old = state.tokens.shape[1]
        cache: Any = DynamicCache()
        for layer, (keys, values) in enumerate(zip(state.keys, state.values, strict=True)):
            cache.update(keys, values, layer)
        is_real_BN = torch.arange(num_old) < state.lengths[:, None]
        given: dict[str, Any] = {
            "input_ids": tokens_BT,
            "attention_mask": torch.cat([is_real_BN, torch.ones(rows, num_new, dtype=torch.bool)], dim=1).long(),
            "position_ids": state.lengths[:, None] + torch.arange(num_new),
        }
        logits_BTU = self.net(**given, past_key_values=cache, use_cache=True).logits
        logits_BTV = logits_BTU[:, :, self._logit_of].masked_fill(~self._is_possible, -torch.inf)
        log_probs_BTV = logits_BTV.log_softmax(dim=-1)
        tokens_BN = torch.cat([state.tokens, tokens_BT], dim=1)
        order_BN = None if is_real_BN.all() else _compact(state.lengths, num_old, num_new)
        after = HfState(
            tuple(_along(layer.keys, order_BN) for layer in cache.layers),
            tuple(_along(layer.values, order_BN) for layer in cache.layers),
            tokens_BN if order_BN is None else tokens_BN.gather(1, order_BN),
            state.lengths + num_new,
            log_probs_BTV[:, -1],
        )
        return log_probs_BTV, after

    # ------------------------------------------------------------------------------------------------------- saving

    def tensors(self) -> dict[str, Array]:
        """The weights by the library's names, each shared one once, and the ids of our symbols."""
        found: dict[int, tuple[str, Tensor]] = {}
        for name, weight in self.net.state_dict().items():
            found.setdefault(weight.data_ptr(), (name, weight))
        weights = {f"{WEIGHTS}{name}": weight.numpy() for name, weight in found.values()}
        return {**weights, IDS: self.ids.astype(np.int64)}

    @classmethod
    def from_tensors(cls, config: HfConfig, tensors: Mapping[str, Array], *, vocab_size: int) -> Self:
        """The model whose settings and tensors these were."""
        ids = require_table(tensors, IDS, "i", vocab_size)
        net = build_net(config.architecture)
        weights = {
            name.removeprefix(WEIGHTS): torch.from_numpy(np.array(array))
            for name, array in tensors.items()
            if name.startswith(WEIGHTS)
        }
        net.to(next(iter(weights.values())).dtype)
        try:
            missing, unexpected = net.load_state_dict(weights, strict=False)
        except RuntimeError as error:
            raise DataError(
                f"the model's weights do not fit its settings: {error}", code="damaged-model", hint=DAMAGED
            ) from None
        net.tie_weights()
        shared = {weight.data_ptr() for name, weight in net.state_dict().items() if name not in missing}
        absent = [name for name in missing if net.state_dict()[name].data_ptr() not in shared]
        if absent or unexpected or ids.max() >= net.config.vocab_size:
            raise DataError("the model's weights do not fit its settings", code="damaged-model", hint=DAMAGED)
        return cls(config, net, np.array(ids))


def build_net(architecture: Mapping[str, Any]) -> Any:
    """The library's model of these settings, with whatever weights; never with code that is not the library's."""
    transformers = library()
    given = {key: value for key, value in architecture.items() if key not in ("auto_map", "model_type")}
    kind = architecture.get("model_type")
    try:
        return transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(kind, **given))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(
            f"Transformers has no causal language model for these settings: {error}"[:300], code="unsupported-model"
        ) from None


def library() -> Any:
    """The Transformers library, quiet."""
    try:
        transformers: Any = import_module("transformers")
    except ImportError:
        raise UsageError(
            "Hugging Face models need the library transformers", code="missing-package", hint="pip install 'elman[hf]'"
        ) from None
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def _joined(parts: Sequence[tuple[Tensor, ...]], size: int) -> tuple[Tensor, ...]:
    """The keys or values (B, heads, N, D) of several states, by layer, with zeros behind them up to so many tokens."""
    padded = (
        [nn.functional.pad(one, (0, 0, 0, size - one.shape[2])) for one in layer] for layer in zip(*parts, strict=True)
    )
    return tuple(torch.cat(layer) for layer in padded)


def _compact(lengths: Tensor, num_old: int, num_new: int) -> Tensor:
    """For each row, where its tokens are among the old ones, padding behind them, and the new ones. -> (B, N)"""
    places_N = torch.arange(int(lengths.max()) + num_new)
    moved_BN = num_old + places_N - lengths[:, None]
    return torch.where(places_N < lengths[:, None], places_N, moved_BN).clamp(max=num_old + num_new - 1)


def _along(values: Tensor, order_BN: Tensor | None) -> Tensor:
    """Keys or values in the order of tokens."""
    if order_BN is None:
        return values
    index = order_BN[:, None, :, None].expand(-1, values.shape[1], -1, values.shape[3])
    return values.gather(2, index)
