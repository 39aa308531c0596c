"""A process learns from its environment whether it is alone."""

from __future__ import annotations

import pytest

from elman.core.errors import UsageError
from elman.training.world import Launch, World, join, read_launch

VARIABLES = {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "host", "MASTER_PORT": "29500"}


def test_a_process_that_torchrun_did_not_start_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert read_launch({}) == read_launch({"WORLD_SIZE": "4"}) == Launch()
    with join(lambda sentence: None) as world:
        assert world.is_first and world.size == 1 and world.share.of([1, 2, 3]) == [1, 2, 3]


def test_the_launch_is_read_from_the_environment() -> None:
    launch = read_launch(VARIABLES | {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "job-7"})
    assert launch == Launch(3, 4, 1, 2, "job-7")
    nameless = read_launch(VARIABLES | {"TORCHELASTIC_RUN_ID": "none"}).identity
    assert nameless is not None and nameless != "none"  # the process of torchrun, which restarts do not change
    assert nameless == read_launch(VARIABLES | {"TORCHELASTIC_RUN_ID": "none"}).identity


@pytest.mark.parametrize("wrong", [{"RANK": "4"}, {"RANK": "-1"}, {"WORLD_SIZE": "many"}])
def test_variables_that_cannot_be_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"RANK|WORLD_SIZE"):
        read_launch(VARIABLES | wrong)


def test_batches_need_a_row_for_every_process() -> None:
    world = World()
    world.size = 5
    world.require_rows(5)
    with pytest.raises(UsageError, match="5 processes cannot share batches of at most 4 rows"):
        world.require_rows(4)
