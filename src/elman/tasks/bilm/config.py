"""Settings of `elman train bilm`: those of a recurrent language model, for both directions."""

from __future__ import annotations

from elman.tasks.lm.families.recurrent import RecurrentConfig as BilmConfig

__all__ = ["BilmConfig"]
