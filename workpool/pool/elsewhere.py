"""What other pools call things: a program that comes from one is told what to write here."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

_END = "shutdown(), or the end of the with block"

#: Names of multiprocessing.Pool, pathos' pools and schwimmbad's, and what does the same.
_HERE = {
    "apply": "submit(f, *args, **kwargs).result()",
    "apply_async": "submit(f, *args, **kwargs), and add_done_callback for a callback",
    "map_async": "map(f, xs), which starts at once, and list() of it later",
    "starmap_async": "starmap(f, xs), which starts at once, and list() of it later",
    "imap": "map(f, xs)",
    "imap_unordered": "map(f, xs, unordered=True)",
    "pipe": "submit(f, *args, **kwargs).result()",
    "apipe": "submit(f, *args, **kwargs)",
    "amap": "map(f, xs), which starts at once, and list() of it later",
    "uimap": "map(f, xs, unordered=True)",
    "close": _END,
    "join": _END,
    "terminate": "shutdown(cancel_futures=True)",
    "terminate_workers": "shutdown(cancel_futures=True)",
    "kill_workers": "shutdown(cancel_futures=True)",
    "is_master": "nothing: only the driver runs the script",
    "wait": "nothing: the other ranks serve already",
    "size": "num_workers",
    "ncpus": "num_workers",
    "nodes": "num_workers",
}


class Elsewhere:
    """Says what is here in the place of a name that another pool has."""

    if not TYPE_CHECKING:  # else a checker would find that a pool has whatever it is asked for

        def __getattr__(self, name: str) -> NoReturn:
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in _HERE:
                text += f"; here it is {_HERE[name]}"
            raise AttributeError(text, name=name, obj=self)
