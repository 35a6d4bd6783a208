"""Importer of SOTOPIA-TOM's scenarios (arXiv 2605.02307): agents of whom each knows a part of the facts.

Every fact becomes a variable. Its options are four *versions* by letter, of which one, drawn by a hash of the fact, is
the true one. The words of a fact stand in the private information of the agents who know it and nowhere else: an
option that quoted them would tell everybody who reads the options what the fact is, and the words of other facts as
wrong options could be told from the right one by what they say.

- A ``public`` fact may be told to all, a ``private`` one in private turns; one that an agent who knows it is not to
  share may be known to nobody else, and one that another agent cannot know not to that agent.
- ``desired_knowledge`` says what is wanted of facts of others; no seat reads it, and no seat reads the names of facts
  that it may not know. A wanted fact that the seat may not know does not count.
- Keys of these lists are matched with facts as :mod:`~sotopia_env.importers.formats.facts.keys` says.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.foreign import (
    Foreign,
    Format,
    Identity,
    Product,
    ProductKind,
    Text,
    check_distinct_names,
    converted,
    one_line,
    plain_name,
)
from sotopia_env.importers.formats.facts.keys import KeyMatches
from sotopia_env.importers.library import Library, content_id
from sotopia_env.importers.source import RawRecord
from sotopia_env.outcomes.amounts import conjunction
from sotopia_env.outcomes.facts import Facts, Variable
from sotopia_env.world.scenario import Character, Relationship, RelationshipKind, Scenario, Seat, Task

VERSIONS = ("version A", "version B", "version C", "version D")
"""The options of every fact."""
_VERSIONS = "Of every fact there are four versions, of which one is true. Who knows a fact knows which one."
_NAME = "sotopia-tom"
NOTHING_WANTED = "nothing wanted"
"""Tag of tasks in which no wanted fact may be known to the seat that wants it."""


class TomFact(Foreign):
    """What a fact is, and to whom it may be told at all."""

    value: str | list[str]
    sensitivity: Literal["public", "private"]

    @property
    def text(self) -> str:
        """The value on one line."""
        return one_line(self.value if isinstance(self.value, str) else ", ".join(self.value))


class TomSharing(Foreign):
    """The agent's own policy on sharing; keys of its facts."""

    what_to_share: list[str] = Field(default_factory=list)
    what_not_to_share: list[str] = Field(default_factory=list)


class TomGoals(Foreign):
    """The agent's goal in words, and its policy."""

    primary_objective: str
    sharing_policy: TomSharing


class TomLearning(Foreign):
    """What the agent is to know at the end, and what it must not; keys of facts of others."""

    desired_knowledge: list[str] = Field(default_factory=list)
    cannot_know_knowledge: list[str] = Field(default_factory=list)


class TomAgent(Foreign):
    """An agent, which has a role and no name."""

    agent_id: Identity
    role: str
    pre_interaction_knowledge: dict[str, TomFact]
    post_interaction_knowledge: TomLearning
    goals: TomGoals


class TomScenario(Foreign):
    """A scenario."""

    scenario_id: Identity
    scenario_goal: str
    agents: list[TomAgent] = Field(min_length=2)
    knowledge_domain_map: dict[str, str | list[str]] = Field(default_factory=dict)
    sector: Text = ""

    def seats_knowing(self, key: str) -> list[int]:
        """Returns the seats that know a fact from the start."""
        return [seat for seat, agent in enumerate(self.agents) if key in agent.pre_interaction_knowledge]

    def texts(self, key: str) -> list[str]:
        """Returns the values of a fact, one for each seat that knows it."""
        return [self.agents[seat].pre_interaction_knowledge[key].text for seat in self.seats_knowing(key)]

    def version(self, key: str) -> str:
        """Returns the true option of a fact."""
        return VERSIONS[int(content_id(self.scenario_id, key, *self.texts(key)[:1]), 16) % len(VERSIONS)]


@dataclass(frozen=True, slots=True)
class _Lists:
    """By seat, the facts that its lists name."""

    withheld: Sequence[Sequence[str]]
    barred: Sequence[Sequence[str]]
    targets: Sequence[Sequence[str]]


def _lists(scenario: TomScenario, matches: KeyMatches) -> _Lists:
    keys = _keys(scenario)
    withheld, barred, targets = [], [], []
    for seat, agent in enumerate(scenario.agents):
        own = list(agent.pre_interaction_knowledge)
        others = [key for key in keys if key not in own]
        policy, after = f"agents.{seat}.goals.sharing_policy", f"agents.{seat}.post_interaction_knowledge"
        sharing, learning = agent.goals.sharing_policy, agent.post_interaction_knowledge
        # What may be shared follows from the other lists; its keys are matched so that strays are counted.
        matches.facts(f"{policy}.what_to_share", sharing.what_to_share, own)
        withheld.append(matches.facts(f"{policy}.what_not_to_share", sharing.what_not_to_share, own))
        barred.append(matches.facts(f"{after}.cannot_know_knowledge", learning.cannot_know_knowledge, others))
        targets.append(matches.facts(f"{after}.desired_knowledge", learning.desired_knowledge, others))
    return _Lists(withheld, barred, targets)


def _keys(scenario: TomScenario) -> list[str]:
    """The keys of all facts, each once."""
    return list(dict.fromkeys(key for agent in scenario.agents for key in agent.pre_interaction_knowledge))


def read(scenario: TomScenario, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the task of a scenario, with notes on the keys of its lists."""
    check_distinct_names([agent.role for agent in scenario.agents])
    _check_values(scenario)
    matches = KeyMatches()
    lists = _lists(scenario, matches)
    if matches.strays and not matches.matches:
        field, key = matches.strays[0]
        hint = "write the keys of pre_interaction_knowledge in all lists; none of them is one"
        raise DamagedRecordError(field=field, got=key, valid=_keys(scenario), hint=hint)
    variables = converted(lambda: tuple(_variable(scenario, key, lists) for key in _keys(scenario)))
    task = converted(lambda: _task(scenario, variables))
    yield Product(ProductKind.TASK, task, (*matches.notes, *_conflicts(scenario, lists, variables)))


def _check_values(scenario: TomScenario) -> None:
    """Raises :class:`DamagedRecordError` if two agents know one fact differently."""
    for key in _keys(scenario):
        if len(set(scenario.texts(key))) > 1:
            seat = scenario.seats_knowing(key)[1]
            raise DamagedRecordError(
                "another agent knows this fact with another value",
                field=f"agents.{seat}.pre_interaction_knowledge.{key}",
                got=scenario.texts(key)[1],
                hint="give each of the two facts a key of its own",
            )


def _variable(scenario: TomScenario, key: str, lists: _Lists) -> Variable:
    own = scenario.seats_knowing(key)
    others = [seat for seat in range(len(scenario.agents)) if seat not in own]
    withheld = any(key in lists.withheld[seat] for seat in own)
    admitted = [seat for seat in others if not withheld and key not in lists.barred[seat]]
    private = any(scenario.agents[seat].pre_interaction_knowledge[key].sensitivity == "private" for seat in own)
    name = plain_name(key)
    return Variable(
        name=name,
        options=VERSIONS,
        value=scenario.version(key),
        text=one_line(key) if name != key else "",
        known_by=_agents(own),
        may_know="all" if len(admitted) == len(others) else _agents(admitted),
        channel="private" if private else "all",
        wanted_by=_agents([seat for seat in admitted if key in lists.targets[seat]]),
    )


def _agents(seats: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"agent_{seat}" for seat in seats)


def _conflicts(scenario: TomScenario, lists: _Lists, variables: Sequence[Variable]) -> Iterator[str]:
    """A sentence for every fact that is wanted by a seat that may not know it."""
    for key, variable in zip(_keys(scenario), variables, strict=True):
        for seat, targets in enumerate(lists.targets):
            if key in targets and f"agent_{seat}" not in variable.wanted_by:
                role = scenario.agents[seat].role
                yield f"desired_knowledge (withheld): {key!r} may not be known to {role!r}; it does not count as wanted"


def _task(scenario: TomScenario, variables: Sequence[Variable]) -> Task:
    # The content is in the id, because files use an id for several scenarios.
    name = f"{_NAME}/{scenario.scenario_id}/{content_id(scenario.model_dump_json())}"
    has_targets = any(variable.wanted_by for variable in variables)
    return Task(
        id=name,
        scenario=Scenario(
            id=name,
            context="\n".join(_context(scenario)),
            seats=tuple(_seat(scenario, agent) for agent in scenario.agents),
            private_messages=True,
            source="SOTOPIA-TOM",
            tags=(_NAME, *filter(None, [one_line(scenario.sector)]), *([] if has_targets else [NOTHING_WANTED])),
            facts=Facts(variables=tuple(variables), open_wants=False),
        ),
        characters=tuple(
            Character(first_name=plain_name(agent.role), gender="", pronouns="", occupation="")
            for agent in scenario.agents
        ),
        relationships=tuple(
            Relationship(seats=pair, kind=RelationshipKind.ACQUAINTANCE)
            for pair in itertools.combinations(range(len(scenario.agents)), 2)
        ),
    )


def _context(scenario: TomScenario) -> Iterator[str]:
    yield one_line(scenario.scenario_goal)
    areas = [(area, [who] if isinstance(who, str) else who) for area, who in scenario.knowledge_domain_map.items()]
    if areas:
        yield one_line(f"Who knows about what: {'; '.join(f'{area} ({conjunction(roles)})' for area, roles in areas)}.")
    yield _VERSIONS


def _seat(scenario: TomScenario, agent: TomAgent) -> Seat:
    sharing = agent.goals.sharing_policy
    items = [f"{key}: {fact.text} ({scenario.version(key)})" for key, fact in agent.pre_interaction_knowledge.items()]
    lists = (("What you know", items), ("To share", sharing.what_to_share), ("Not to share", sharing.what_not_to_share))
    return Seat(
        goals=(one_line(agent.goals.primary_objective),),
        private_info=" ".join(f"{title}: {one_line('; '.join(entries))}." for title, entries in lists if entries),
    )


TOM = Format(_NAME, "SOTOPIA-TOM scenarios", ProductKind.TASK, TomScenario, read)
