"""What the server counts, for Prometheus. No text, no ids of sessions, no addresses."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from elman.serve.served import Models
from elman.serve.sessions import Sessions

if TYPE_CHECKING:
    from elman.serve.context import Admission

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    """Counters of one server, in a registry of their own."""

    def __init__(self, models: Models, sessions: Sessions, admission: Admission) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "elman_requests", "Requests by route and status", ["route", "status"], registry=self._registry
        )
        self.seconds = Histogram(
            "elman_request_seconds",
            "Seconds from request to last byte",
            ["route"],
            buckets=SECONDS,
            registry=self._registry,
        )
        self.tokens = Counter("elman_tokens", "Tokens read and drawn", ["model", "kind"], registry=self._registry)
        for name, text, read in (
            ("elman_sessions", "Sessions that are kept", lambda: len(sessions)),
            ("elman_admitted_requests", "Requests under way", lambda: admission.num_admitted),
        ):
            Gauge(name, text, registry=self._registry).set_function(read)
        streams = Gauge("elman_streams", "Rows of the batch", ["model"], registry=self._registry)
        waiting = Gauge("elman_waiting", "Rows and prompts that wait", ["model"], registry=self._registry)
        steps = Gauge("elman_steps", "Steps of the batch so far", ["model"], registry=self._registry)
        for name, worker in ((one.id, one.worker) for one in models.values() if one.worker is not None):
            streams.labels(name).set_function(partial(getattr, worker, "num_active"))
            waiting.labels(name).set_function(partial(getattr, worker, "num_waiting"))
            steps.labels(name).set_function(partial(getattr, worker, "num_steps"))

    def render(self) -> bytes:
        """In Prometheus' text format."""
        return generate_latest(self._registry)
