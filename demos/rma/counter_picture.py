"""The picture of ``13_counter.py``: who took which item, and how often, in three ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # a file, no display
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

COLORS = {
    "never": "#111111",
    "once": "#d5dfe5",
    "twice": "#f4a582",
    "three times or more": "#c8102e",
}
MOST = len(COLORS) - 1
CAPTIONS = {
    "Get, Put": "whoever is slow to put back what it read overwrites the others: items come back",
    "Get, Accumulate": "two ranks read the same number, both subtract: the next one is left out",
    "Fetch_and_op": "to read and to lower is one atomic: no item comes back, none is left out",
}
TAKES = 28  # shown of one round

Moments = Sequence[Sequence[tuple[float, int]]]  # for each rank, the (second, item) of its takes


def draw(
    path: Path,
    title: str,
    played: Mapping[str, Sequence[Any]],
    shown: Mapping[str, tuple[Any, Moments]],
) -> None:
    """Draw a row for each way: some takes of one round on the left, all rounds on the right.

    Parameters
    ----------
    path : Path
    title : str
    played : mapping of way to its rounds, as ``13_counter.py`` has them
    shown : mapping of way to one of them, and who took what when
    """
    plt.rcParams.update({"font.size": 10, "axes.titlelocation": "left"})
    figure, axes = plt.subplots(
        len(played), 2, figsize=(15, 11), width_ratios=(1.3, 1), layout="constrained"
    )
    figure.suptitle(title, fontsize=16, fontweight="bold")
    for (way, rounds), (left, right) in zip(played.items(), axes, strict=True):
        some_takes(left, *shown[way])
        left.set_title(f"{way}\n", fontweight="bold", fontsize=13)
        left.text(0, 1.03, CAPTIONS[way], transform=left.transAxes)
        every_round(right, rounds)
    axes[-1, 0].set_xlabel(f"{TAKES} takes of one round, one after another from left to right")
    axes[-1, 1].set_xlabel("item")
    figure.legend(
        handles=[Patch(color=color, label=label) for label, color in COLORS.items()],
        title="each item by how often it was taken in its round",
        loc="outside lower center",
        ncols=len(COLORS),
        frameon=False,
    )
    figure.savefig(path, dpi=120)


def some_takes(ax: Any, played: Any, moments: Moments) -> None:
    """Draw the stretch in which most takes repeat others: item numbers, a lane for each rank."""
    takes = sorted((at, item, rank) for rank, mine in enumerate(moments) for at, item in mine)
    items = np.array([item for _, item, _ in takes])
    stretches = np.lib.stride_tricks.sliding_window_view(items, min(TAKES, items.size))
    first = int(np.argmin([len(set(stretch)) for stretch in stretches.tolist()]))
    items = items[first : first + TAKES]
    lanes = [rank for _, _, rank in takes[first : first + TAKES]]
    nobody = len(moments)
    boxes = [(x, lane, item) for x, (lane, item) in enumerate(zip(lanes, items, strict=True))]
    for item in np.flatnonzero(played.takes == 0) + 1:
        if items.min() < item < items.max():  # where the counter had passed it
            boxes.append((int((items < item).argmax()) - 0.5, nobody, item))
    for x, lane, item in boxes:
        often = min(played.takes[item - 1], MOST)
        color = "white" if often in (0, MOST) else "black"
        box = {"boxstyle": "square,pad=0.25", "fc": list(COLORS.values())[often], "ec": "none"}
        ax.text(x, lane, str(item), ha="center", va="center", fontsize=8, color=color, bbox=box)
    ax.set_xlim(-1, TAKES)
    ax.set_ylim(nobody + 0.7, -0.7)
    step = max(1, len(moments) // 8)
    ax.set_yticks(
        [*range(0, nobody, step), nobody],
        [*(f"rank {rank}" for rank in range(0, nobody, step)), "nobody"],
    )
    ax.set_xticks([])
    ax.tick_params(length=0)
    ax.hlines(range(nobody + 1), -1, TAKES, color="#eeeeee", lw=0.8, zorder=0)
    ax.spines[:].set_visible(False)


def every_round(ax: Any, rounds: Sequence[Any]) -> None:
    """Draw how often each item was taken: a line for each round."""
    takes = np.array([each.takes for each in rounds])
    ax.imshow(
        takes.clip(max=MOST),
        cmap=ListedColormap(list(COLORS.values())),
        vmin=-0.5,
        vmax=MOST + 0.5,
        aspect="auto",
        interpolation="nearest",
        extent=(0.5, takes.shape[1] + 0.5, len(rounds) + 0.5, 0.5),
    )
    again, never = np.mean(takes > 1), np.mean(takes == 0)
    ax.set_title(f"of {takes.size:,} items, {again:.1%} taken again and {never:.1%} never")
    ax.set_ylabel("round")
