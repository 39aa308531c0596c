"""`hf`: a causal language model of Hugging Face's Transformers, made by `elman import`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from elman.core.arrays import Array
from elman.core.settings import Config
from elman.tasks.lm.family import MemberFamily, Saveable, Shape


class HfConfig(Config):
    """A causal language model of the Transformers library; made by `elman import`."""

    family: Literal["hf"] = "hf"
    architecture: dict[str, Any] = Field(description="its config.json, as the library writes it")
    start: int = Field(ge=0, description="the id, in its vocabulary, of what it has read before the first token")
    context: int = Field(
        ge=2, description="tokens that it reads at most; then half of them are read again, and it goes on"
    )


class HfFamily(MemberFamily[HfConfig]):
    """Not made from text here."""

    record = HfConfig
    is_built = True
    made_by = "elman import HF_DIR --out DIR"

    def restore(self, config: HfConfig, tensors: Mapping[str, Array], shape: Shape) -> Saveable:
        """The model that was imported."""
        from elman.tasks.lm.families.hf_net import HfModel

        return HfModel.from_tensors(config, tensors, vocab_size=shape.vocab_size)
