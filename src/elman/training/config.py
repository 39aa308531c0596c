"""The settings of training, `train.*` on the command line."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from elman.core.settings import Config


class TrainConfig(Config):
    """How a net is trained. What is None is chosen from the data and the budget, and reported."""

    optimiser: Literal["sgd", "adam", "adamw", "rmsprop"] = Field("adam", description="what turns gradients into steps")
    learning_rate: float | None = Field(
        None, gt=0, description="peak of the learning rate; chosen by the size of the net if not given"
    )
    momentum: float = Field(0.0, ge=0, lt=1, description="optimiser=sgd and rmsprop: momentum")
    beta1: float = Field(
        0.0, ge=0, lt=1, description="optimiser=adam and adamw: momentum; 0 is best for LSTMs (Melis et al. 2018)"
    )
    beta2: float = Field(
        0.999,
        gt=0,
        lt=1,
        description="optimiser=adam and adamw: decay of the squared gradients; the smoothing constant of rmsprop",
    )
    weight_decay: float = Field(0.0, ge=0, description="weights shrink by so much a step, times the learning rate")
    clip: float = Field(2.0, ge=0, description="gradients are clipped to this norm; 0 for no clipping")
    schedule: Literal["linear", "cosine", "one-cycle", "plateau", "constant"] | None = Field(
        None, description="how the learning rate changes; by how the run ends if not given"
    )
    warmup: float = Field(0.05, ge=0, lt=1, description="share of the run in which the rate rises")
    flat: float = Field(0.4, ge=0, lt=1, description="schedule=linear: share of the run after which the rate falls")
    decay: float = Field(
        0.5, gt=0, lt=1, description="schedule=plateau: factor of the rate after a validation without a gain"
    )
    freeze: float = Field(
        0.0, ge=0, lt=1, description="share of the run in which weights from --init hold still; 0.2 with a foundation"
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="type of the factors of matrix products in training; weights, scores and saved models are float32",
    )
    batch: int | None = Field(None, ge=1, description="rows of a batch; chosen by the data and the time if not given")
    bptt: int | None = Field(None, ge=1, description="tokens of truncated backpropagation through time")
    bptt_spread: float = Field(
        0.0, ge=0, description="standard deviation of bptt between steps; the rate is scaled with it"
    )
    epochs: float | None = Field(None, gt=0, description="passes over the data; the same as --epochs")
    steps: int | None = Field(None, ge=1, description="steps to train for, instead of epochs")
    patience: int | None = Field(None, ge=1, description="validations without a gain after which the run ends")
    validate_steps: int | None = Field(None, ge=1, description="steps between validations; once a pass if not given")
    average: Literal["ema", "tail", "none"] = Field(
        "ema", description="average of the weights, which is what is validated and kept"
    )
    average_decay: float = Field(0.999, gt=0, lt=1, description="average=ema: the highest decay")
    average_tail: float = Field(
        0.25, gt=0, le=1, description="average=tail: share of the run that is averaged, at its end"
    )
    fit_temperature: bool = Field(
        True, description="fit the temperature of the softmax on the validation text after training"
    )
    checkpoint_seconds: float = Field(60.0, gt=0, description="seconds between checkpoints; passes end with one too")
    checkpoint_steps: int | None = Field(
        None, ge=1, description="steps between checkpoints, besides checkpoint_seconds"
    )
    sync: int | None = Field(
        None,
        ge=1,
        description="torchrun: each process trains by itself, and every so many steps their weights are averaged; "
        "if not given, they add up their gradients in every step",
    )
    log_steps: int = Field(10, ge=1, description="steps between lines of metrics.jsonl")
    tensorboard: bool = Field(False, description="write event files for TensorBoard too")

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

    @model_serializer(mode="wrap")
    def _leave_out_defaults(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What came later is written only where it is used: the records of all other runs stay as they are."""
        found: dict[str, Any] = write(self)
        later = {"freeze": 0.0, "precision": "float32", "sync": None}
        return {key: value for key, value in found.items() if key not in later or value != later[key]}
