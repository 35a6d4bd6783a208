"""One seat of an episode as text in and text out: the interface from which all adapters are made.

A :class:`TextSeat` plays one agent of a task, and its partners play the others::

    seat = TextSeat.against("bargaining", partner="boulware", seed=7)
    messages = await seat.begin()
    while not seat.done:
        text = model(messages)
        news, done = await seat.say(text)
        messages += [{"role": "assistant", "content": text}, *news]
    seat.result.value, seat.turn_rewards

A failing partner or evaluator is asked again (``retries``). If it fails for good, ``begin`` and ``say`` raise its error
and can be repeated: the same answer is not taken twice. Until then no seat has a reward (:class:`SeatReward`).

:class:`Seats` are several seats of one episode, each with its own conversation and rewards::

    seats = Seats.against("bargaining", focal=(0, 1))
    while acting := await seats.play():
        acting[0].take(model(acting[0].news()))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sotopia_env import naming
from sotopia_env.adapters.failures import Failures
from sotopia_env.adapters.rows import read_row, read_task
from sotopia_env.adapters.seat_reward import SeatReward, TurnRewardKind, beliefs_so_far, check_kind, rewards_of_turns
from sotopia_env.envs.episode_reward import EpisodeReward, Payment
from sotopia_env.envs.gymnasium_env import PartnerSpec, read_policy
from sotopia_env.foundation.errors import InvalidActionError, InvalidValueError, check_whole
from sotopia_env.naming.seats import seated
from sotopia_env.policies.function_calls import functions_of, text_of
from sotopia_env.world import Action, Evaluator, Rules, Task
from sotopia_env.world.action import NO_ACTION, ParseFailure
from sotopia_env.world.answers import Belief
from sotopia_env.world.episode import Episode, Generation, PolicyInfo, RecordedTurn
from sotopia_env.world.observation import ChatMessage
from sotopia_env.world.play.policy import Decision
from sotopia_env.world.play.table import Table
from sotopia_env.world.reward import RewardVector, Scalarisation

Messages = list[ChatMessage]
Answer = Decision | Action | str | Mapping[str, Any]


class Seats(Mapping[str, "TextSeat"]):
    """The seats of one episode that are played from outside, by agent id.

    They can be pickled between turns if the partners and the evaluator can; names always can.

    Attributes:
        table: the episode.
        partners: the policies of the other agents, by agent id; ``specs`` are the policies or names that were given.
        payment: how its reward is computed.
        reasks: how often a text that is not an action is answered with the reason.
        failures: the failures of partners and the evaluator.
    """

    def __init__(
        self,
        table: Table,
        partners: Mapping[str, PartnerSpec],
        *,
        evaluator: Evaluator | str | None = None,
        scalarisation: Scalarisation | str | None = None,
        turns: TurnRewardKind = "standing",
        reasks: int = 2,
        retries: int = 1,
    ) -> None:
        """Seats the partners; they act from :meth:`play` on.

        Args:
            table: a new or a resumed episode.
            partners: a policy, or its name, for every agent that is not played from outside.
            evaluator: an evaluator or its name; by default the moves, for a task with an outcome.
            scalarisation: how the reward is computed; by default as in the environments (docs/rewards.md).
            turns: the kind of :attr:`TextSeat.turn_rewards`; ``belief`` needs ``facts:probe=turns`` in the evaluator.
            reasks: how often a text that is not an action is answered with the reason; the next one counts as doing
                nothing.
            retries: how often partners or the evaluator are asked again after a failure, beside the attempts that a
                model makes itself. Most hosts cannot repeat a call.

        Raises:
            InvalidValueError: an argument is invalid, or the evaluator does not score what the reward needs.
            UnknownNameError: a name is unknown.
        """
        agents = [agent for agent in table.task.agents if agent not in partners]
        if not agents or len(agents) + len(partners) > len(table.task.agents):
            expected = f"policies for some of {', '.join(table.task.agents)}, and not for all"
            raise InvalidValueError(field="partners", expected=expected, got=sorted(partners))
        check_whole("reasks", reasks, 0)
        check_whole("retries", retries, 0)
        self.table = table
        self.reasks = reasks
        self.failures, self._interrupted = Failures(retries), False
        self.turns = check_kind(turns)
        self.specs, self._evaluator, self._scalarisation = dict(partners), evaluator, scalarisation
        self._payments: Mapping[str, Payment] = {}
        self.beliefs: tuple[Belief, ...] = ()
        self._make()
        self._seats = {agent: TextSeat(self, agent) for agent in agents}

    @classmethod
    def against(
        cls,
        task: Task | Mapping[str, Any] | str,
        partner: PartnerSpec | Mapping[int, PartnerSpec] | Mapping[str, PartnerSpec] = "boulware",
        focal: Iterable[int] = (0,),
        *,
        rules: Rules | None = None,
        seed: int = 0,
        name: str = "model",
        **options: Any,
    ) -> Seats:
        """Returns the seats of a new episode, with partners by number of seat.

        Args:
            task: a task; its JSON as an object or a text; or the name of a task set, from which ``seed`` draws one:
                ``"bargaining"``, ``"everyday"``.
            partner: a policy or its name for all other seats, or one for each of them: by number, or by the names of
                seats (:mod:`sotopia_env.naming.seats`), where ``self`` seats the model there, too.
            focal: the numbers of the seats, from 0.
            rules: turn order and limits.
            seed: the seed of the turn order and the partners.
            name: the name of the seats' own policies in the record.
            options: the options of :class:`Seats`.

        Raises:
            InvalidValueError: an argument is invalid.
            UnknownNameError: a name is unknown.
        """
        if not isinstance(task, Task):
            task = read_task(task, seed)
        partners = seated(task, focal, partner)
        policies = [PolicyInfo(agent=agent, name=name) for agent in task.agents if agent not in partners]
        return cls(Table(task, rules or Rules(), seed, policies=policies), partners, **options)

    @classmethod
    def of(cls, row: Mapping[str, Any], **options: Any) -> Seats:
        """Returns the seats of a row of :func:`sotopia_env.adapters.rows`; columns of the host are ignored."""
        columns = read_row(row)
        return cls.against(**{**columns, "focal": [columns.get("focal", 0)], **options})

    def __getitem__(self, agent: str) -> TextSeat:
        """Returns the seat of an agent."""
        return self._seats[agent]

    def __iter__(self) -> Iterator[str]:
        """Yields the agents in the order of the task."""
        return iter(self._seats)

    def __len__(self) -> int:
        """The number of seats."""
        return len(self._seats)

    @property
    def payments(self) -> Mapping[str, Payment]:
        """The payment of every agent for the episode as it is now; empty if it is not evaluated or was interrupted."""
        return {} if self.table.evaluation is None or self.failures.reason else self._payments

    async def play(self) -> list[TextSeat]:
        """Lets the partners act until it is the turn of a seat, and evaluates the episode when it has ended.

        After an exception it can be called again; the turns that were taken remain.

        Returns:
            The seats that have to act now; none when the episode has ended.

        Raises:
            PolicyError: a partner produced no action.
            EvaluationError: the episode has ended and could not be scored.
        """
        acting = await self.act()
        if self.table.stop is not None:
            await self.end()
        return acting

    async def act(self) -> list[TextSeat]:
        """Does as :meth:`play`, but leaves an episode that has ended to :meth:`end`."""
        self._interrupted = True
        acting = await self.failures.run("a partner", lambda: self.table.play(self.partners))
        self._interrupted = False
        return [self[agent] for agent in acting]

    async def end(self) -> None:
        """Evaluates the episode as it is, even before its end: what was agreed so far counts, open offers do not.

        An unchanged episode is not evaluated again. An episode that was interrupted by a partner's failure is not
        evaluated: it has no reward until a further call of :meth:`play` succeeds.

        Raises:
            EvaluationError: it could not be scored.
        """
        if not self.payments and not self._interrupted:
            self._payments = {}  # if it cannot be scored, earlier ones must not count
            self._payments = await self.failures.run("the evaluator", lambda: self.payment.pay(self.table))

    async def measure(self) -> None:
        """Asks what the others believe now, if turns are paid by it, for hosts that pay each turn when it is over."""
        if self.turns == "belief" and self.table.stop is None:
            evaluator, episode = self.payment.evaluator, self.table.episode()
            self.beliefs = await self.failures.run("the evaluator", lambda: beliefs_so_far(evaluator, episode))

    def fork(self, turn: int) -> Seats:
        """Returns new seats of the episode in its state before turn ``turn``; see :meth:`Table.fork`."""
        return Seats(
            self.table.fork(turn),
            self.specs,
            evaluator=self._evaluator,
            scalarisation=self._scalarisation,
            turns=self.turns,
            reasks=self.reasks,
            retries=self.failures.retries,
        )

    def _make(self) -> None:
        self.partners = {agent: read_policy(spec) for agent, spec in self.specs.items()}
        # Only the partners' policies are here: a seat that is played from outside cannot be asked.
        policies = self.partners.values()
        judge = None if self._evaluator is None else naming.make_evaluator(self._evaluator, policies=policies)
        scalarisation = None if self._scalarisation is None else Scalarisation.of(self._scalarisation)
        self.payment = EpisodeReward.of(self.table.task, judge, scalarisation)

    def __getstate__(self) -> dict[str, Any]:
        # Policies and evaluators given by name are made again: models hold connections and locks.
        return {name: value for name, value in self.__dict__.items() if name not in ("partners", "payment")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make()


class TextSeat:
    """One of the :class:`Seats` of an episode. It can be pickled between turns as they can.

    Attributes:
        agent: the agent id of the seat.
        seats: all seats of the episode.
    """

    def __init__(self, seats: Seats, agent: str) -> None:
        self.seats, self.agent = seats, agent
        self._reason = ""  # why the last text is to be given again
        self._open: Answer | None = None  # taken, and the others have yet to act
        self._ends: list[bool] = []  # for every answer, whether it was a turn or is to be given again
        self._before = len(self._turns)

    @classmethod
    def against(
        cls,
        task: Task | Mapping[str, Any] | str,
        partner: PartnerSpec | Mapping[int, PartnerSpec] | Mapping[str, PartnerSpec] = "boulware",
        focal: int = 0,
        **options: Any,
    ) -> TextSeat:
        """Returns the only seat of a new episode; arguments and exceptions are those of :meth:`Seats.against`."""
        seats = Seats.against(task, partner, [focal], **options)
        if len(seats) > 1:
            raise InvalidValueError(field="partner", expected="policies for all other seats, or Seats", got=partner)
        return next(iter(seats.values()))

    @classmethod
    def of(cls, row: Mapping[str, Any], **options: Any) -> TextSeat:
        """Returns the seat of a row of :func:`sotopia_env.adapters.rows`; columns of the host are ignored."""
        return cls.against(**{**read_row(row), **options})

    @property
    def table(self) -> Table:
        """The episode."""
        return self.seats.table

    @property
    def done(self) -> bool:
        """Whether the episode has ended."""
        return self.table.stop is not None

    @property
    def functions(self) -> tuple[dict[str, Any], ...]:
        """The functions that a model may call in place of writing JSON: name, description and JSON schema."""
        return functions_of(self.table.observe(self.agent))

    @property
    def result(self) -> SeatReward:
        """The reward and the scores, or why there are none; see :meth:`end`."""
        payment = self.seats.payments.get(self.agent)
        if payment is None:
            return SeatReward(unscored=self.seats.failures.reason or "the episode has not been evaluated")
        return SeatReward.of(payment)

    @property
    def reward(self) -> float | None:
        """The reward of the episode; ``None`` before its :meth:`end` and after a failure (:attr:`result`)."""
        return self.result.value

    @property
    def vector(self) -> RewardVector | None:
        """The scores for a scalarisation, shape (7,), with 0 where nothing was measured; ``None`` before the end."""
        payment = self.seats.payments.get(self.agent)
        return None if payment is None else payment.vector

    @property
    def scores(self) -> Mapping[str, float]:
        """The scores in native ranges by dimension, without those that nothing measured; empty before the end."""
        return self.result.scores

    @property
    def turn_rewards(self) -> tuple[float, ...] | None:
        """What each turn changed, as ``turns`` says (:func:`~sotopia_env.adapters.seat_reward.rewards_of_turns`)."""
        return rewards_of_turns(self.episode(), self.agent, self.seats.turns, self.seats.payment, self.seats.beliefs)

    @property
    def answer_rewards(self) -> tuple[float | None, ...] | None:
        """:attr:`turn_rewards` for each answer that was taken: ``None`` for an answer that had to be given again."""
        rewards = self.turn_rewards
        if rewards is None:
            return None
        # The last answer of a veiled round is not yet a turn.
        values = iter(rewards[self._before :])
        return tuple(next(values, None) if end else None for end in self._ends)

    def step_reward(self, *, by_turn: bool) -> float:
        """Returns what a trainer pays for the latest answer, for libraries that pay each answer.

        Args:
            by_turn: whether this is the turn's own reward (:attr:`turn_rewards`); otherwise it is the episode's reward,
                paid at its end.

        Raises:
            EvaluationError: the episode has ended and has no reward.
            InvalidValueError: turns are paid by beliefs, and nobody was asked since the answer (:meth:`Seats.measure`).
        """
        rewards = self.answer_rewards if by_turn else None
        if by_turn and rewards is None and self.seats.turns == "belief":
            raise InvalidValueError(field="turns", expected="'standing', or measure() before", got=self.seats.turns)
        if rewards is not None:
            return rewards[-1] or 0.0  # an answer that must be given again changes nothing
        return self.result.paid() if self.done else 0.0

    @property
    def info(self) -> dict[str, Any]:
        """Facts for logs: why the episode ended, turns, unusable texts, failures of others, the reward's basis."""
        own, stop = self._turns, self.table.stop
        failed = sum(item.generation is not None and item.generation.parse_failure is not None for item in own)
        return {
            "stop": stop.value if stop else None, "turns": len(self.table.turns), "own_turns": len(own),
            "failed_turns": failed, "reasks": self._ends.count(False), "failures": self.seats.failures.count,
            "unscored": self.result.unscored, **self.seats.payment.info,
        }  # fmt: skip

    def episode(self) -> Episode:
        """Returns the record of the episode so far."""
        return self.table.episode()

    async def begin(self) -> Messages:
        """Lets the partners act until it is this seat's turn, and returns the conversation so far.

        The first message is the system's. An episode may end before the seat ever acts; :attr:`done` is true then.

        Raises:
            PolicyError: a partner produced no action.
            EvaluationError: the episode ended at once and could not be scored.
        """
        await self.seats.play()
        return list(self.table.observe(self.agent).messages)

    async def say(self, answer: Answer, finish_reason: str = "") -> tuple[Messages, bool]:
        """Takes the model's answer (:meth:`take`), and lets the partners act until it is the turn of a seat.

        After an exception, repeat the call with the same answer or an empty one. The answer is not taken twice, and the
        episode continues as if nothing had failed.

        Returns:
            The messages that are new to this seat (:meth:`news`), and whether the episode has ended.

        Raises:
            InvalidActionError: the episode has ended or has not started, or a failure came after another answer.
            PolicyError: a partner produced no action.
            EvaluationError: the episode could not be scored.
        """
        if self._open is None or (answer and answer != self._open):
            self.take(answer, finish_reason)
            self._open = answer
        await self.seats.play()
        self._open = None
        return self.news(), self.done

    def take(self, answer: Answer, finish_reason: str = "") -> None:
        """Takes the seat's answer; :meth:`Seats.play` lets others act.

        Args:
            answer: the text of the model; an action as JSON fields (``action_type``, ``argument``, ``to``, ``move``);
                a call of one of :attr:`functions` (``name`` and ``arguments``, or OpenAI's ``{"function": …}``); an
                action, such as a person's; or a policy's decision.
            finish_reason: why the model's server ended the text, in its own term; nothing but a whole object is taken
                from a text that the model did not end itself (:mod:`sotopia_env.foundation.answer_text`).

        Raises:
            InvalidActionError: it is not the seat's turn.
        """
        if self._open is not None:
            problem = f"the seat's last answer was taken, and then {self.seats.failures.reason}"
            raise InvalidActionError(problem, hint="send the same answer again, or an empty one, to go on")
        if self.agent not in self.table.acting:
            raise InvalidActionError("it is not this seat's turn", hint="call begin() first, and stop when it is done")
        if isinstance(answer, Action | Decision):
            decision: Decision | ParseFailure = Decision(answer) if isinstance(answer, Action) else answer
        else:
            decision = self._read(text_of(answer), finish_reason)
        if isinstance(decision, Decision):
            self.table.take(self.agent, decision)
        self._reason = decision.reason if isinstance(decision, ParseFailure) else ""
        self._ends.append(not self._reason)

    def _read(self, text: str, finish_reason: str) -> Decision | ParseFailure:
        reasks, action = self._reasks, self.table.observe(self.agent).parse(text, finish_reason)
        if isinstance(action, Action):
            return Decision(action, Generation(text=text, reasks=reasks))
        if reasks < self.seats.reasks:
            return action
        return Decision(NO_ACTION, Generation(text=text, parse_failure=action.reason, reasks=reasks))

    def news(self) -> Messages:
        """Returns the messages since the seat's latest answer, or the reason why it must be given again.

        Before the first answer it is the whole conversation. There are none while it is not the seat's turn.
        """
        if self.agent not in self.table.acting:
            return []
        if self._reason:
            return [{"role": "user", "content": f"That is not an action: {self._reason}"}]
        messages = self.table.observe(self.agent).messages
        return [messages[-1]] if self._ends else list(messages)

    async def end(self) -> None:
        """Evaluates the episode as it is; see :meth:`Seats.end`."""
        await self.seats.end()

    @property
    def _turns(self) -> list[RecordedTurn]:
        return [item for item in self.table.turns if item.turn.actor == self.agent]

    @property
    def _reasks(self) -> int:
        """How often the present turn's text was answered with a reason."""
        return next((n for n, end in enumerate(reversed(self._ends)) if end), len(self._ends))
