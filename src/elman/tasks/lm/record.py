"""config.json of a language model."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from elman.core.settings import Config
from elman.store import Record
from elman.tasks.lm.families.mixed import ModelConfig
from elman.text.settings import DataConfig
from elman.text.units.vocabulary import EOS_ID, UNK_ID


class LmDataConfig(DataConfig):
    """How text becomes symbols, and whether it can be found again."""

    index: bool = Field(
        False,
        description="save an index of the training text with the model: `elman generate --novelty` marks what is copied from it",
        exclude_if=lambda value: not value,  # the records of models without one are as those of version 0.1.0
    )


class LmRecord(Record[LmDataConfig, Config]):
    """A language model."""

    task: Literal["lm"] = "lm"
    vocab_size: int = Field(ge=1)
    eos_token_id: int = EOS_ID
    unk_token_id: int = UNK_ID
    spelling: bool = False  # spelling.safetensors says what the spelling of unknown words costs
    counts: ModelConfig | None = Field(
        default=None, exclude_if=lambda value: value is None
    )  # of a run: what its net is mixed with when it is trained, where the choice of the model is ours
    data: LmDataConfig
    model: ModelConfig  # of whatever family it names

    @property
    def family(self) -> str:
        """The name of its family."""
        return str(getattr(self.model, "family", ""))

    def headline(self) -> str:
        """What it is, for the title of its card."""
        return f"language model: {self.family}"

    def card_metadata(self) -> list[str]:
        """As the ecosystem tags language models."""
        return [
            "pipeline_tag: text-generation",
            f"tags: [elman, language-model, {self.family}]",
            "metrics: [perplexity]",
        ]

    def card_facts(self) -> list[str]:
        """Units, vocabulary, and how lines are read."""
        reads = "each line read alone" if self.data.reset_lines else "lines read as one stream"
        return [f"units `{self.data.units}`, {self.vocab_size:,} symbols, {reads}"]

    def uses(self) -> tuple[str, ...]:
        """The verbs to use it with."""
        return ("generate DIR", "next DIR PROMPT", "evaluate DIR FILE")
