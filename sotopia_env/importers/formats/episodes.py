"""Importers of SOTOPIA's episodes: ``EpisodeLog``, and the lines published as ``cmu-lti/sotopia`` and by SOTOPIA-π.

Profiles that an episode names are taken from files imported with it. Without them, the task is reconstructed from the
seats' observations: little more than the names of the characters is known, and two seats are acquaintances if one was
shown the other's background. SOTOPIA stores a failed evaluation as a bare number or omits it; here it is *unscored*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pydantic import AliasChoices, Field

from sotopia_env.foundation.errors import DamagedRecordError, FieldError
from sotopia_env.importers.foreign import (
    Foreign,
    Format,
    Identity,
    Product,
    ProductKind,
    Text,
    check_distinct_names,
    converted,
)
from sotopia_env.importers.formats.evaluations import IMPORTED, evaluation_of, reasoning_text, rewards_of
from sotopia_env.importers.formats.profiles import character_id
from sotopia_env.importers.formats.scene import ObservedScene
from sotopia_env.importers.formats.sotopia_text import (
    UNKNOWN,
    Opening,
    action_of,
    action_text,
    goal_text,
    interactions_of,
    interactions_text,
    opening_of,
    opening_text,
)
from sotopia_env.importers.library import Library, content_id
from sotopia_env.importers.playback import Act, Playback, play_acts, play_steps
from sotopia_env.importers.source import RawRecord
from sotopia_env.world.action import NO_ACTION, Action, ActionType
from sotopia_env.world.episode import Episode, Evaluation, PolicyInfo
from sotopia_env.world.scenario import Character, Seat, Task

ENVIRONMENT = "Environment"
UNKNOWN_POLICY = "unknown"
_MESSAGE_FIELDS = "a list of steps of (sender, receiver, text)"

Messages = list[list[tuple[str, str, str]]]


class EpisodeLog(Foreign):
    """An episode as the reference code stores it."""

    pk: Identity = Field(default="", validation_alias=AliasChoices("pk", "episode_id"))
    environment: Identity
    agents: tuple[Identity, ...]
    tag: str | None = None
    models: tuple[str, ...] | None = None
    agent_classes: Any = None
    messages: Messages
    reasoning: Text = ""
    rewards: list[Any] | None = None
    rewards_prompt: Text = ""


class EpisodeLine(Foreign):
    """An episode as published."""

    one_of = (("social_interactions", "raw_messages"),)
    episode_id: Identity
    environment_id: Identity = ""
    agent_ids: tuple[Identity, ...] = ()
    experiment_tag: Text = ""
    experiment_model_name_pairs: tuple[str, ...] | None = None
    raw_messages: Messages = Field(default_factory=list)
    raw_rewards: Any = None
    raw_rewards_prompt: Text = ""
    scenario: str
    codename: Text = ""
    agents_background: dict[str, Text]
    social_goals: dict[str, Text]
    social_interactions: Text = ""
    reasoning: Text = ""
    rewards: list[Any] | None = None


# --- tasks -----------------------------------------------------------------------------------------------------------


def _scene_of_log(log: EpisodeLog, names: Sequence[str], private: bool) -> ObservedScene:
    """The scene in an episode's first observations."""
    first = {receiver: text for sender, receiver, text in log.messages[0] if sender == ENVIRONMENT}
    openings = {name: opening_of(first.get(name, ""), names) for name in names}
    descriptions = {
        (name, other): text
        for name, opening in openings.items()
        for other, text in opening.backgrounds.items()
        if other != name and text not in ("", UNKNOWN)
    }
    return ObservedScene(
        log.environment,
        openings[names[0]].scenario,
        {name: openings[name].goals[name] for name in names},
        {name: openings[name].backgrounds[name] for name in names},
        descriptions,
        private=private,
        ids=log.agents,
    )


def _names_of(messages: Messages) -> list[str]:
    """The participants' names in seat order, which is the order in which the first step addresses them."""
    if not messages or not messages[0]:
        raise DamagedRecordError(field="messages", expected=_MESSAGE_FIELDS)
    names = list(dict.fromkeys(receiver for sender, receiver, _ in messages[0] if sender == ENVIRONMENT))
    check_distinct_names(names)
    return names


def _steps_of(field: str, messages: Messages, names: Sequence[str]) -> list[list[Action]]:
    """The actions of all seats for every step; a seat without a message took no action."""
    seats = {name: seat for seat, name in enumerate(names)}
    ids = {name: f"agent_{seat}" for name, seat in seats.items()}
    steps = []
    for number, step in enumerate(messages):
        actions = [NO_ACTION] * len(names)
        for position, (sender, _, text) in enumerate(step):
            if sender == ENVIRONMENT:
                continue
            where = f"{field}.{number}.{position}"
            if sender not in seats:
                raise DamagedRecordError(field=where, expected=f"one of {list(names)} as sender", got=sender)
            try:
                actions[seats[sender]] = action_of(text, ids)
            except FieldError as error:
                raise DamagedRecordError.of(error, within=where) from None
        # The last step holds only observations: the reference code sends them after the final actions.
        if any(sender != ENVIRONMENT for sender, _, _ in step):
            steps.append(actions)
    return steps


def _is_private(steps: Sequence[Sequence[Action]]) -> bool:
    return any(action.to for step in steps for action in step)


# --- episodes --------------------------------------------------------------------------------------------------------


def imported_episode(
    key: str,
    task: Task,
    playback: Playback,
    policies: Sequence[str],
    evaluations: tuple[Evaluation, ...],
) -> Episode:
    """Returns the record of an episode that was played elsewhere.

    Args:
        key: key of the record.
        task: task of the episode.
        playback: playback of the episode's acts.
        policies: names of the policies by seat; a missing or empty name is recorded as unknown.
        evaluations: the evaluations in the file.
    """
    names = [*policies, *([""] * len(task.agents))]
    infos = [PolicyInfo(agent=agent, name=names[seat] or UNKNOWN_POLICY) for seat, agent in enumerate(task.agents)]
    return Episode(
        key=key,
        task=task,
        rules=playback.rules,
        policies=tuple(infos),
        turns=playback.turns,
        stop=playback.stop,
        evaluations=evaluations,
    )


def _task_of(
    library: Library, scenario: str, agents: Sequence[str], private: bool, scene: Callable[[], ObservedScene]
) -> Task:
    if agents and library.knows(scenario, agents):
        return library.task(scenario, agents, private)
    setting = scene()
    return library.shared(setting.key, setting.task)


def read_log(log: EpisodeLog, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the episode of an ``EpisodeLog``."""
    names = _names_of(log.messages)
    steps = _steps_of("messages", log.messages, names)
    private = _is_private(steps)
    task = converted(
        lambda: _task_of(library, log.environment, log.agents, private, lambda: _scene_of_log(log, names, private))
    )
    # ``models`` lists the evaluator first, then one model per agent.
    judge, *policies = log.models or ("",)
    evaluation = evaluation_of(log.rewards, log.reasoning, judge, len(names))
    playback = converted(lambda: play_steps(task, steps))
    key = log.pk or content_id(item.value)
    yield Product(ProductKind.EPISODE, imported_episode(key, task, playback, policies, (evaluation,)))


def read_line(line: EpisodeLine, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the episode of a published line."""
    names = list(line.social_goals)
    check_distinct_names(names)
    steps = _steps_of("raw_messages", line.raw_messages, names)
    acts = [] if steps else _acts_of(line, names)
    private = _is_private(steps) or any(act.action.to for act in acts)
    scene = ObservedScene(
        line.environment_id,
        line.scenario,
        line.social_goals,
        line.agents_background,
        {},
        line.codename,
        private,
        line.agent_ids,
    )
    task = converted(lambda: _task_of(library, line.environment_id, line.agent_ids, private, lambda: scene))
    judge, *policies = line.experiment_model_name_pairs or ("",)
    # Both fields hold the same values; a file may have only one of them.
    rewards = line.rewards if line.rewards is not None else line.raw_rewards
    evaluation = evaluation_of(rewards, line.reasoning, judge, len(names))
    playback = converted(lambda: play_steps(task, steps) if steps else play_acts(task, acts))
    yield Product(ProductKind.EPISODE, imported_episode(line.episode_id, task, playback, policies, (evaluation,)))


def _acts_of(line: EpisodeLine, names: Sequence[str]) -> list[Act]:
    ids = {name: f"agent_{seat}" for seat, name in enumerate(names)}
    turns = interactions_of(line.social_interactions, names)
    return [Act(seat, converted(lambda text=text: action_of(text, ids))) for seat, text in turns]  # type: ignore[misc]


# --- writers ---------------------------------------------------------------------------------------------------------


def _latest(episode: Episode) -> Evaluation | None:
    return episode.evaluation()


def _models(episode: Episode) -> list[str]:
    evaluation = _latest(episode)
    judge = "" if evaluation is None else evaluation.evaluator.removeprefix(IMPORTED).removeprefix(":")
    names = {policy.agent: policy.name for policy in episode.policies}
    return [judge, *(names.get(agent, UNKNOWN_POLICY) for agent in episode.task.agents)]


def _reasoning(episode: Episode) -> str:
    evaluation = _latest(episode)
    return "" if evaluation is None else reasoning_text(evaluation, episode.task)


def _steps(episode: Episode) -> list[list[Action]]:
    """The actions of all seats for every step of the reference code; in round-robin order each turn is one step."""
    task = episode.task
    steps: list[list[Action]] = []
    rounds: dict[int, list[Action]] = {}
    for item in episode.turns:
        turn = item.turn
        if episode.rules.turn_order.veiled:
            step = rounds.get(turn.round)
            if step is None:
                step = rounds[turn.round] = [NO_ACTION] * len(task.agents)
                steps.append(step)
        else:
            step = [NO_ACTION] * len(task.agents)
            steps.append(step)
        step[task.seat_of[turn.actor]] = turn.action
    return steps


def _messages(episode: Episode) -> list[list[list[str]]]:
    task, names = episode.task, list(episode.task.names.values())
    observations = [_opening(task, seat) for seat in range(len(names))]
    messages: list[list[list[str]]] = []
    for number, step in enumerate(_steps(episode)):
        texts = [action_text(action, task.names) for action in step]
        opening = [[ENVIRONMENT, name, observations[seat]] for seat, name in enumerate(names)]
        messages.append([*opening, *([name, ENVIRONMENT, texts[seat]] for seat, name in enumerate(names))])
        observations = [_observed(number, step, texts, names, seat) for seat in range(len(names))]
    return [*messages, [[ENVIRONMENT, name, observations[seat]] for seat, name in enumerate(names)]]


def _observed(number: int, step: Sequence[Action], texts: Sequence[str], names: Sequence[str], seat: int) -> str:
    visible = [
        f"{names[actor]} {texts[actor]}"
        for actor, action in enumerate(step)
        if action.action_type is not ActionType.NONE
        and (not action.to or actor == seat or f"agent_{seat}" in action.to)
    ]
    return f"Turn #{number}: {'; '.join(visible)}\n"


def _goal(seat: Seat) -> str:
    return goal_text(" ".join(seat.goals), seat.private_info, seat.hints)


def _background(character: Character) -> str:
    return character.private_attributes.get("background") or character.public_info


def _opening(task: Task, seat: int) -> str:
    """A seat's first observation in the reference code's format."""
    # Cached: an episode's messages repeat it, and an export writes many episodes of one task.
    memo = task.memo.setdefault("importers.opening", {})
    if seat not in memo:
        backgrounds = {
            character.name: _background(character) if other == seat else character.public_info or UNKNOWN
            for other, character in enumerate(task.characters)
        }
        goals = {
            name: _goal(task.scenario.seats[other]) if other == seat else UNKNOWN
            for other, name in enumerate(task.names.values())
        }
        memo[seat] = opening_text(Opening(task.scenario.context, backgrounds, goals))
    text: str = memo[seat]
    return text


def _log(episode: Episode) -> dict[str, Any]:
    evaluation = _latest(episode)
    return {
        "pk": episode.key,
        "environment": episode.task.scenario.id,
        "agents": [character_id(character) for character in episode.task.characters],
        "tag": "",
        "models": _models(episode),
        "agent_classes": [],
        "messages": _messages(episode),
        "reasoning": _reasoning(episode),
        "rewards": rewards_of(evaluation, episode.task),
        "rewards_prompt": "",
    }


def _line(episode: Episode) -> dict[str, Any]:
    task = episode.task
    rewards = rewards_of(_latest(episode), task)
    turns = [(item.turn.actor, item.turn.action) for item in episode.turns]
    return {
        "episode_id": episode.key,
        "environment_id": task.scenario.id,
        "agent_ids": [character_id(character) for character in task.characters],
        "experiment_tag": "",
        "experiment_model_name_pairs": _models(episode),
        "raw_messages": _messages(episode),
        "raw_rewards": rewards,
        "raw_rewards_prompt": "",
        "scenario": task.scenario.context,
        "codename": task.scenario.tags[0] if task.scenario.tags else "",
        "agents_background": {character.name: _background(character) for character in task.characters},
        "social_goals": dict(zip(task.names.values(), map(_goal, task.scenario.seats), strict=True)),
        "social_interactions": interactions_text(turns, task.names),
        "reasoning": _reasoning(episode),
        "rewards": rewards,
    }


LOGS = Format(
    "sotopia-logs",
    "SOTOPIA EpisodeLog",
    ProductKind.EPISODE,
    EpisodeLog,
    read_log,
    _log,
)
LINES = Format(
    "sotopia-episodes",
    "published episode lines of SOTOPIA and SOTOPIA-π",
    ProductKind.EPISODE,
    EpisodeLine,
    read_line,
    _line,
)
EPISODES = (LOGS, LINES)
