"""What every test relies on."""

from __future__ import annotations

import os

# Before numpy and torch are there. Tests run side by side: threads that spin while they wait take the others' time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from hypothesis import HealthCheck, settings

# Time is not a property of a parser: on a busy machine a deadline fails for nothing.
settings.register_profile("elman", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("elman")
