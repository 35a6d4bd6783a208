"""The interview after an episode: participants on goals and private information, judges on goals (AgentSense §3.4).

Participants are asked in a probe at the end (:mod:`sotopia_env.evaluators.probes.asking`) whose answers are single
options. Each seat's own policy is asked, as its character and with its own view. Questions are asked one at a time,
because one may reveal the answer to another: those on others' goals would help with those on private information.
Missing answers are recorded with the reason. Those on goals are left out of means; those on private information count
as wrong.
"""

from __future__ import annotations

import hashlib
import random
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sotopia_env.chat_model.protocol import ChatModel
from sotopia_env.evaluators.evaluator import Basis
from sotopia_env.evaluators.judge.prompt import fingerprint
from sotopia_env.evaluators.judge.question import AskingEvaluator, Manner, check_model, tag
from sotopia_env.evaluators.probes.asking import tables_of
from sotopia_env.evaluators.respondents import Respondents
from sotopia_env.foundation.errors import (
    DamagedRecordError,
    EvaluationError,
    InvalidTaskError,
    InvalidValueError,
    PolicyError,
    UnknownNameError,
    Verbatim,
)
from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.foundation.waiting import all_at_once
from sotopia_env.interviews.goals import judge_goals, prompt_texts
from sotopia_env.outcomes.result import OutcomeResult
from sotopia_env.policies.agent_prompt import prompt_text
from sotopia_env.world.answers import (
    ANSWERED,
    COVERAGE,
    INFORMATION,
    INFORMATION_MEASURES,
    Configured,
    InterviewAnswer,
    InterviewQuestion,
    InterviewReply,
    View,
    answer_of,
    information_values,
    is_majority,
)
from sotopia_env.world.episode import Episode, Evaluation, Score
from sotopia_env.world.interview import Question
from sotopia_env.world.outcome import goal_truth, outcome_of
from sotopia_env.world.play.table import Table
from sotopia_env.world.reward import CustomDimension, Dimension
from sotopia_env.world.scenario import Task

_PROMPTS = ("question", "own_goal", "other_goal", "choice", "reask")
_INSTRUCTIONS = {
    "goal_self": "Ten times the share of its goals that the agent says it reached.",
    "goal_other": "Ten times the share of its goals that the other agents say it reached.",
    "goal_external": "Ten times the share of its goals that most judges say it reached.",
    "goal_exact": "Ten times the share of its goals with an exact test that were reached.",
    INFORMATION: "Ten times the share of questions on the others' private information with the right answer.",
    ANSWERED: "Ten times the share of right answers among the answers on the others' private information.",
    COVERAGE: "Ten times the share of questions on the others' private information that were answered.",
}
ALL_VIEWS = "all"
"""A value of ``deciding``: the majority of the views decides, each with one vote."""
DIMENSIONS = {name: CustomDimension(name=name, low=0, high=10, instruction=i) for name, i in _INSTRUCTIONS.items()}
"""The dimensions of an interview, by name; a dimension without any answers is not scored."""


@dataclass(frozen=True, slots=True)
class _SeatQuestion:
    """One question of a seat's interview.

    Attributes:
        view: the view of a question on a goal; ``None`` for a question on private information.
        about: the seat whose goal or private information the question is about.
        index: the index of the goal among the seat's goals, or of the question in the scenario.
        question: the question as the seat reads it.
        right: the index of the right option; ``None`` for a goal.
    """

    view: View | None
    about: int
    index: int
    question: InterviewQuestion
    right: int | None = None


class InterviewEvaluator(AskingEvaluator):
    """Asks the policies in the seats, and external judges, after the end of an episode.

    Every seat is asked (a) whether each of its own goals and (b) whether each goal of every other seat was reached, and
    (c) the scenario's multiple-choice questions on the others' private information, with options in a random order for
    each seat. Judges answer (a) with the complete episode in view. The evaluation contains all ``answers``, scores on
    :data:`DIMENSIONS` and, if a goal has an exact test, the outcome of the moves. Its name is ``interview``; with
    judges or settings, it is ``interview(MODEL, …)#`` and six digits of a hash of these.

    GOAL is ten times the share of goals that were reached in the deciding view, by the majority of its answers (a tie
    counts as not reached); goals without an answer are left out. By default the judges decide, which is the paper's
    first measure; without judges, GOAL is not scored.

    Args:
        judges: the models that judge goals.
        policies: the policies in the seats. Each seat is asked through the policy with the recorded name and
            parameters; seats without one remain unanswered.
        interviewee: a policy that answers for all seats instead, or a mapping from agent ids to such policies.
        views: the views that are asked about goals; all by default. Without ``self`` and ``other``, participants are
            not asked at all.
        deciding: the view that decides GOAL; ``"all"`` gives one vote to each view that is asked.
        temperature: the sampling temperature of the judges; a policy answers with its own settings.
        reasks: the number of re-asks after answers of a judge that are refused.
        max_tokens: the limit on a judge's answer, in tokens.

    Raises:
        UnknownNameError: a view is unknown.
        InvalidValueError: an argument is invalid, or the deciding view is not asked.
    """

    def __init__(
        self,
        judges: Sequence[ChatModel] = (),
        *,
        policies: Iterable[Configured] = (),
        interviewee: Configured | Mapping[str, Configured] | None = None,
        views: Iterable[View | str] | None = None,
        deciding: View | str | None = None,
        temperature: float = 0.0,
        reasks: int = 2,
        max_tokens: int | None = None,
    ) -> None:
        self.judges = tuple(map(check_model, judges))
        self.manner = Manner(temperature, reasks, max_tokens)
        self.views = _views(views, bool(self.judges))
        self.deciding = _deciding(deciding, self.views)
        self._respondents = Respondents(policies, interviewee)
        self._parameters = self._describe()
        names = ", ".join(judge.name for judge in self.judges)
        # Without the prompt, as for judges: a better wording of a question should not make it another evaluator.
        tagged = {key: value for key, value in self._parameters.items() if key != "prompt"}
        is_plain = not names and interviewee is None and views is None
        self._name = "interview" if is_plain else f"interview({names})#{tag(tagged)}"

    def _describe(self) -> dict[str, Any]:
        texts = [prompt_text(f"interview_{name}") for name in _PROMPTS]
        texts += prompt_texts() if self.judges else ()
        return {
            "judges": [{"model": model.name, "model_parameters": dict(model.parameters)} for model in self.judges],
            "interviewee": self._respondents.parameters,
            "views": [view.value for view in self.views],
            "deciding": self.deciding,
            "temperature": self.manner.temperature,
            "reasks": self.manner.reasks,
            "max_tokens": self.manner.max_tokens,
            "prompt": fingerprint("", *texts),
        }

    def measures(self, task: Task) -> Mapping[Dimension, Basis]:
        """GOAL, if a view decides it."""
        return {} if self.deciding is None else {Dimension.GOAL: "judged"}

    async def evaluate(self, episode: Episode) -> Evaluation:
        """Returns all answers with scores by view; unscored without any score, for example if no policy is available.

        Raises:
            EvaluationError: a model could not be asked, or the turns contradict the rules or the task.
            BudgetExceededError: a ledger's limit is reached.
        """
        task = episode.task
        # Before any question is paid for: turns or moves that contradict the task make the evaluation fail.
        outcome = _tested_outcome(episode)
        work = []
        if View.SELF in self.views or View.OTHER in self.views:
            table = _ended_table(episode)
            work += [self._participant(episode, table, seat) for seat in range(len(task.agents))]
        if View.EXTERNAL in self.views:
            judges = range(len(self.judges))
            work += [self._judge(episode, number, about) for about in task.agents for number in judges]
        answers = tuple(answer for group in await all_at_once(work) for answer in group)
        scores = tuple(self._scores(task, answers, {} if outcome is None else goal_truth(task, outcome)))
        silence = "" if scores else "no question was answered; the first one: "
        return Evaluation(
            evaluator=self._name,
            parameters=dict(self._parameters),
            dimensions=tuple(DIMENSIONS.values()),
            scores=scores,
            unscored=f"{silence}{answers[0].reason}" if silence else None,
            outcome=outcome,
            answers=answers,
        )

    async def _participant(self, episode: Episode, table: Table, seat: int) -> list[InterviewAnswer]:
        task = episode.task
        who = self._respondents.respondent(episode, task.agents[seat])
        observation = table.observe(who.agent)
        answers = []
        for item in _items(task, seat, episode.seed, self.views):
            if who.policy is None:
                reply = InterviewReply(reason=who.absence, asked=False)
            else:
                seed = _seed(episode.seed, task.id, who.agent, item.view, item.about, item.index)
                try:
                    reply = await answer_of(who.policy, observation, item.question, seed)
                except PolicyError as error:
                    raise EvaluationError(f"{self._name}: {who.agent}: {error}") from error
            answers.append(_answer(task, who.agent, who.name, item, reply))
        return answers

    async def _judge(self, episode: Episode, number: int, about: str) -> list[InterviewAnswer]:
        model, task = self.judges[number], episode.task
        who: dict[str, Any] = {
            "respondent": f"judge_{number}",
            "by": model.name,
            "about": about,
            "view": View.EXTERNAL,
        }
        label = f"{self._name}: {task.id}, seed {episode.seed}, {who['respondent']} on {about}"
        result = await judge_goals(model, episode, about, self.manner, label)
        if result.value is None:
            goals = range(len(task.scenario.seats[task.agents.index(about)].goals))
            return [InterviewAnswer(**who, index=goal, reason=result.refusal) for goal in goals]
        return [
            InterviewAnswer(**who, index=goal, value=verdict.reached, reason=verdict.reasoning)
            for goal, verdict in enumerate(result.value)
        ]

    def _scores(
        self, task: Task, answers: Sequence[InterviewAnswer], truth: Mapping[tuple[int, int], bool]
    ) -> Iterator[Score]:
        for seat, agent in enumerate(task.agents):
            exact = [float(value) for (owner, _), value in truth.items() if owner == seat]
            own = [a.value for a in answers if a.view is None and a.respondent == agent and a.asked]
            votes = [_votes(answers, agent, goal) for goal in range(len(task.scenario.seats[seat].goals))]
            majorities = [[is_majority(tally[View.EXTERNAL])] for tally in votes if View.EXTERNAL in tally]
            shares = {
                "goal_self": _mean(tally.get(View.SELF, ()) for tally in votes),
                "goal_other": _mean(tally.get(View.OTHER, ()) for tally in votes),
                "goal_external": _mean(majorities),
                "goal_exact": statistics.fmean(exact) if exact else None,
            }
            shares |= _information_shares(own)
            yield from self._goal(agent, votes)
            for name, share in shares.items():
                if share is not None:
                    yield self._score(agent, name, share, _INSTRUCTIONS[name])

    def _goal(self, agent: str, votes: Sequence[Mapping[View, Sequence[bool]]]) -> Iterator[Score]:
        """Yields GOAL according to the deciding view, with the votes of all views; nothing without a decision."""
        verdicts, words = [], []
        for number, tally in enumerate(votes, start=1):
            # Each view is one vote, however many judges or participants it has.
            deciding = [is_majority(group) for view, group in tally.items() if self.deciding in (view, ALL_VIEWS)]
            if deciding:
                verdicts.append([is_majority(deciding)])
                counts = ", ".join(f"{view.value} {sum(group)} of {len(group)}" for view, group in tally.items())
                words.append(f"goal {number} {'reached' if verdicts[-1][0] else 'not reached'} (yes: {counts})")
        if (share := _mean(verdicts)) is not None:
            yield self._score(agent, Dimension.GOAL, share, "; ".join(words))

    def _score(self, agent: str, dimension: Dimension | str, share: float, reasoning: str) -> Score:
        return Score(agent=agent, dimension=dimension, value=10 * share, reasoning=reasoning, source=self._name)

    async def close(self) -> None:
        """Closes the judges' models."""
        # One model may be several judges; it must be closed once.
        for model in {id(model): model for model in self.judges}.values():
            await model.close()


def _views(views: Iterable[View | str] | None, is_judged: bool) -> tuple[View, ...]:
    """The views that are asked, in the order of :class:`View`, whatever the order of ``views``."""
    names = [*View] if views is None else [_view("views", view) for view in views]
    if not names:
        raise InvalidValueError(field="views", expected="at least one", got=Verbatim("none"))
    if views is not None and View.EXTERNAL in names and not is_judged:
        raise InvalidValueError(field="views", got=View.EXTERNAL, expected="views of participants", hint="name a judge")
    return tuple(view for view in View if view in names and (is_judged or view is not View.EXTERNAL))


def _deciding(deciding: View | str | None, views: Sequence[View]) -> View | str | None:
    if deciding is None:
        return View.EXTERNAL if View.EXTERNAL in views else None
    if deciding == ALL_VIEWS:
        return ALL_VIEWS
    view = _view("deciding", deciding, ALL_VIEWS)
    if view not in views:
        raise InvalidValueError(field="deciding", expected=f"a view that is asked ({', '.join(views)})", got=view)
    return view


def _view(field: str, value: View | str, *more: str) -> View:
    if value not in tuple(View):
        raise UnknownNameError(field=field, got=str(value), valid=[*View, *more])
    return View(value)


def _votes(answers: Iterable[InterviewAnswer], agent: str, goal: int) -> dict[View, list[bool]]:
    """The answers on one goal by view, without views that did not answer."""
    votes: dict[View, list[bool]] = {}
    for answer in answers:
        if (answer.about, answer.index) == (agent, goal) and answer.view is not None and answer.value is not None:
            votes.setdefault(answer.view, []).append(answer.value)
    return votes


def _information_shares(rights: Iterable[bool | None]) -> dict[str, float]:
    """Returns the mean of each measure over questions that were asked, without measures that have no value."""
    values = [information_values(right) for right in rights]
    by_measure = {name: [value[name] for value in values if name in value] for name in INFORMATION_MEASURES}
    return {name: statistics.fmean(numbers) for name, numbers in by_measure.items() if numbers}


def _mean(goals: Iterable[Sequence[bool]]) -> float | None:
    """The mean over goals of the share of yes, without goals that have no answer."""
    shares = [statistics.fmean(map(float, votes)) for votes in goals if votes]
    return statistics.fmean(shares) if shares else None


def _ended_table(episode: Episode) -> Table:
    try:
        return next(tables_of(episode))
    except DamagedRecordError as error:
        raise EvaluationError(f"interview: {error}") from error


def _tested_outcome(episode: Episode) -> OutcomeResult | None:
    """The outcome of the moves, if goals are tested against it."""
    interview = episode.task.scenario.interview
    if interview is None or not interview.goal_tests:
        return None
    try:
        return outcome_of(episode.task, episode.plain_turns)
    except InvalidTaskError as error:
        raise EvaluationError(f"interview: {error}") from error


def _items(task: Task, seat: int, seed: int, views: Sequence[View]) -> Iterator[_SeatQuestion]:
    seats, interview = len(task.agents), task.scenario.interview
    for view, owners in ((View.SELF, [seat]), (View.OTHER, [owner for owner in range(seats) if owner != seat])):
        for owner in owners if view in views else ():
            for index, goal in enumerate(task.scenario.seats[owner].goals):
                yield _SeatQuestion(view, owner, index, InterviewQuestion(task.agents[owner], goal))
    for index, question in enumerate(() if interview is None else interview.questions):
        if seat in question.asked_seats(seats):
            yield _shuffled(task, question, index, _seed(seed, task.id, task.agents[seat], "options", index))


def _shuffled(task: Task, question: Question, index: int, seed: int) -> _SeatQuestion:
    # The right answer is the first in the file; models prefer some positions, so each seat gets another order.
    options = [question.answer, *question.wrong]
    random.Random(seed).shuffle(options)
    item = InterviewQuestion(task.agents[question.about], question.text, tuple(options))
    return _SeatQuestion(None, question.about, index, item, options.index(question.answer))


def _answer(task: Task, agent: str, by: str, item: _SeatQuestion, reply: InterviewReply) -> InterviewAnswer:
    value, choice = None, None
    if reply.choice is not None:
        # For a goal the options are yes and no, and the value is whether the answer is yes.
        value = reply.choice == (0 if item.right is None else item.right)
        choice = None if item.right is None else item.question.options[reply.choice]
    return InterviewAnswer(
        respondent=agent,
        by=by,
        about=task.agents[item.about],
        view=item.view,
        index=item.index,
        value=value,
        choice=choice,
        reason=reply.reason,
        asked=reply.asked,
    )


def _seed(*parts: object) -> int:
    # 48 bits of a hash, the same on every machine; Python's ``hash`` of strings differs between processes.
    return int.from_bytes(hashlib.sha256(canonical_json(parts).encode()).digest()[:6], "big")
