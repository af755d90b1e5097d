"""One job for each seed, and a table of what happened; the status says whether all was right."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAM = Path(__file__).with_name("victim.py")

#: How long one job may take; a job that hangs is a failure.
LIMIT_S = 180.0

COLUMNS = (
    *("claim", "schedule", "tasks", "isolated", "kills"),
    *("stops", "deaths", "evicted", "crashed", "seconds"),
)


def main() -> int:
    """Run every seed and print the table."""
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__)
    parser.add_argument("--seeds", type=int, default=50, help="how many (50)")
    parser.add_argument("--first", type=int, default=0, help="the first one (0)")
    parser.add_argument("--tasks", type=int, default=20_000, help="of each (20,000)")
    parser.add_argument("-w", "--workers", type=int, default=4, help="of each job (4)")
    parser.add_argument("--survive", action="store_true", help="kill ranks as well: up to half")
    options = parser.parse_args()
    print("  seed  " + "".join(f"{name:>10}" for name in COLUMNS) + "  outcome", flush=True)
    wrong = 0
    for seed in range(options.first, options.first + options.seeds):
        outcome, found = run(seed, options)
        wrong += outcome != "right"
        figures = "".join(f"{found.get(name, '-'):>10}" for name in COLUMNS)
        print(f"{seed:6}  {figures}  {outcome}", flush=True)
    print(f"{options.seeds - wrong} of {options.seeds} runs right")
    return 1 if wrong else 0


def run(seed: int, options: argparse.Namespace) -> tuple[str, dict[str, object]]:
    """Run one job; return what became of it, and its figures."""
    command = [sys.executable, "-m", "workpool.launch.cli", "run", "-w", str(options.workers)]
    command += ["--survive"] * options.survive
    with tempfile.TemporaryDirectory(prefix="chaos-") as place:
        report = Path(place, "report.json")
        command += [str(PROGRAM), str(seed), str(options.tasks), str(report)]
        command += ["deaths"] * options.survive
        start = time.monotonic()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TMPDIR": place},
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)  # it ends everything it has started
            output, _ = process.communicate()
            return f"not ended after {LIMIT_S:g} s\n{tail(output)}", {}
        found: dict[str, object] = json.loads(report.read_text()) if report.exists() else {}
    found["seconds"] = f"{time.monotonic() - start:.1f}"
    if process.returncode:
        return f"status {process.returncode}\n{tail(output)}", found
    return str(found.get("outcome", f"no report\n{tail(output)}")), found


def tail(output: str) -> str:
    """Return the end of what a job has written."""
    return "\n".join(f"        {line}" for line in output.splitlines()[-15:])


if __name__ == "__main__":
    sys.exit(main())
