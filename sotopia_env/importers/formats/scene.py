"""Tasks reconstructed from the observations in a file of episodes, for files without profiles."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sotopia_env.importers.foreign import one_line
from sotopia_env.importers.formats.profiles import seat_of
from sotopia_env.importers.formats.sotopia_text import scenario_parts
from sotopia_env.importers.library import content_id
from sotopia_env.world.scenario import Character, Relationship, RelationshipKind, Scenario, Task


@dataclass(frozen=True, slots=True)
class ObservedScene:
    """The parts of a task that appear in a file of episodes.

    Attributes:
        id: id of the scenario; empty if unknown.
        context: the scenario's text, including markup.
        goals: goals by name, in seat order.
        backgrounds: each participant's own background as shown to it, by name.
        descriptions: the others' backgrounds as shown to a participant, by the names of the reader and of the described
            character.
        codename: codename of the scenario.
        private: whether private messages occur.
        ids: ids of the characters, in seat order; empty if the file has none.
    """

    id: str
    context: str
    goals: Mapping[str, str]
    backgrounds: Mapping[str, str]
    descriptions: Mapping[tuple[str, str], str]
    codename: str = ""
    private: bool = False
    ids: Sequence[str] = ()

    @property
    def key(self) -> tuple[object, ...]:
        """A hashable key that is equal for equal scenes."""
        parts = (*self.goals.items(), *self.backgrounds.items(), *self.descriptions.items())
        return (self.id, self.context, parts, self.codename, self.private, *self.ids)

    def task(self) -> Task:
        """Returns the task; unknown fields of its characters are empty."""
        names = list(self.goals)
        ids = self.ids if len(self.ids) == len(names) else [""] * len(names)
        marked = scenario_parts(self.context)
        seats = tuple(seat_of(self.goals[name], marked.private.get(f"agent_{n}", "")) for n, name in enumerate(names))
        scenario = Scenario(
            id=self.id or content_id(self.context, *self.goals.values()),
            context=marked.text,
            seats=seats,
            private_messages=self.private,
            tags=(one_line(self.codename),) if self.codename else (),
        )
        pairs = list(itertools.combinations(range(len(names)), 2))
        return Task(
            id=f"{scenario.id[:60]}/{content_id(*self.key)}",
            scenario=scenario,
            characters=tuple(map(self._character, names, ids)),
            relationships=tuple(Relationship(seats=pair, kind=self._kind(names, pair)) for pair in pairs),
        )

    def _character(self, name: str, id: str) -> Character:
        """The character of a participant; a background that only it was shown remains private."""
        first, _, last = name.partition(" ")
        description = next((text for (_, described), text in self.descriptions.items() if described == name), "")
        own = one_line(self.backgrounds.get(name, ""))
        private = {"background": own} if own and own != one_line(description) else {}
        return Character(
            id=one_line(id),
            first_name=first,
            last_name=last,
            gender="",
            pronouns="",
            occupation="",
            public_info=one_line(description),
            private_attributes=private,
        )

    def _kind(self, names: Sequence[str], pair: tuple[int, int]) -> RelationshipKind:
        one, other = (names[seat] for seat in pair)
        is_described = self.descriptions.get((one, other)) or self.descriptions.get((other, one))
        # The weakest kinds that reproduce the observations: strangers are shown no background, acquaintances are.
        return RelationshipKind.ACQUAINTANCE if is_described else RelationshipKind.STRANGER
