"""The choice of a target in a game of hidden roles: whom a script votes for, kills, protects or inspects."""

from __future__ import annotations

from collections.abc import Mapping

from sotopia_env.outcomes.roles.rules import RolesRules
from sotopia_env.policies.speakers.belief import Beliefs
from sotopia_env.world.observation import Observation


def foes(observation: Observation, beliefs: Beliefs) -> Mapping[str, float]:
    """Returns the probability that a person is of another team than the seat, by name, in a game of hidden roles."""
    rules, facts = observation.briefing.rules, observation.briefing.facts
    assert isinstance(rules, RolesRules)
    assert facts is not None
    people = {partner.agent: partner.name for partner in observation.briefing.partners}
    people[observation.agent] = observation.briefing.name
    roles = {
        v.of: beliefs[v.name] for v in facts.variables.values() if v.kind == "role" and {*v.options} <= {*rules.roles}
    }
    own = max(roles[observation.agent], key=roles[observation.agent].__getitem__)
    team = rules.roles[own].team
    return {
        people[agent]: sum(share for role, share in belief.items() if rules.roles[role].team != team)
        for agent, belief in roles.items()
    }


def target_worths(observation: Observation, options: tuple[str, ...], beliefs: Beliefs) -> Mapping[str, float]:
    """Returns how good a target each person is: a foe to get rid of, a friend to protect, a riddle to inspect."""
    chances = foes(observation, beliefs)
    effect = "" if observation.table is None or observation.table.game is None else observation.table.game.effect
    if effect == "inspect":
        return {name: -abs(chances[name] - 0.5) for name in options}
    sign = -1.0 if effect == "protect" else 1.0
    return {name: sign * chances[name] for name in options}
