"""What an array is to everybody: numpy's, of any type of number."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
