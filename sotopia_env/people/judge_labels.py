"""Labels of judges: those of one model are distinguished by the settings in which they differ."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from sotopia_env.storage.evaluator_names import evaluator_labels
from sotopia_env.world.episode import Episode

_TAG = re.compile(r"#([0-9a-f]{6})\b")


def recorded_judges(episodes: Iterable[Episode], names: Sequence[str]) -> list[str]:
    """Returns the recorded names for names of which a hash alone is enough: ``217f3f`` for ``judge(MODEL)#217f3f``.

    Names that match no hash, or several, are returned as they are.
    """
    recorded = {evaluation.evaluator for episode in episodes for evaluation in episode.evaluations}
    found = []
    for name in names:
        matches = [item for item in recorded if name.removeprefix("#") in _TAG.findall(item)]
        found.append(matches[0] if name not in recorded and len(matches) == 1 else name)
    return found


def judge_labels(episodes: Iterable[Episode], names: Sequence[str]) -> Mapping[str, str]:
    """Returns a label for each judge: its name, and the settings that differ between judges of one model.

    Args:
        episodes: the evaluated episodes.
        names: the names of the judges.
    """
    return evaluator_labels(names, {e.evaluator: e.parameters for episode in episodes for e in episode.evaluations})
