"""What ``workpool journal FILE`` shows; MPI is not started."""

from __future__ import annotations

import os
import sqlite3
import sys
import time

from ..errors import UsageError
from .file import FORMAT, failed, holder, inspect
from .journal import KEY_NBYTES

_BY_FUNCTION = f"""
SELECT name, count(*), sum(length(keys) / {KEY_NBYTES}), sum(length(value)),
       min(stored_s), max(stored_s)
FROM records LEFT JOIN functions ON functions.number = records.function
WHERE stored_s BETWEEN 0 AND 1e11  -- else damaged
GROUP BY name ORDER BY 3 DESC, 1
"""


def show(path: str) -> None:
    """Print what is in a journal, which somebody may have open.

    Raises
    ------
    UsageError
        If there is no such file, or it is no journal of this format.
    ResourceError
        If it cannot be read.
    """
    if not os.path.isfile(path):
        what = "it is not a file" if os.path.exists(path) else "there is no such file"
        raise UsageError(f"{path}: {what}")
    by = holder(path)
    connection = inspect(path)
    try:
        rows = connection.execute(_BY_FUNCTION).fetchall()
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise failed(path, "read", error) from error
    finally:
        connection.close()
    total = sum(row[2] for row in rows)
    out = sys.stdout
    out.write(f"{'journal':<22}{path}, format version {FORMAT}\n")
    out.write(f"{'open':<22}{f'by {by}' if by else 'by nobody'}\n")
    out.write(f"{'results':<22}{total:,}, {sum(row[3] for row in rows):,} bytes\n")
    if not rows:
        return
    out.write(f"{'stored':<22}{_when(min(row[4] for row in rows))}")
    out.write(f" to {_when(max(row[5] for row in rows))}\n\n")
    names = [str(row[0] or "(damaged)") for row in rows]
    width = max(map(len, ("function", *names))) + 2
    out.write(f"{'function':<{width}}{'results':>12}{'bytes':>18}  first                last\n")
    for name, (_, _, results, nbytes, first_s, last_s) in zip(names, rows, strict=True):
        out.write(f"{name:<{width}}{results:>12,}{nbytes:>18,}")
        out.write(f"  {_when(first_s)}  {_when(last_s)}\n")


def _when(stored_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(stored_s))
