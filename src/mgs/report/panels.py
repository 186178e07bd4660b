"""What figures of studies have in common: panels, legends, a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mgs.experiments.study import Study


def panels(num: int, across: str, up: str) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * num, 3.4), layout="constrained")
    places = list(figure.subplots(1, num, squeeze=False).flat)
    for axes in places:
        axes.set_xlabel(across)
        axes.set_ylabel(up)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, places


def save(figure: Any, axes: Any, study: Study, file: Path) -> None:
    legend(axes)
    axes.set_title(study.title, fontsize=9)
    figure.savefig(file, dpi=150)


def legend(axes: Any) -> None:
    if axes.get_legend_handles_labels()[0]:  # nothing may be done yet
        axes.legend(frameon=False, fontsize=7)
