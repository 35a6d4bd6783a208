"""Families of role games read from files of one's own: what is wrong in a file is refused when it is read, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from sotopia_env.foundation.errors import InvalidTaskError
from sotopia_env.tasks.families.roles import drawing
from sotopia_env.tasks.families.roles.drawing import roles_family

Change = Callable[[dict[str, Any]], object]
SHIPPED = Path(drawing.__file__).with_name("werewolf.yaml")


def changed(tmp_path: Path, change: Change) -> Path:
    file = tmp_path / "own.yaml"
    data = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
    change(data)
    file.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return file


def test_a_family_of_a_file_draws_every_level(tmp_path: Path) -> None:
    family = roles_family(changed(tmp_path, lambda data: data["contexts"].append("{people} play {a game}.")))
    assert family.name == "own"
    assert len({family.generate(0, 0, level).id for level in ("easy", "medium", "hard")}) == 3


@pytest.mark.parametrize(
    ("change", "field", "names"),
    [
        (lambda data: data["levels"]["easy"]["deal"].update(witch=1), "levels.easy.deal", "witch"),
        (lambda data: data["levels"]["easy"]["deal"].update(doctor=-1), "levels.easy.deal.doctor", "-1"),
        (lambda data: data["levels"]["hard"]["deal"].update(doctor=0), "levels.hard.deal", "levels.hard.without"),
        (lambda data: data["levels"]["easy"]["deal"].update(doctor=2, villager=3), "facts.variables", "doctor"),
        (lambda data: data["levels"]["easy"]["deal"].update(villager=9), "outcome.worth", "2 to 9 seats"),
        (lambda data: data["levels"]["easy"].update(without=["dusk"]), "levels.easy.without", "dusk"),
        (lambda data: data["levels"]["easy"].update(phases={"dusk": {}}), "levels.easy.phases", "dusk"),
        (lambda data: data["levels"].pop("hard"), "levels", "hard"),
        (lambda data: data["goals"].pop("seer"), "goals", "seer"),
        (lambda data: data["goals"].update(seer=[]), "goals.seer", "at least 1"),
        (lambda data: data.update(hints=[]), "hints", "at least 1"),
        (lambda data: data.update(cycles=0), "cycles", "0"),
        (lambda data: data["informs"].update(wolff=["wolf"]), "informs", "wolff"),
        (lambda data: data["informs"].update(wolf=["wolff"]), "informs.wolf", "wolff"),
    ],
)
def test_what_is_wrong_in_a_file_is_refused_with_its_field(
    tmp_path: Path, change: Change, field: str, names: str
) -> None:
    file = changed(tmp_path, change)
    with pytest.raises(InvalidTaskError) as refused:
        roles_family(file)
    assert refused.value.field == field
    assert names in str(refused.value)
    assert str(file) in str(refused.value)
