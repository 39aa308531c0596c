"""Learning rate schedules: functions of how much of the run is done. Pure: no counters, nothing to save.

Every function gives the factor of the peak rate at a fraction of the run in [0, 1].
"""

from __future__ import annotations

import math

from elman.core.errors import UsageError
from elman.training.config import TrainConfig

# One cycle (Smith 2018): the rate rises for this share of the run and falls for the rest.
ONE_CYCLE_RISE = 0.3
# It begins at this share of the peak rate.
ONE_CYCLE_START = 0.04
# Without a known end, a run stops after so many validations without a gain.
DEFAULT_PATIENCE = 4


def warm_up(fraction: float, part: float) -> float:
    """A linear rise over the first part of the run, from 1 % of the peak."""
    return 1.0 if fraction >= part else max(fraction, 0.0) / part * 0.99 + 0.01


def linear(fraction: float, *, warmup: float, flat: float) -> float:
    """Warm up, stay until `flat`, then fall linearly to 0 at the end."""
    if fraction < max(flat, warmup):
        return warm_up(fraction, warmup)
    return max(0.0, (1.0 - fraction) / (1.0 - max(flat, warmup)))


def cosine(fraction: float, *, warmup: float) -> float:
    """Warm up, then fall to 0 along half a cosine."""
    if fraction < warmup:
        return warm_up(fraction, warmup)
    return 0.5 * (1.0 + math.cos(math.pi * min(1.0, (fraction - warmup) / (1.0 - warmup))))


def one_cycle(fraction: float) -> float:
    """Up along half a cosine for 30 % of the run, down along another to nearly 0 (Smith 2018)."""
    if fraction < ONE_CYCLE_RISE:
        return ONE_CYCLE_START + (1.0 - ONE_CYCLE_START) * 0.5 * (1.0 - math.cos(math.pi * fraction / ONE_CYCLE_RISE))
    done = min(1.0, (fraction - ONE_CYCLE_RISE) / (1.0 - ONE_CYCLE_RISE))
    return max(1e-5, 0.5 * (1.0 + math.cos(math.pi * done)))


def needs_end(config: TrainConfig) -> bool:
    """Whether the schedule needs to know where the run ends."""
    return config.schedule in ("linear", "cosine", "one-cycle")


def choose(config: TrainConfig, *, has_end: bool) -> TrainConfig:
    """The settings with a schedule and a patience: annealed to a known end, or else lowered on plateaus."""
    if needs_end(config) and not has_end:
        raise UsageError(
            f"train.schedule={config.schedule} needs to know where the run ends",
            code="missing-option",
            hint="give --budget, --epochs or train.steps; or train.schedule=plateau",
        )
    if config.average == "tail" and not has_end:
        raise UsageError(
            "train.average=tail needs to know where the run ends",
            code="missing-option",
            hint="give --budget, --epochs or train.steps",
        )
    schedule = config.schedule or ("linear" if has_end else "plateau")
    patience = config.patience
    if patience is None and not has_end:
        patience = DEFAULT_PATIENCE
    return config.model_copy(update={"schedule": schedule, "patience": patience})


def rate(config: TrainConfig, fraction: float, *, peak: float, step: int) -> float:
    """The learning rate at a fraction of the run; runs without a known end warm up over their first 100 steps."""
    match config.schedule:
        case "linear":
            return peak * linear(fraction, warmup=config.warmup, flat=config.flat)
        case "cosine":
            return peak * cosine(fraction, warmup=config.warmup)
        case "one-cycle":
            return peak * one_cycle(fraction)
        case _:
            return peak * warm_up(step / 100, 1.0) if config.warmup else peak


def peak_rate(config: TrainConfig) -> float:
    """The learning rate at its highest: the one given, or one known to work for the optimiser."""
    if config.learning_rate is not None:
        return config.learning_rate
    match config.optimiser:
        case "sgd":
            return 2.0 if config.momentum else 20.0
        case "rmsprop":
            return 0.002
        case _:
            return 0.005 if config.beta1 == 0 else 0.003
