"""Labels of judges: those of one model are distinguished by the settings in which they differ."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sotopia_env.storage.evaluator_names import evaluator_labels, recorded_evaluator
from sotopia_env.world.episode import Episode

_TAG = re.compile(r"#([0-9a-f]{6})\b")


def recorded_judges(episodes: Iterable[Episode], names: Sequence[str]) -> list[str]:
    """Returns the recorded names for names of judges.

    Args:
        episodes: the evaluated episodes.
        names: recorded names, such as ``judge(MODEL)#217f3f``; the hash alone (``217f3f``); or names in a
            configuration, with options where judges share a model (``judge:MODEL:bands=true``).

    Raises:
        UnknownNameError: no recorded name matches, or several.
    """
    parameters = _parameters(episodes)
    results = []
    for name in names:
        matches = [item for item in parameters if name.removeprefix("#") in _TAG.findall(item)]
        results.append(
            matches[0] if len(matches) == 1 else recorded_evaluator(name, parameters, parameters, setting="judge")
        )
    return results


def _parameters(episodes: Iterable[Episode]) -> dict[str, Mapping[str, Any]]:
    return {e.evaluator: e.parameters for episode in episodes for e in episode.evaluations}


def judge_labels(episodes: Iterable[Episode], names: Sequence[str]) -> Mapping[str, str]:
    """Returns a label for each judge: its name, and the settings that differ between judges of one model.

    Args:
        episodes: the evaluated episodes.
        names: the names of the judges.
    """
    return evaluator_labels(names, _parameters(episodes))
