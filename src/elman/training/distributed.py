"""Several processes that train one net together, as torchrun starts them: gloo on processors, nccl on graphics cards.

They meet at torchrun's store, which also carries the heartbeat of the first process, what it has done while the others
wait, and the error of a process that fails, so that all of them end with it. No wait is without a bound.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from elman import __version__
from elman.core.errors import ElmanError, UsageError
from elman.training.signals import Stopped
from elman.training.world import Launch, LostProcessError, RemoteError, World

T = TypeVar("T")

_meetings = itertools.count()  # of this process

JOIN_SECONDS = 300.0  # until all processes of a launch have to be there
EXCHANGE_SECONDS = 600.0  # that an exchange between processes may take
SILENT_SECONDS = 60.0  # without a heartbeat, after which the first process counts as lost
BEAT_SECONDS = 2.0  # between two heartbeats
NEWS_SECONDS = 3.0  # that processes which fail wait for one another, so that all say why
FRAME_BYTES = 1024  # of what the first process says; more takes a second message
LARGE = 1 << 18  # numbers of a gradient that is sent by itself, not copied beside others
MANY_ROWS = 4096  # rows of a large gradient, from which on it is looked for rows that are all zero
SPARSE_SHARE = 0.5  # only rows that are not zero in some process are sent where they are at most this share


@contextlib.contextmanager
def connect(launch: Launch, report: Callable[[str], None]) -> Iterator[Processes]:
    """Meet the other processes. An error inside the block is told to all of them."""
    world = Processes(launch, report)
    try:
        yield world
        world.highest(0)  # all have come as far as this
    except (Stopped, KeyboardInterrupt):
        raise  # a signal reaches them all
    except BaseException as error:
        world.tell(error)
        raise
    finally:
        world.close()


class Processes(World):
    """The world of several processes."""

    def __init__(self, launch: Launch, report: Callable[[str], None]) -> None:
        super().__init__(launch.identity)
        self.rank, self.size = launch.rank, launch.size
        self._launch_store = _connect_store(launch)  # which processes that torchrun restarts find as they left it
        token = _meet(self._launch_store, launch, report)
        self._store = PrefixStore(f"elman/{token}", self._launch_store)
        self._num_led = 0
        self._is_over = threading.Event()
        if self.is_first:
            self._store.set("beat", "0")
            threading.Thread(target=self._beat, daemon=True).start()
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        with self._exchange():
            dist.init_process_group(
                backend,
                store=PrefixStore("group", self._store),
                rank=self.rank,
                world_size=self.size,
                timeout=timedelta(seconds=EXCHANGE_SECONDS),
            )

    def close(self) -> None:
        """Leave the others."""
        self._is_over.set()
        if dist.is_initialized():
            dist.destroy_process_group()

    # ------------------------------------------------------------------------------------------------- decided once

    def lead(self, work: Callable[[], T]) -> T | None:
        """Let the first process do something while the others wait for it, as long as its heart beats."""
        self._num_led += 1
        key = f"led/{self._num_led}"
        if self.is_first:
            result = work()
            self._store.set(key, "done")
            return result
        self._wait_for(key)
        return None

    def has_made(self, directory: Path) -> bool:
        """Whether this launch has saved its model there, before torchrun restarted the processes."""
        return bool(self._launch_store.check([f"elman/made/{directory.absolute()}"]))

    def remember_made(self, directory: Path) -> None:
        """This launch has saved its model there."""
        self._launch_store.set(f"elman/made/{directory.absolute()}", "")

    def _beat(self) -> None:
        count = 0
        while not self._is_over.wait(BEAT_SECONDS):
            count += 1
            try:
                self._store.set("beat", str(count))
            except RuntimeError:  # the store is gone, and with it whoever would listen
                return

    def _wait_for(self, key: str) -> None:
        beat, heard, pause = b"", time.monotonic(), 0.002
        with self._exchange():
            while not self._store.check([key]):
                self._raise_told()
                if (now := self._store.get("beat")) != beat:
                    beat, heard = now, time.monotonic()
                elif time.monotonic() - heard > SILENT_SECONDS:
                    raise LostProcessError(f"the first process of this run has been silent for {SILENT_SECONDS:.0f} s")
                time.sleep(pause)
                pause = min(0.2, 1.5 * pause)

    def shared(self, value: T | None, kind: Callable[..., T]) -> T:
        """What the first process says."""
        fields = dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value  # type: ignore[arg-type]
        text = json.dumps(fields).encode() if self.is_first else b""
        frame = torch.zeros(FRAME_BYTES, dtype=torch.uint8)
        head = len(text).to_bytes(8, "big") + text[: FRAME_BYTES - 8]
        frame[: len(head)] = torch.frombuffer(bytearray(head), dtype=torch.uint8)
        with self._exchange():
            self._broadcast(frame)
            read = bytes(frame.numpy())
            length = int.from_bytes(read[:8], "big")
            found = read[8 : 8 + length]
            if length > len(found):
                whole = torch.zeros(length, dtype=torch.uint8)
                if self.is_first:
                    whole.copy_(torch.frombuffer(bytearray(text), dtype=torch.uint8))
                self._broadcast(whole)
                found = bytes(whole.numpy())
        return kind(**json.loads(found))

    # --------------------------------------------------------------------------------------------- sums of everybody

    def highest(self, value: int) -> int:
        """The highest number that a process gives."""
        found = torch.tensor([value])
        with self._exchange():
            self._reduce(found, dist.ReduceOp.MAX)
        return int(found)

    def sums(self, values: Sequence[float]) -> list[float]:
        """The sum of each number over all processes."""
        found = torch.tensor(values, dtype=torch.float64)
        with self._exchange():
            self._reduce(found)
        return found.tolist()

    @torch.no_grad()
    def sum_gradients(self, parameters: Iterable[Any]) -> None:
        """Every gradient becomes its sum over all processes; None where no process has one, as for one process.

        Small ones travel together; of large ones with few rows that are not zero, as of words, only these rows.
        """
        every = list(parameters)
        has_gradient = torch.tensor([float(one.grad is not None) for one in every])
        for one in every:
            if one.grad is None:
                one.grad = torch.zeros_like(one)
        gradients = [one.grad for one in every]
        large = [grad for grad in gradients if grad.numel() >= LARGE]
        small = [grad for grad in gradients if grad.numel() < LARGE]
        with self._exchange():
            sparse = self._common_rows([grad for grad in large if len(grad) >= MANY_ROWS])
            for grad in large:
                rows = sparse.get(id(grad))
                if rows is None:
                    self._sum_in_place(grad)
                else:
                    grad.index_copy_(0, rows, self._reduce(grad.index_select(0, rows)))
            flat = torch.cat([has_gradient.to(device=every[0].device), *(grad.flatten() for grad in small)])
            self._reduce(flat)
        counts, *parts = torch.split(flat, [len(every), *(grad.numel() for grad in small)])
        for grad, part in zip(small, parts, strict=True):
            grad.copy_(part.view_as(grad))
        for one, count in zip(every, counts.tolist(), strict=True):
            if not count:
                one.grad = None

    def _reduce(self, tensor: Tensor, operation: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> Tensor:
        """The same tensor, summed over all processes in place (or their maximum)."""
        dist.all_reduce(tensor, operation)
        self.sent_bytes += 2 * (self.size - 1) * tensor.nbytes // self.size  # in a ring, from each process to the next
        return tensor

    def _broadcast(self, tensor: Tensor) -> None:
        """The tensor of the first process takes the place of everybody's."""
        dist.broadcast(tensor, 0)
        self.sent_bytes += tensor.nbytes * self.is_first

    def _sum_in_place(self, tensor: Tensor) -> None:
        plain = self._reduce(tensor.contiguous())
        if plain is not tensor:
            tensor.copy_(plain)

    def _common_rows(self, gradients: Sequence[Tensor]) -> dict[int, Tensor]:
        """The rows of some gradients that are not zero in all processes, where these are few, by the gradients' ids."""
        if not gradients:
            return {}
        masks = [grad.flatten(1).any(1) if grad.ndim > 1 else grad != 0 for grad in gradients]
        flat = torch.cat(masks).to(torch.uint8)
        self._reduce(flat, dist.ReduceOp.MAX)
        masks = list(torch.split(flat, [len(grad) for grad in gradients]))
        found = {id(grad): mask.nonzero()[:, 0] for grad, mask in zip(gradients, masks, strict=True)}
        return {id(grad): found[id(grad)] for grad in gradients if len(found[id(grad)]) <= SPARSE_SHARE * len(grad)}

    @torch.no_grad()
    def average(self, tensors: Sequence[Tensor]) -> None:
        """Every tensor becomes its mean over all processes."""
        with self._exchange():
            for tensor in tensors:
                self._sum_in_place(tensor)
                tensor.div_(self.size)

    @torch.no_grad()
    def begin_alike(self, tensors: Sequence[Tensor]) -> None:
        """Every tensor becomes that of the first process."""
        with self._exchange():
            for tensor in tensors:
                same = tensor.contiguous()
                self._broadcast(same)
                tensor.copy_(same)

    def joined(self, part: Tensor | None) -> Tensor | None:
        """The rows of all processes. None where this one has none; the first always has some, or nobody has."""
        num_rows = int(self.sums([0 if part is None else len(part)])[0])
        if not num_rows:
            return part
        own = None if part is None else {"shape": list(part.shape[1:]), "dtype": str(part.dtype)}
        like: dict[str, Any] = self.shared(own, dict)
        dtype = getattr(torch, like["dtype"].removeprefix("torch."))
        whole = torch.zeros((num_rows, *like["shape"]), dtype=dtype)
        if part is not None:
            whole[self.rank :: self.size] = part.cpu()
        with self._exchange():
            return self._reduce(whole)

    def stacked(self, part: Tensor) -> Tensor:
        """One row for each process."""
        whole = torch.zeros((self.size, *part.shape), dtype=part.dtype)
        whole[self.rank] = part
        with self._exchange():
            return self._reduce(whole)

    # ------------------------------------------------------------------------------------------- when a process fails

    def tell(self, error: BaseException) -> None:
        """Tell the others why this process fails, and wait a moment until they know."""
        known = error if isinstance(error, ElmanError) else None
        what = known.what if known else f"{type(error).__name__}: {error}"
        about = {
            "what": what,
            "hint": known.hint if known else None,
            "code": known.code if known else "bug",
            "exit_code": known.exit_code if known else 1,
        }
        with contextlib.suppress(RuntimeError):
            if not isinstance(error, RemoteError | LostProcessError) and not self._store.check(["error"]):
                self._store.set("error", json.dumps({"rank": self.rank, "host": socket.gethostname(), **about}))
            self.close()  # whoever waits for this process in an exchange sees that it is gone
            self._store.add("failed", 1)
            end = time.monotonic() + (0.0 if isinstance(error, LostProcessError) else NEWS_SECONDS)
            while self._store.add("failed", 0) < self.size and time.monotonic() < end:
                time.sleep(0.05)

    def _raise_told(self) -> None:
        """Raise the error of the process that failed, if one did."""
        if not self._store.check(["error"]):
            return
        told = json.loads(self._store.get("error"))
        error = RemoteError(
            f"process {told['rank']} on {told['host']}: {told['what']}", code=told["code"], hint=told["hint"]
        )
        error.exit_code = told["exit_code"]
        raise error

    @contextlib.contextmanager
    def _exchange(self) -> Iterator[None]:
        """If the others cannot be reached inside the block, say why: by the error of the one that failed, if it told it."""
        try:
            yield
        except RuntimeError as broken:
            end = time.monotonic() + NEWS_SECONDS
            while time.monotonic() < end:
                try:
                    self._raise_told()
                except RuntimeError:
                    break  # the store is gone, too
                time.sleep(0.05)
            raise LostProcessError(
                f"another process of this run is gone or does not answer: {str(broken).splitlines()[0]}",
                hint="`torchrun --max-restarts N` goes on from the last checkpoint by itself, `elman resume DIR` later",
            ) from None


def _connect_store(launch: Launch) -> Store:
    """torchrun's store or, where the variables were set by hand, one that the first process opens."""
    host, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    opens = launch.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        return TCPStore(
            host, int(port), is_master=opens, timeout=timedelta(seconds=JOIN_SECONDS), wait_for_workers=False
        )
    except (RuntimeError, ValueError) as error:
        raise LostProcessError(
            f"cannot reach the other processes at {host}:{port}: {str(error).splitlines()[0]}",
            hint="MASTER_ADDR and MASTER_PORT say where the first process is; is a firewall between them?",
        ) from None


def _meet(store: Store, launch: Launch, report: Callable[[str], None]) -> str:
    """Wait until all processes are there, and check that they are alike. -> a name that only this meeting has

    A store outlives processes that torchrun restarts. So each says hello with a word of its own, and only an answer to
    that word counts: what earlier processes have left in the store is never taken for news. A process that goes on to
    another training before the first has seen why this one cannot begin is not met in its place: meetings are counted.
    """
    own = {"word": uuid.uuid4().hex, "elman": __version__, "torch": torch.__version__, "host": socket.gethostname()}
    own["meeting"] = str(next(_meetings))
    store.set(f"elman/hello/{launch.rank}", json.dumps(own))
    hellos = [f"elman/hello/{rank}" for rank in range(launch.size)]
    answered: list[str] = []
    end = time.monotonic() + JOIN_SECONDS
    while time.monotonic() < end:
        if launch.rank == 0:
            present = [store.get(key).decode() for key in hellos] if store.check(hellos) else []
            is_news = present != answered and all(json.loads(one)["meeting"] == own["meeting"] for one in present)
            if is_news:
                answered = present
            words = [json.loads(hello)["word"] for hello in answered[1:]]
            for word in words if is_news else ():
                store.set(f"elman/welcome/{word}", json.dumps(answered))
            if answered and store.check([f"elman/here/{own['word']}/{word}" for word in words]):
                break
        elif store.check([f"elman/welcome/{own['word']}"]):
            answered = json.loads(store.get(f"elman/welcome/{own['word']}"))
            store.set(f"elman/here/{json.loads(answered[0])['word']}/{own['word']}", "")
            break
        time.sleep(0.02)
    else:
        raise LostProcessError(
            f"the {launch.size} processes of this run did not meet within {JOIN_SECONDS:.0f} s",
            hint="look into the messages of the others: one has not begun, or cannot reach the first",
        )
    everyone = [json.loads(hello) for hello in answered]
    _refuse_unlike(everyone)
    num_machines = len({one["host"] for one in everyone})
    machines = "one machine" if num_machines == 1 else f"{num_machines} machines"
    report(f"{launch.size} processes on {machines} train together, each on its part of every batch")
    return str(everyone[0]["word"])


def _refuse_unlike(everyone: Sequence[dict[str, str]]) -> None:
    first = everyone[0]
    for rank, other in enumerate(everyone):
        for name in ("elman", "torch"):
            if first[name] != other[name]:
                raise UsageError(
                    f"process 0 on {first['host']} has {name} {first[name]}, "
                    f"process {rank} on {other['host']} has {other[name]}",
                    code="bad-launch",
                    hint="install the same versions everywhere",
                )
