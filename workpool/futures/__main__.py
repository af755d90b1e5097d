"""``mpiexec -n 5 python -m workpool.futures script.py``: as ``python -m workpool`` does."""

from __future__ import annotations

from ..__main__ import run

run()
