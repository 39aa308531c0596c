"""The processes that train one net together. Here: how torchrun says which one this is, and a process that is alone.

What is decided once, written or reported is done by the first process; `training.distributed` has the world of several.
Never imports torch.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from elman.core.errors import ElmanError, UsageError
from elman.text.batches import Share

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
NO_ID = "none"  # what torchrun calls a launch that was given no --rdzv-id


class LostProcessError(ElmanError):
    """Another process of the run is gone, and left no word."""

    code = "lost-process"


class RemoteError(ElmanError):
    """Another process of the run has failed; what it said."""


@dataclass(frozen=True)
class Launch:
    """What torchrun says in the environment of a process it starts."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0  # on this machine
    local_size: int = 1
    identity: str | None = None  # the same after torchrun has restarted its processes; None where it did not start this


def read_launch(environment: Mapping[str, str] = os.environ) -> Launch:
    """Which process of how many this is: the only one, unless torchrun (or its variables) says otherwise."""
    if not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= environment.keys():
        return Launch()
    try:
        rank, size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
        local_rank, local_size = int(environment.get("LOCAL_RANK", 0)), int(environment.get("LOCAL_WORLD_SIZE", 1))
    except ValueError as error:
        raise UsageError(
            f"RANK and WORLD_SIZE in the environment have to be numbers: {error}", code="bad-launch"
        ) from None
    if not 0 <= rank < size:
        raise UsageError(f"RANK={rank} in the environment is not below WORLD_SIZE={size}", code="bad-launch")
    return Launch(rank, size, local_rank, max(1, local_size), _identity(environment))


def _identity(environment: Mapping[str, str]) -> str | None:
    """The id that the launch was given or, without one, the process of torchrun that started this one."""
    given = environment.get("TORCHELASTIC_RUN_ID")
    if given is None or given != NO_ID:
        return given
    try:
        started = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        started = ""
    return f"{socket.gethostname()}:{os.getppid()}:{started}"


class World:
    """A process that trains alone: what it says holds, its sums are whole, and nobody waits."""

    rank = 0
    size = 1
    sent_bytes = 0  # by this process to the others

    def __init__(self, identity: str | None = None) -> None:
        self.identity = identity  # of the launch, where torchrun started this process
        self.has_begun = False  # the first process has told the others of a run

    @property
    def is_first(self) -> bool:
        """Whether this process decides, writes and reports."""
        return self.rank == 0

    @property
    def share(self) -> Share:
        """The part of every batch that this process reads."""
        return Share(self.rank, self.size)

    def require_rows(self, max_rows: int) -> None:
        """Refuse batches that do not have a row for every process."""
        if self.size > max_rows:
            raise UsageError(
                f"{self.size} processes cannot share batches of at most {max_rows} rows",
                code="bad-launch",
                hint=f"torchrun with at most {max_rows} processes, or a larger train.batch",
            )

    def lead(self, work: Callable[[], T]) -> T | None:
        """Let the first process do something, which may take long, while the others wait. -> None in these"""
        return work()

    def shared(self, value: T | None, kind: Callable[..., T]) -> T:
        """What the first process says: a record, or a mapping of JSON values. kind: makes it of its fields."""
        assert value is not None
        return value

    def has_made(self, directory: Path) -> bool:
        """Whether this launch has saved its model there, before torchrun restarted the processes."""
        return False

    def remember_made(self, directory: Path) -> None:
        """This launch has saved its model there."""

    def highest(self, value: int) -> int:
        """The highest number that a process gives."""
        return value

    def sums(self, values: Sequence[float]) -> list[float]:
        """The sum of each number over all processes."""
        return list(values)

    def sum_gradients(self, parameters: Iterable[Any]) -> None:
        """Every gradient becomes its sum over all processes; None where no process has one."""

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Every tensor becomes its mean over all processes."""

    def begin_alike(self, tensors: Sequence[Tensor]) -> None:
        """Every tensor becomes that of the first process."""

    def joined(self, part: Tensor | None) -> Tensor | None:
        """The rows of all processes, each of which has those of its share."""
        return part

    def stacked(self, part: Tensor) -> Tensor:
        """One row for each process."""
        return part[None]


ALONE = World()


@contextmanager
def join(report: Callable[[str], None]) -> Iterator[World]:
    """The world of this process: it is alone unless torchrun started several, which then meet here."""
    launch = read_launch()
    if launch.size == 1:
        yield World(launch.identity)
        return
    from elman.training.distributed import connect

    with connect(launch, report) as world:
        yield world
