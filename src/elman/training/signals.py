"""Signals: the first Ctrl-C, SIGTERM or SIGHUP asks the run to save itself, the second ends the process at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from elman.core.errors import ElmanError


class Stopped(ElmanError):  # noqa: N818 - it says what happened
    """The run was stopped by a signal and has saved itself; the exit code is the shell's 128 + signal."""

    code = "stopped"

    def __init__(self, what: str, *, signum: int, hint: str | None = None) -> None:
        super().__init__(what, hint=hint)
        self.signum = signum
        self.exit_code = 128 + signum


class Signals:
    """Remembers the first signal inside the block; then the old handlers are restored, for the second."""

    def __init__(self) -> None:
        self.caught: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():  # only there can handlers be set
            hears_hangup = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN  # nohup ignores it
            for signum in (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hears_hangup else ())):
                self._before[signum] = signal.signal(signum, self._catch)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _catch(self, signum: int, _: FrameType | None) -> None:
        self.caught = signum
        self._restore()

    def _restore(self) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        self._before.clear()
