"""What `--set count.…` sets: which engine counts, and where."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from elman.core.errors import UsageError
from elman.core.settings import Config
from elman.core.values import Form


class CountConfig(Config):
    """Which engine counts n-grams."""

    engine: Literal["local", "spark"] = Field("local", description="what counts: this process, or Apache Spark")
    master: str | None = Field(
        None,
        min_length=1,
        description="spark: its master, like local[2], spark://host:7077 or yarn; all cores here if not given",
    )
    conf: Annotated[str, Form("pairs KEY=VALUE with commas between")] = Field(
        "", description="spark: its own settings, like spark.executor.memory=8g,spark.executor.cores=4"
    )
    wait: float = Field(120.0, gt=0, description="spark: seconds to wait for a first executor")
    result: Literal["auto", "model", "arpa"] = Field(
        "auto",
        description="spark: a model directory, or ARPA in parts where the tables do not fit this machine's memory",
    )
    arpa: str | None = Field(
        None,
        min_length=1,
        description="spark: the folder for ARPA in parts, anywhere that Spark writes; as --out if not given",
    )

    def spark_settings(self) -> dict[str, str]:
        """The pairs of `conf`."""
        found = {}
        for pair in filter(None, (part.strip() for part in self.conf.split(","))):
            key, equals, value = pair.partition("=")
            if not equals or not key.startswith("spark."):
                raise UsageError(
                    f"count.conf: {pair!r} is no setting of Spark",
                    code="bad-value",
                    hint="for example spark.executor.memory=8g",
                )
            found[key] = value
        return found
