"""Live episodes: played turn by turn from the database, by policies in a worker and by people through pages.

A live episode has no state in memory between two turns. Its events are its state: a worker rebuilds the table from them
(:meth:`LiveEpisode.load`), lets policies act until it is a person's turn, and appends an event for every turn. The
process that receives a person's answer records it in one transaction. Therefore a killed server or worker loses no
turn, an episode that waits for a person uses no resources, and an answer to an earlier turn is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sotopia_env.foundation.errors import EvaluationError, InvalidActionError
from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.foundation.records import read_record
from sotopia_env.people.seat.assistance import Help
from sotopia_env.world import Action, Evaluator, Observation
from sotopia_env.world.action import NO_ACTION, ActionType
from sotopia_env.world.answers import Belief
from sotopia_env.world.episode import Episode, Generation
from sotopia_env.world.play.notes import written_notes
from sotopia_env.world.play.policy import Decision, Policy
from sotopia_env.world.play.table import Table
from sotopia_studio.problems import ConflictError, ForbiddenError
from sotopia_studio.store import episodes, event_records, events, jobs, tables
from sotopia_studio.store.engine import Database
from sotopia_studio.store.event_records import LiveSpec

ADVANCE, ADVISE = "advance", "advise"
"""The jobs that let the policies of a live episode act, and advise people."""
LEAVING = "leaving"
"""The kind of the event of a wish to leave; until it is carried out, the other seats may not know of it."""
LATE_ANSWER = "no answer within the time limit"
CLOSED = ("done", "failed", "stopped")
"""The states of an episode that has ended."""


@dataclass(slots=True)
class LiveEpisode:
    """A live episode in its state after the latest event.

    Attributes:
        id: the episode's id.
        spec: its settings.
        table: the episode so far.
        number: number of the latest event.
        status: ``queued``, ``running``, ``waiting`` (for a person), ``done``, ``failed`` or ``stopped``.
        deadline: the end of the time limit of the person whose turn it is.
        expected: the agents whose people have not opened their links yet.
        appended: number of turns that have events.
        answered: the agents whose answers in the incomplete veiled round have events.
        leaving: the agents whose people wish to leave.
        help: the assistance of people.
    """

    id: str
    spec: LiveSpec
    table: Table
    number: int
    status: str
    deadline: float | None
    expected: frozenset[str]
    appended: int
    answered: frozenset[str]
    leaving: frozenset[str] = frozenset()
    help: Help = Help()  # noqa: RUF009 - frozen

    @classmethod
    async def load(cls, connection: AsyncConnection, episode: str, *, lock: bool = False) -> LiveEpisode:
        """Returns the episode rebuilt from its events; with ``lock``, no other transaction can change it meanwhile.

        Raises:
            MissingError: the episode does not exist or is not a live one.
        """
        row = await events.row_of(connection, episode, lock=lock)
        spec = read_record(LiveSpec, await episodes.spec_of(connection, episode), f"episode {episode}")
        turns: list[event_records.AppendedTurn] = []
        answers: list[event_records.RecordedAnswer] = []
        leaving: set[str] = set()
        beliefs: list[Belief] = []
        log = await events.read(connection, episode)
        for event in log:
            where = f"episode {episode}, event {event.number}"
            if event.kind == "turn":
                turns.append(read_record(event_records.AppendedTurn, event.payload, where))
            elif event.kind == "answer":
                answers.append(read_record(event_records.RecordedAnswer, event.payload, where))
            elif event.kind == event_records.BELIEFS:
                beliefs += read_record(event_records.RecordedBeliefs, event.payload, where).beliefs
            elif event.kind == LEAVING:
                leaving.add(read_record(event_records.Departure, event.payload, where).agent)
        people = await episodes.participants(connection, episode) if spec.people else {}
        # The same path as resuming a run: the record so far, from which the table recomputes the state of the
        # protocol.
        record = Episode(
            key=row.key,
            task=spec.task,
            rules=spec.rules,
            seed=spec.seed,
            policies=tuple(spec.person(agent, people.get(agent, "")) for agent in spec.people),
            turns=tuple(item.turn for item in turns),
            errors=tuple(error for item in turns for error in item.errors),
            beliefs=tuple(beliefs),
        )
        table = Table.resume(record)
        # Answers of earlier rounds have become turns; only those of the present round are still pending.
        for answer in answers:
            if answer.round == table.state.round and answer.agent in table.acting:
                table.take(answer.agent, Decision(answer.action, answer.generation, answer.errors))
        guests = await episodes.guests(connection, episode) if spec.people else {}
        expected = frozenset(agent for agent, person in guests.items() if person.seen is None)
        return cls(
            id=episode,
            spec=spec,
            table=table,
            number=row.events,
            status=row.status,
            deadline=row.deadline,
            expected=expected,
            appended=len(turns),
            answered=frozenset(table.pending),
            leaving=frozenset(leaving),
            help=Help.of(event_records.assistance_records(log), len(turns)),
        )

    @property
    def ended(self) -> bool:
        """Whether no further turn follows."""
        return self.table.stop is not None or self.status in CLOSED

    @property
    def awaited(self) -> tuple[str, ...]:
        """The people whose turn it is."""
        return () if self.ended else tuple(agent for agent in self.table.acting if agent in self.spec.people)

    @property
    def advised(self) -> tuple[str, ...]:
        """The people whose turn it is and who are to be advised on it; nobody before they have come."""
        awaited = [agent for agent in self.awaited if agent in self.spec.assistants and agent not in self.expected]
        return tuple(agent for agent in awaited if agent not in self.help.taken_over and agent not in self.help.advice)

    def exit_of(self, agent: str) -> Action:
        """Returns the action with which a person leaves: nothing, if the rules let nobody leave."""
        return Action(ActionType.LEAVE) if ActionType.LEAVE in self.table.observe(agent).available else NO_ACTION

    def check_turn(self, agent: str, turn: int) -> None:
        """Checks that a person may act now.

        Args:
            agent: the person's seat.
            turn: number of turns on the page that the person saw; the action of an outdated page is refused.

        Raises:
            ConflictError: the conversation has ended, the turn is over, or it is another seat's turn.
            ForbiddenError: the seat is not a person's.
        """
        if agent not in self.spec.people:
            raise ForbiddenError(f"{agent}: this seat is not a person's")
        if self.ended:
            raise ConflictError("the conversation has ended")
        # A page that was open during another turn shows an old state; the person may not have meant this action now.
        if turn != len(self.table.turns) or agent not in self.awaited:
            raise ConflictError("that turn is over already; look at the present state of the conversation")

    async def append(self, connection: AsyncConnection) -> None:
        """Appends an event for every new turn and answer, and an event with the agents that act next.

        Args:
            connection: a writing transaction.
        """
        new = [
            *event_records.turn_events(self.table, self.appended),
            *event_records.answer_events(self.table, self.answered),
        ]
        # A deadline that was not reset would end the turn of the next person by the clock of the last one.
        self.status, self.deadline = "running", None
        self.help = self.help.at(len(self.table.turns))
        if self.awaited:
            # A link may be opened hours after it was sent: nobody's time runs before they have come.
            limit = None if self.expected.intersection(self.awaited) else self.spec.turn_seconds
            limit = min([self.spec.assistants[a].pause for a in self.awaited if self.help.plays(a)], default=limit)
            self.status, self.deadline = "waiting", None if limit is None else time.time() + limit
        turns = self.appended = len(self.table.turns)
        self.answered = frozenset(self.table.pending)
        if not self.ended:
            acting = {"agents": list(self.table.acting), "turn": turns, "deadline": self.deadline}
            new.append(("waiting", canonical_json(acting)))
        columns = {"turns": turns, "status": self.status, "deadline": self.deadline}
        self.number = await events.append(connection, self.id, self.number, new, columns)
        if self.advised:
            await jobs.request(connection, ADVISE, self.id)
        # Here, since any answer may make it the turn of a person who wishes to leave, even in a round that just began.
        if leavers := self.leaving.intersection(self.awaited):
            agent = min(leavers)
            self.table.answer(agent, self.exit_of(agent), Generation())
            await self.append(connection)


async def begin(
    connection: AsyncConnection,
    spec: LiveSpec,
    *,
    owner: str = "",
    participants: Mapping[str, str] | None = None,
) -> str:
    """Adds a live episode, requests the job that plays it, and returns its id."""
    identity = tables.new_id()
    names = spec.task.names
    row = {
        "id": identity,
        "key": identity,
        "policies": ", ".join(spec.policies[agent] for agent in spec.task.agents),
        "status": "queued",
        "seed": spec.seed,
        "owner": owner,
        "created": time.time(),
        "events": 0,
        "starred": False,
        **episodes.task_columns(spec.task),
    }
    await connection.execute(insert(tables.episode).values(**row))
    await connection.execute(insert(tables.document).values(episode=identity, spec=spec.model_dump_json()))
    seats = episodes.seat_rows(identity, spec.task, spec.policies, participants or {})
    await connection.execute(insert(tables.seat), seats)
    if spec.tag:
        await connection.execute(insert(tables.tag).values(kind="episode", item=identity, tag=spec.tag))
    opening = {"task": spec.task.id, "characters": dict(names), "policies": spec.policies}
    await events.append(connection, identity, 0, [("began", canonical_json(opening))])
    # Loaded from the database and not built here: the first state comes from the same code as every later one.
    await (await LiveEpisode.load(connection, identity)).append(connection)
    await jobs.request(connection, ADVANCE, identity)
    return identity


async def act(
    connection: AsyncConnection,
    live: LiveEpisode,
    agent: str,
    read: Callable[[Observation], Action],
    *,
    turn: int,
    key: str,
    seconds: float = 0.0,
    is_copied: bool = False,
) -> None:
    """Carries out a person's action.

    Args:
        connection: a writing transaction.
        live: the episode, loaded in this transaction with its lock.
        agent: the person's seat.
        read: returns the action, given what the seat observes; called if the person may act.
        turn: number of turns on the page that the person saw.
        key: idempotency key, chosen by the sender: the same request sent twice has one effect.
        seconds: the time that the person took.
        is_copied: whether the person copied an assistant's proposal into the form.

    Raises:
        ConflictError: as :meth:`LiveEpisode.check_turn` does, or another seat has used the key.
        ForbiddenError: the seat is not a person's.
        InvalidActionError: the action is not possible now; nothing changed.
    """
    # Before the check of the turn: a repeated request names a turn that its first copy has ended.
    if await _is_repeated(connection, live.id, agent, key):
        return
    live.check_turn(agent, turn)
    observation = live.table.observe(agent)
    action = read(observation)
    if action.action_type not in observation.available:
        raise InvalidActionError(field="action_type", got=action.action_type.value, valid=list(observation.available))
    problem = observation.move_problem(action)
    if problem is not None:
        raise InvalidActionError(problem, field="move")
    advice = live.help.followed(agent, action, is_copied=is_copied)
    await _take(connection, live, agent, action, Generation(latency=seconds, advice=advice))
    row = {"episode": live.id, "key": key, "agent": agent, "at": time.time()}
    await connection.execute(insert(tables.submission).values(**row))


async def _is_repeated(connection: AsyncConnection, episode: str, agent: str, key: str) -> bool:
    row = tables.submission
    query = select(row.c.agent).where(row.c.episode == episode, row.c.key == key)
    sender = (await connection.execute(query)).scalar_one_or_none()
    if sender is not None and sender != agent:
        raise ConflictError("key: another seat has used it; choose a random one")
    return sender is not None


async def _take(
    connection: AsyncConnection, live: LiveEpisode, agent: str, action: Action, generation: Generation
) -> None:
    """Carries out an answer, appends the resulting events, and requests the job that lets the policies act."""
    live.table.answer(agent, action, generation)
    await live.append(connection)
    await jobs.request(connection, ADVANCE, live.id)


async def time_out(database: Database, episode: str) -> None:
    """Applies the configured consequence to people who have not answered by the deadline."""
    async with database.write() as connection:
        live = await LiveEpisode.load(connection, episode, lock=True)
        # Checked again under the lock: the person may have answered since the worker read the list of overdue
        # episodes.
        if not live.awaited or live.deadline is None or live.deadline > time.time():
            return
        players = [agent for agent in live.awaited if live.help.plays(agent)]
        for agent in players:
            await _take(connection, live, agent, *live.help.played(agent))
        for agent in () if players else live.awaited:
            action = live.exit_of(agent) if live.spec.on_timeout == "leave" else NO_ACTION
            generation = Generation(parse_failure=LATE_ANSWER, latency=live.spec.turn_seconds or 0.0)
            await _take(connection, live, agent, action, generation)
            if live.table.stop is not None:
                return


async def advance(
    database: Database, live: LiveEpisode, policies: Mapping[str, Policy], evaluator: Evaluator | None
) -> None:
    """Lets the policies act until it is a person's turn, and records and evaluates the episode when it ends.

    Raises:
        ConflictError: the episode was stopped meanwhile.
        PolicyError: a policy could not act; earlier turns are in the database.
        ModelCallError: a model did not answer; earlier turns are in the database.
    """
    while live.table.stop is None:
        # Only people act now: the answer of each requests this job again.
        if len(live.awaited) == len(live.table.acting):
            return
        round_, decisions = live.table.state.round, await live.table.ask(policies)
        async with database.write() as connection:
            live = await _present(connection, live)
            for agent, decision in decisions.items():
                if agent in live.table.acting and live.table.state.round == round_:
                    live.table.take(agent, decision)
            await live.append(connection)
    if live.spec.rules.carry:
        live.table.notes = await written_notes(live.table, policies, live.spec.rules.carry)
    live.table.seat(policies)  # the record names them, though none of them may have acted since it was loaded
    await _finish(database, live, evaluator)


async def _present(connection: AsyncConnection, live: LiveEpisode) -> LiveEpisode:
    """Returns the episode as it is now: a person may have answered in the same round while models were thinking."""
    row = await events.row_of(connection, live.id, lock=True)
    if row.events != live.number:
        live = await LiveEpisode.load(connection, live.id)
    if live.status in CLOSED:
        raise ConflictError(f"episode {live.id}: it was ended meanwhile")
    return live


async def _finish(database: Database, live: LiveEpisode, evaluator: Evaluator | None) -> Episode:
    """Evaluates and records an ended episode; after a failed evaluation it is unscored, with the reason."""
    episode = live.table.episode()
    if evaluator is not None:
        with suppress(EvaluationError):  # the record says why it is unscored
            await live.table.evaluate(evaluator)
        episode = live.table.episode()
    new = [("ended", canonical_json({"stop": episode.stop.value if episode.stop else ""}))]
    # The evaluation ran outside of a transaction, since a judge takes seconds; both events are appended together.
    new += [("evaluated", evaluation.model_dump_json()) for evaluation in episode.evaluations]
    async with database.write() as connection:
        live.number = await events.append(connection, live.id, live.number, new, episodes.record_columns(episode))
        await episodes.replace_record(connection, live.id, episode)
    return episode


async def end(database: Database, episode: str, status: Literal["failed", "stopped"], reason: str) -> None:
    """Ends an episode early; its turns are kept, and it has no record."""
    async with database.write() as connection:
        row = await events.row_of(connection, episode)
        if row.status in CLOSED:
            return
        columns = {"status": status, "error": reason, "ended": time.time(), "deadline": None}
        await events.append(connection, episode, row.events, [(status, canonical_json({"reason": reason}))], columns)


async def arrive(connection: AsyncConnection, episode: str) -> None:
    """Starts the clock of a person who has opened the link to a seat."""
    live = await LiveEpisode.load(connection, episode, lock=True)
    if live.awaited:
        await live.append(connection)


async def resume(connection: AsyncConnection, episode: str) -> None:
    """Resumes an episode that failed or was stopped, from its last turn.

    Raises:
        ConflictError: the episode is being played or has ended regularly.
        MissingError: the episode does not exist or is not a live one.
    """
    live = await LiveEpisode.load(connection, episode, lock=True)
    if live.status not in ("failed", "stopped"):
        raise ConflictError(f"episode {episode} is {live.status}: only a failed or stopped one can be resumed")
    if live.spec.study:
        raise ConflictError(f"episode {episode} belongs to a study, whose participant has gone on")
    live.status = "running"
    await live.append(connection)
    await connection.execute(update(tables.episode).where(tables.episode.c.id == episode).values(error="", ended=None))
    await jobs.request(connection, ADVANCE, episode)
