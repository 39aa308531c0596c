"""What every record of settings is."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


class Config(BaseModel):
    """A frozen record of settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _split_commas(value: Any) -> Any:
    return [part for part in value.split(",") if part] if isinstance(value, str) else value


Integers = Annotated[tuple[int, ...], BeforeValidator(_split_commas)]
