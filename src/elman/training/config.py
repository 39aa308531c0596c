"""How a net descends."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from elman.core.settings import Config


class TrainConfig(Config):
    """How a net descends. What is None is chosen from the data and the budget, and said."""

    optimiser: Literal["sgd", "adam", "adamw", "rmsprop"] = "adam"
    learning_rate: float | None = Field(None, gt=0)
    momentum: float = Field(0.0, ge=0, lt=1)  # sgd and rmsprop
    beta1: float = Field(0.0, ge=0, lt=1)  # adam: 0 is what tuned LSTMs use (Melis et al. 2018)
    beta2: float = Field(0.999, gt=0, lt=1)  # adam; the smoothing of rmsprop
    weight_decay: float = Field(0.0, ge=0)
    clip: float = Field(2.0, ge=0)  # the largest norm of a gradient; 0 for any
    schedule: Literal["linear", "cosine", "one-cycle", "plateau", "constant"] | None = None
    warmup: float = Field(0.05, ge=0, lt=1)  # the part of the run in which the rate rises
    flat: float = Field(0.4, ge=0, lt=1)  # linear: where the rate begins to fall
    decay: float = Field(0.5, gt=0, lt=1)  # plateau: of the rate, when a validation is no better than the best
    batch: int | None = Field(None, ge=1)  # streams side by side
    bptt: int | None = Field(None, ge=1)  # tokens a gradient goes back
    bptt_spread: float = Field(0.0, ge=0)  # standard deviation of bptt from step to step, the rate scaled with it
    epochs: float | None = Field(None, gt=0)
    steps: int | None = Field(None, ge=1)
    patience: int | None = Field(None, ge=1)  # validations without a gain before the end
    validate_steps: int | None = Field(None, ge=1)  # between validations; else once a pass
    average: Literal["ema", "tail", "none"] = "ema"  # of the weights; the average is what is evaluated and kept
    average_decay: float = Field(0.999, gt=0, lt=1)  # ema, at its longest
    average_tail: float = Field(0.25, gt=0, le=1)  # tail: the last part of the run, averaged evenly
    fit_temperature: bool = True  # one number for the softmax, fitted on the validation text at the end
    checkpoint_seconds: float = Field(60.0, gt=0)
    checkpoint_steps: int | None = Field(None, ge=1)
    log_steps: int = Field(10, ge=1)
    tensorboard: bool = False

    @model_validator(mode="after")
    def _all_apply(self) -> Self:
        owners: dict[str, tuple[str, set[str | None]]] = {
            "momentum": ("optimiser", {"sgd", "rmsprop"}),
            "beta1": ("optimiser", {"adam", "adamw"}),
            "beta2": ("optimiser", {"adam", "adamw", "rmsprop"}),
            "flat": ("schedule", {"linear", None}),
            "decay": ("schedule", {"plateau", None}),
            "average_decay": ("average", {"ema"}),
            "average_tail": ("average", {"tail"}),
        }
        for name, (owner, values) in owners.items():
            is_set = getattr(self, name) != type(self).model_fields[name].default  # a dump sets every field
            if is_set and getattr(self, owner) not in values:
                raise ValueError(f"{name} does not apply with {owner}={getattr(self, owner)}")
        if self.epochs is not None and self.steps is not None:
            raise ValueError("give epochs or steps, not both")
        return self
