"""The figures of a training run over its steps, as text and as a picture: ``sotopia train show RUN``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.json_text import read_json
from sotopia_env.reports.charts import new_figure, paper_style, save_figure
from sotopia_env.reports.sheet import table
from sotopia_training.stage.directory import DONE, StageDirectory
from sotopia_training.stage.settings import ModelSettings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 24
_PLAY = (
    "agreement/",
    "scores/",
    "episodes/",
    "roles/",
    "groups/",
    "reward_model/",
    "dev/",
    "loss",
    "eval_loss",
    "reward",
)
# The first two are TRL's own: the spread within groups, and the share of groups without any.
_TRAINING = (
    "reward_std",
    "frac_reward_zero_std",
    "entropy",
    "effective_sample_size",
    "clip_ratio/region_mean",
    "completions/mean_length",
    "kl",
    "turns/",
)
SHOWN: tuple[str, ...] = (*_PLAY, *_TRAINING)
"""Names of figures, or beginnings of names that end in a slash, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A figure of a run.

    Attributes:
        name: its name, as trackers get it.
        points: pairs of a step and a value, oldest first.
    """

    name: str
    points: tuple[tuple[float, float], ...]

    @property
    def values(self) -> tuple[float, ...]:
        """The values."""
        return tuple(value for _, value in self.points)


def read_curves(run: str | Path) -> list[Curve]:
    """Returns the figures of a training stage, in the order of :data:`SHOWN`; those of its last checkpoint if it runs.

    Raises:
        InvalidValueError: the directory is not one of a training stage, or it has no step yet.
    """
    path = Path(run)
    entries = _entries(path)
    if not entries:
        raise InvalidValueError(
            "it has no figures of steps yet", where=path, hint="name the directory of bc, sr, rm or grpo"
        )
    names = dict.fromkeys(name for entry in entries for name in entry)
    shown = [name for key in SHOWN for name in names if name == key or (key.endswith("/") and name.startswith(key))]
    return [Curve(name, _points(entries, name)) for name in dict.fromkeys(shown)]


def _entries(path: Path) -> list[Mapping[str, Any]]:
    if not path.is_dir():
        raise InvalidValueError(expected="the directory of a training stage", where=path)
    stage = StageDirectory(path, "", ModelSettings(base=""))
    looks = path / "dev.json"
    dev = read_json(looks, finite=False) if looks.is_file() else []
    entries = [{f"dev/{name}" if name != "step" else name: value for name, value in look.items()} for look in dev]
    if (path / DONE).is_file():
        figures = stage.figures or {}
        return [*figures.get("log", ()), *entries]
    checkpoints = stage.complete_checkpoints()
    return [*(checkpoints[-1][1].get("log_history", ()) if checkpoints else ()), *entries]


def _points(entries: Sequence[Mapping[str, Any]], name: str) -> tuple[tuple[float, float], ...]:
    rows = [(float(entry["step"]), float(entry[name])) for entry in entries if name in entry and "step" in entry]
    return tuple(sorted(rows))


def curves_text(curves: Sequence[Curve]) -> str:
    """Returns a table: each figure's first and last value, its number of points, and its course as bars."""
    rows = [
        (c.name, f"{c.values[0]:.4g}", f"{c.values[-1]:.4g}", str(len(c.points)), _bars(c.values))
        for c in curves
        if c.points
    ]
    return table(("figure", "first", "last", "n", "course"), rows) + "\n"


def _bars(values: Sequence[float]) -> str:
    """Returns one bar for each value, or for each of 24 equal parts of them, between the lowest and the highest."""
    parts = min(len(values), _WIDTH)
    means = []
    for part in range(parts):
        members = values[part * len(values) // parts : (part + 1) * len(values) // parts]
        means.append(sum(members) / len(members))
    low, high = min(means), max(means)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] for value in means)


def curves_chart(curves: Sequence[Curve], title: str) -> Figure:
    """Returns one panel for each figure, over steps."""
    columns = 3
    rows = -(-len(curves) // columns)
    figure = new_figure(3.0 * columns, 1.7 * rows + 0.4)
    with paper_style():
        for number, curve in enumerate(curves, start=1):
            axes = figure.add_subplot(rows, columns, number)
            axes.plot(*zip(*curve.points, strict=True), marker="." if len(curve.points) < 30 else "", linewidth=1)
            axes.set_title(curve.name)
            axes.set_xlabel("step")
        figure.suptitle(title)
    return figure


def show(run: str | Path) -> str:
    """Returns the figures of a run as text, and writes ``curves.png`` and ``curves.svg`` into its directory.

    Raises:
        InvalidValueError: as :func:`read_curves`, or the files cannot be written.
    """
    curves = [curve for curve in read_curves(run) if curve.points]
    paths = save_figure(curves_chart(curves, Path(run).name), Path(run) / "curves", ("png", "svg"))
    return curves_text(curves) + "".join(f"{path}\n" for path in paths)
