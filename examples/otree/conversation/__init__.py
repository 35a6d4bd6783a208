"""An episode of SOTOPIA: participants have the first seats of a task, a policy has those that are left."""

import asyncio
import logging
from collections import defaultdict
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from typing import Any

from otree.api import BaseConstants, BaseGroup, BasePlayer, BaseSubsession, Page, WaitPage, models

from sotopia_env import Episode, Rules, Table, TaskSet
from sotopia_env.adapters import Seats, TextSeat
from sotopia_env.evaluators import VerifiedOutcome
from sotopia_env.foundation.errors import EvaluationError, InvalidValueError, PolicyError
from sotopia_env.foundation.records import read_record
from sotopia_env.naming import task_set
from sotopia_env.people.seat.form import action_choices, move_choices, read_action, term_fields, turn_view
from sotopia_env.world.episode import PolicyInfo

logger = logging.getLogger(__name__)


class C(BaseConstants):
    NAME_IN_URL = "conversation"
    PLAYERS_PER_GROUP = None
    NUM_ROUNDS = 1


class Subsession(BaseSubsession):
    pass


class Group(BaseGroup):
    record = models.LongStringField(initial="")


class Player(BasePlayer):
    stop = models.StringField(initial="")
    goal = models.FloatField(blank=True)


# The running episodes of this process; each is also in its group's record, from which a restarted server resumes.
EPISODES: dict[int, Seats] = {}
LOCKS: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)


@cache
def _tasks(source: str) -> TaskSet:
    return task_set(source, None, 0, "medium")


def creating_session(subsession: Subsession) -> None:
    """Refuses a session with more people per group than a task has seats."""
    config = subsession.session.config
    seats = min(len(task.agents) for task in _tasks(config["tasks"]))
    if not 1 <= config["people"] <= seats:
        raise InvalidValueError(field="people", expected=f"1 to {seats}, the seats of a task", got=config["people"])


def seats_of(group: Group) -> Seats:
    """Returns the group's episode: people have the first seats, the session's policy the others."""
    if group.id not in EPISODES:
        table = Table.resume(read_record(Episode, group.record, f"group {group.id}")) if group.record else _new(group)
        others = table.task.agents[len(group.get_players()) :]
        partners = dict.fromkeys(others, group.session.config["partner"])
        EPISODES[group.id] = Seats(table, partners, evaluator=VerifiedOutcome())
    return EPISODES[group.id]


def _new(group: Group) -> Table:
    config = group.session.config
    tasks = _tasks(config["tasks"])
    task = tasks[(group.id_in_subsession - 1) % len(tasks)]
    people = [
        PolicyInfo(agent=agent_of(player), name="human", parameters={"participant": player.participant.code})
        for player in group.get_players()
    ]
    key = f"{group.session.code}/{group.id}"
    return Table(task, Rules(max_turns=config["max_turns"]), group.id, key=key, policies=people)


def agent_of(player: Player) -> str:
    """Returns the agent that the participant plays."""
    return f"agent_{player.id_in_group - 1}"


def view(player: Player, table: Table, problem: str = "") -> dict[str, Any]:
    """What the participant may read now, in parts that the page shows as text; nothing is written for a model."""
    observation = table.observe(agent_of(player))
    menu = observation.moves
    actions = action_choices(observation) if observation.acting else []
    actions.sort(key=lambda choice: choice[0] != "speak")  # stable: only the usual one comes first
    return {
        "turns": [asdict(turn_view(turn, table.task.names, observation.agent)) for turn in observation.turns],
        "table": observation.table_text,
        "turn": len(table.turns),
        "acting": agent_of(player) in table.acting,
        "waiting": [table.task.names[agent] for agent in table.acting],
        "over": table.stop is not None,
        "actions": actions,
        "moves": move_choices(menu) if menu else [],
        "terms": [asdict(term) for term in term_fields(observation, menu)] if menu and menu.propose else [],
        "problem": problem,
    }


def take(seat: TextSeat, fields: Any) -> str:
    """Takes the action in the participant's form; returns what is wrong with it, or an empty text."""
    table = seat.table
    if not isinstance(fields, dict) or "turn" not in fields:
        return ""  # the page was opened and asks for its content
    if fields["turn"] != len(table.turns) or seat.agent not in table.acting:
        return "The conversation has gone on; this is its present state."
    try:
        texts = {name: value for name, value in fields.items() if isinstance(value, str)}
        to = [str(other) for other in fields.get("to") or []]
        seat.take(read_action(table.observe(seat.agent), texts, to))
    except InvalidValueError as error:
        return str(error)
    return ""


async def live(player: Player, data: Any):
    """Takes an answer, lets policies act, and sends every participant of the group a view of its own seat."""
    group = player.group
    async with LOCKS[group.id]:  # held until everything is stored, so that no answer is lost between two people
        seats, players = seats_of(group), group.get_players()
        table = seats.table
        problem = take(seats[agent_of(player)], data)
        if any(agent not in seats for agent in table.acting):
            yield {p.id_in_group: view(p, table) for p in players}
        try:
            if not player.stop:
                await play(players, seats)
        except PolicyError as error:
            logger.warning("group %s: %s", group.id, error)
            problem = "The other side has not answered yet. Reload this page to ask it again."
        finally:
            group.record = table.episode().model_dump_json()  # with this answer, whatever failed after it
        yield {p.id_in_group: view(p, table, problem if p is player else "") for p in players}


async def play(players: list[Player], seats: Seats) -> None:
    """Lets policies act, and pays when the conversation is over."""
    with suppress(EvaluationError):  # the record says why it is unscored
        await seats.play()
    if seats.table.stop is not None:
        finish(players, seats)


def finish(players: list[Player], seats: Seats) -> None:
    """Pays the goal score, from 0 to 10, in points."""
    for player in players:
        player.stop = seats.table.stop.value
        goal = seats[agent_of(player)].scores.get("goal")
        if goal is not None:
            player.goal, player.payoff = goal, goal


class Match(WaitPage):
    group_by_arrival_time = True
    body_text = "Waiting for the other person."


def group_by_arrival_time_method(subsession: Subsession, waiting: list[Player]) -> list[Player] | None:
    """Returns the next group: as many people as the session's configuration says."""
    people = subsession.session.config["people"]
    return waiting[:people] if len(waiting) >= people else None


class Conversation(Page):
    live_method = live

    @staticmethod
    def get_timeout_seconds(player: Player) -> float:
        return player.session.config["minutes"] * 60

    @staticmethod
    def vars_for_template(player: Player) -> dict[str, Any]:
        observation = seats_of(player.group).table.observe(agent_of(player))
        names = ("name", "context", "goals", "hints", "private_info", "outline", "profile", "partners", "recipients")
        return {
            "briefing": {name: getattr(observation.briefing, name) for name in names},
            "limit": observation.turn_limit,
        }


class End(Page):
    @staticmethod
    def vars_for_template(player: Player) -> dict[str, Any]:
        goal = player.field_maybe_none("goal")
        return {"goal": None if goal is None else round(goal, 1), "link": player.session.config.get("completionlink")}


page_sequence = [Match, Conversation, End]


def custom_export(players: list[Player]):
    """One row per group: its episode as a line of ``episodes.jsonl``."""
    yield ["session", "group", "episode"]
    for player in players:
        if player.id_in_group == 1:
            yield [player.session.code, player.group.id_in_subsession, player.group.record]
