"""The registry of task families by name; a family's module is imported on first use."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError, check_whole
from sotopia_env.tasks.families.family import Family
from sotopia_env.tasks.texts import LANGUAGES
from sotopia_env.world.scenario import Task
from sotopia_env.world.taskset import TaskSet

_NAMES = (
    "bargaining",
    "division",
    "mutual_friend",
    "hiring",
    "group_decision",
    "campsite",
    "job_committee",
    "negotiation",
    "mini_mafia",
    "briefing",
)
_GAMES = ("dilemma", "volunteer", "trust", "public_goods", "traveller", "commons", "grid")
_MODULES: Mapping[str, str] = MappingProxyType({name: f"sotopia_env.tasks.families.{name}" for name in _NAMES})
"""The modules of families that are code; the others (``_GAMES``) are files of data in :mod:`.games`."""


MECHANISMS = (
    *(f"{name}-{mechanism}" for name in _GAMES for mechanism in ("contract", "reputation")),
    *(f"{name}-mediation" for name in ("dilemma", "grid")),
    "dilemma-ending",
)
"""The names of games of choices with a mechanism: the same tasks, for the same seeds, with other rules."""
REPLICATED = ("ultimatum", "trust-published", "public_goods-published")
"""The names of games that are played as in a published experiment (:mod:`sotopia_env.people.replications`)."""


ROLES = ("mafia", "werewolf", "jester")
"""The names of games with hidden roles, for five to nine seats; they are files of data in :mod:`.roles`."""


@cache
def _roles(name: str) -> Family:
    from sotopia_env.tasks.families.roles.drawing import read_roles_family

    return read_roles_family(name)


@cache
def _game(name: str) -> Family:
    from sotopia_env.tasks.families.games.drawing import read_game_family

    stem, _, mechanism = name.partition("-")
    return read_game_family(stem, mechanism)


TRANSLATIONS = tuple(f"{name}-{language}" for name in ("mini_mafia", "briefing") for language in LANGUAGES)
"""The names of families in other languages than English: the same tasks, for the same seeds."""
UNLISTED = (*MECHANISMS, *REPLICATED, *TRANSLATIONS, *ROLES)
"""The names of all families that a set of all families leaves out."""


@cache
def _translation(name: str) -> Family:
    stem, _, language = name.rpartition("-")
    family: Family = importlib.import_module(_MODULES[stem]).in_language(language)
    return family


class _Families(Mapping[str, Family]):
    """A mapping of names to families that imports a family's module on first use.

    It also has :data:`TRANSLATIONS`, :data:`MECHANISMS`, :data:`REPLICATED` and :data:`ROLES`, which it does not list:
    a set of all families has each of the others once, and few seats.
    """

    def __getitem__(self, name: str) -> Family:
        if name in (*_GAMES, *MECHANISMS, *REPLICATED):
            return _game(name)
        if name in ROLES:
            return _roles(name)
        if name in TRANSLATIONS:
            return _translation(name)
        family: Family = importlib.import_module(_MODULES[name]).FAMILY
        return family

    def __iter__(self) -> Iterator[str]:
        return iter((*_MODULES, *_GAMES))

    def __len__(self) -> int:
        return len(_MODULES) + len(_GAMES)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in _MODULES or name in (*_GAMES, *UNLISTED))

    def __repr__(self) -> str:
        return f"FAMILIES({', '.join(self)})"


FAMILIES: Mapping[str, Family] = _Families()
"""The families by name."""


def family(name: str) -> Family:
    """Returns the family called ``name``.

    Raises:
        UnknownNameError: there is no family of this name; the message suggests the nearest name.
    """
    if name not in FAMILIES:
        raise UnknownNameError(field="family", got=name, valid=[*FAMILIES, *UNLISTED])
    return FAMILIES[name]


_REGISTERED: dict[str, Family] = {}


def register_family(family: Family) -> Family:
    """Registers the family of another package under its name, so that scripted policies use its words in its tasks.

    A family that is named as a source of tasks is registered automatically. Tasks of an unregistered family are played
    in plain English.

    Raises:
        InvalidValueError: a family of this package or another registered family has this name.
    """
    # Equal families may be registered repeatedly: each task source that names one registers it.
    if family.name in FAMILIES or _REGISTERED.setdefault(family.name, family) != family:
        raise InvalidValueError(field="family", expected="a name that no other family has", got=family.name)
    return family


def family_named_in(shared_data: Mapping[str, object]) -> Family | None:
    """Returns the family that ``shared_data["family"]`` names, or ``None``."""
    # Other scenarios may use the key for anything, so a value that is not a family's name is not an error.
    name = shared_data.get("family")
    if not isinstance(name, str):
        return None
    return FAMILIES[name] if name in FAMILIES else _REGISTERED.get(name)


def family_of(task: Task) -> Family | None:
    """Returns the family that made ``task``, or ``None`` for any other task."""
    return family_named_in(task.scenario.shared_data)


def generate(
    family: str | Family | Sequence[str | Family], n: int, seed: int, level: str = "medium", start: int = 0
) -> TaskSet:
    """Returns ``n`` generated tasks.

    Args:
        family: a family or its name, or several. Several families take turns: task ``k`` of the set is task
            ``start + k // len(family)`` of family ``k % len(family)``.
        n: number of tasks in total, from 0.
        seed: seed of every family's sequence, from 0.
        level: ``"easy"``, ``"medium"`` or ``"hard"``.
        start: index of the first task in each family's sequence.

    Raises:
        UnknownNameError: a family or the level does not exist.
        InvalidValueError: ``n``, ``seed`` or ``start`` is not a non-negative integer, or no family is named.
    """
    if not isinstance(family, str | Family | Iterable):
        raise InvalidValueError(field="family", expected="a name or several", got=family)
    sources = [family] if isinstance(family, str | Family) else list(family)
    makers = [source if isinstance(source, Family) else _named(source) for source in sources]
    names = [maker.name for maker in makers]
    if not names or len(set(names)) != len(names):
        raise InvalidValueError(field="family", expected="one or more different names", got=names)
    for field, value in (("n", n), ("start", start)):
        check_whole(field, value, 0)
    return TaskSet([makers[k % len(makers)].generate(start + k // len(makers), seed, level) for k in range(n)])


_named = family  # ``generate`` has a parameter of the same name
