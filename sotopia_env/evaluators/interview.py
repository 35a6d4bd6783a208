"""The interview after the end: participants on goals and on private information, judges on goals (AgentSense §3.4).

Each seat's own policy is asked, as its character and from its own view alone. One question is asked at a time, since
questions tell: those on others' goals would help with those on private information. What nobody answered is recorded as
unanswered, with the reason: on a goal it enters no mean, and on private information it is not right.
"""

from __future__ import annotations

import hashlib
import random
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sotopia_env.chat_model.protocol import ChatModel
from sotopia_env.errors import DamagedRecordError, EvaluationError, InvalidTaskError, PolicyError
from sotopia_env.evaluators.evaluator import Basis
from sotopia_env.evaluators.judge.goal_answer import Inquiry
from sotopia_env.evaluators.judge.prompt import fingerprint
from sotopia_env.evaluators.judge.question import AskingEvaluator, Manner, all_at_once, check_model, tag
from sotopia_env.evaluators.judge.views import ask_goals
from sotopia_env.outcomes import OutcomeResult
from sotopia_env.records import canonical_json
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
from sotopia_env.world.dynamics import EpisodeState
from sotopia_env.world.episode import Episode, Evaluation, PolicyInfo, Score, replay_turns
from sotopia_env.world.interview import Question
from sotopia_env.world.observation import observe
from sotopia_env.world.outcome import goal_truth, outcome_of
from sotopia_env.world.reward import CustomDimension, Dimension
from sotopia_env.world.scenario import Task

_PROMPTS = ("question", "own_goal", "other_goal", "choice", "reask")
_JUDGE_PROMPTS = ("judge_view_external", "judge_view_data", "judge_view_form", "judge_view_closing", "judge_data")
_INSTRUCTIONS = {
    "goal_self": "Ten times the share of its goals that the agent says it reached.",
    "goal_other": "Ten times the share of its goals that the other agents say it reached.",
    "goal_external": "Ten times the share of its goals that most judges say it reached.",
    "goal_exact": "Ten times the share of its goals with an exact test that were reached.",
    INFORMATION: "Ten times the share of questions on the others' private information with the right answer.",
    ANSWERED: "Ten times the share of right answers among the answers on the others' private information.",
    COVERAGE: "Ten times the share of questions on the others' private information that were answered.",
}
DIMENSIONS = {name: CustomDimension(name=name, low=0, high=10, instruction=i) for name, i in _INSTRUCTIONS.items()}
"""The dimensions of an interview, by name; one without a value has no score."""


@dataclass(frozen=True, slots=True)
class _Item:
    """One question of a seat's interview: by which view, about which seat, and which option is right."""

    view: View | None
    about: int
    index: int
    question: InterviewQuestion
    right: int | None = None


class Interview(AskingEvaluator):
    """Asks the policies in the seats, and judges from outside, after the end of an episode.

    Every seat is asked (a) for each own goal and (b) for each goal of every other seat whether it was reached, and (c)
    the scenario's multiple-choice questions on the others' private information, options in an order of its own. Judges
    answer (a) with everything in view. All answers stand in ``answers`` of the evaluation; the scores are in
    :data:`DIMENSIONS`, and where there are judges GOAL is that of their majority (of those that answered; as many yes
    as no counts as not reached), the paper's first measure. Where a goal has an exact test, the outcome of the moves
    stands in the evaluation, too.

    Args:
        judges: models from outside; none asks the participants alone.
        policies: those that sat in the seats; a seat is asked through the one with the name and the parameters that the
            record of the episode gives. Seats of others are unanswered.
        temperature: of the judges; a policy answers with its own settings.
        reasks: of the judges, after answers that are not accepted.
        max_tokens: limit on a judge's answer, in tokens.

    Raises:
        InvalidValueError: an argument is not valid.
    """

    def __init__(
        self,
        judges: Sequence[ChatModel] = (),
        *,
        policies: Iterable[Configured] = (),
        temperature: float = 0.0,
        reasks: int = 2,
        max_tokens: int | None = None,
    ) -> None:
        self.judges = tuple(map(check_model, judges))
        self.manner = Manner(temperature, reasks, max_tokens)
        self._policies = {_identity(policy): policy for policy in policies}
        self._parameters = self._describe()
        names = ", ".join(judge.name for judge in self.judges)
        tagged = {key: value for key, value in self._parameters.items() if key != "prompt"}
        self._name = f"interview({names})#{tag(tagged)}" if names else "interview"

    def _describe(self) -> dict[str, Any]:
        prompts = [f"interview_{name}" for name in _PROMPTS] + [*_JUDGE_PROMPTS] * bool(self.judges)
        return {
            "judges": [{"model": model.name, "model_parameters": dict(model.parameters)} for model in self.judges],
            "temperature": self.manner.temperature,
            "reasks": self.manner.reasks,
            "max_tokens": self.manner.max_tokens,
            "prompt": fingerprint("", *prompts),
        }

    @property
    def name(self) -> str:
        """``interview``; with judges ``interview(MODEL, …)#`` and six digits that stand for the parameters."""
        return self._name

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The judges and how they are asked; the policies are in the record of the episode."""
        return self._parameters

    def measures(self, task: Task) -> Mapping[Dimension, Basis]:
        """None of the seven dimensions."""
        return {}

    async def evaluate_async(self, episode: Episode) -> Evaluation:
        """Returns all answers, with scores by view; unscored if there is no score, as where nobody could be asked.

        Raises:
            EvaluationError: a model could not be asked, or the turns contradict the rules or the task.
            BudgetExceededError: a ledger's limit is reached.
        """
        task = episode.task
        state, outcome = _ending(episode)
        seats = [self._participant(episode, state, seat) for seat in range(len(task.agents))]
        judges = [self._judge(episode, n, about) for about in task.agents for n in range(len(self.judges))]
        answers = tuple(answer for group in await all_at_once([*seats, *judges]) for answer in group)
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

    async def _participant(self, episode: Episode, state: EpisodeState, seat: int) -> list[InterviewAnswer]:
        task = episode.task
        agent = task.agents[seat]
        info = next((info for info in episode.policies if info.agent == agent), None)
        policy = None if info is None else self._policies.get(_identity(info))
        observation = observe(state, agent, episode.own_messages(agent))
        answers = []
        for item in _items(task, seat, episode.seed):
            if policy is None:
                reply = InterviewReply(reason=_absence(info), asked=False)
            else:
                seed = _seed(episode.seed, task.id, agent, item.view, item.about, item.index)
                try:
                    reply = await answer_of(policy, observation, item.question, seed)
                except PolicyError as error:
                    raise EvaluationError(f"{self._name}: {agent}: {error}") from error
            answers.append(_answer(task, agent, "" if info is None else info.name, item, reply))
        return answers

    async def _judge(self, episode: Episode, number: int, about: str) -> list[InterviewAnswer]:
        model, task = self.judges[number], episode.task
        inquiry = Inquiry(View.EXTERNAL, f"judge_{number}", about, model)
        label = f"{self._name}: {task.id}, seed {episode.seed}"
        result = await ask_goals(episode, inquiry, self.manner, label)
        who: dict[str, Any] = {
            "respondent": inquiry.respondent,
            "by": model.name,
            "about": about,
            "view": View.EXTERNAL,
        }
        if result.value is None:
            goals = range(len(task.scenario.seats[task.agents.index(about)].goals))
            return [InterviewAnswer(**who, index=goal, reason=result.refusal) for goal in goals]
        return [InterviewAnswer(**who, index=a.goal, value=a.reached, reason=a.reasoning) for a in result.value]

    def _scores(
        self, task: Task, answers: Sequence[InterviewAnswer], truth: Mapping[tuple[int, int], bool]
    ) -> Iterator[Score]:
        for seat, agent in enumerate(task.agents):
            exact = [float(value) for (owner, _), value in truth.items() if owner == seat]
            own = [a.value for a in answers if a.view is None and a.respondent == agent and a.asked]
            shares = {
                "goal_self": _mean(votes_by_goal(answers, agent, View.SELF)),
                "goal_other": _mean(votes_by_goal(answers, agent, View.OTHER)),
                "goal_external": _majority_share(votes_by_goal(answers, agent, View.EXTERNAL)),
                "goal_exact": statistics.fmean(exact) if exact else None,
            }
            shares |= _information_shares(own)
            if shares["goal_external"] is not None:
                yield self._score(agent, Dimension.GOAL, shares["goal_external"])
            for name, share in shares.items():
                if share is not None:
                    yield self._score(agent, name, share)

    def _score(self, agent: str, dimension: Dimension | str, share: float) -> Score:
        instruction = _INSTRUCTIONS.get(dimension, _INSTRUCTIONS["goal_external"])
        return Score(agent=agent, dimension=dimension, value=10 * share, reasoning=instruction, source=self._name)

    async def close(self) -> None:
        """Closes the judges' models."""
        for model in {id(model): model for model in self.judges}.values():
            await model.close()


def votes_by_goal(answers: Iterable[InterviewAnswer], agent: str, view: View) -> list[list[bool]]:
    """Returns, for each goal of ``agent`` that anybody was asked about, the answers by respondents of that view."""
    goals: dict[int, list[bool]] = {}
    for answer in answers:
        if (answer.about, answer.view) == (agent, view):
            votes = goals.setdefault(answer.index, [])
            votes += [] if answer.value is None else [answer.value]
    return [goals[index] for index in sorted(goals)]


def _information_shares(rights: Iterable[bool | None]) -> dict[str, float]:
    """Returns the mean of each measure over questions that were asked, of those measures that have a value."""
    values = [information_values(right) for right in rights]
    by_measure = {name: [value[name] for value in values if name in value] for name in INFORMATION_MEASURES}
    return {name: statistics.fmean(numbers) for name, numbers in by_measure.items() if numbers}


def _mean(goals: Iterable[Sequence[bool]]) -> float | None:
    """The mean over goals of the share of yes, of goals with any answer."""
    shares = [statistics.fmean(map(float, votes)) for votes in goals if votes]
    return statistics.fmean(shares) if shares else None


def _majority_share(goals: Iterable[Sequence[bool]]) -> float | None:
    return _mean([[is_majority(votes)] for votes in goals if votes])


def _ending(episode: Episode) -> tuple[EpisodeState, OutcomeResult | None]:
    """The last state, and the outcome where goals are tested against it."""
    interview = episode.task.scenario.interview
    try:
        state = replay_turns(episode)
        if interview is None or not interview.goal_tests:
            return state, None
        return state, outcome_of(episode.task, episode.plain_turns)
    except (DamagedRecordError, InvalidTaskError) as error:
        raise EvaluationError(f"interview: {error}") from error


def _items(task: Task, seat: int, seed: int) -> Iterator[_Item]:
    seats, interview = len(task.agents), task.scenario.interview
    for view, owners in ((View.SELF, [seat]), (View.OTHER, [owner for owner in range(seats) if owner != seat])):
        for owner in owners:
            for index, goal in enumerate(task.scenario.seats[owner].goals):
                yield _Item(view, owner, index, InterviewQuestion(task.agents[owner], goal))
    for index, question in enumerate(() if interview is None else interview.questions):
        if seat in question.asked_seats(seats):
            yield _shuffled(task, question, index, _seed(seed, task.id, task.agents[seat], "options", index))


def _shuffled(task: Task, question: Question, index: int, seed: int) -> _Item:
    options = [question.answer, *question.wrong]
    random.Random(seed).shuffle(options)
    item = InterviewQuestion(task.agents[question.about], question.text, tuple(options))
    return _Item(None, question.about, index, item, options.index(question.answer))


def _answer(task: Task, agent: str, by: str, item: _Item, reply: InterviewReply) -> InterviewAnswer:
    value, choice = None, None
    if reply.choice is not None:
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


def _absence(info: PolicyInfo | None) -> str:
    return (
        "no policy is recorded for the seat" if info is None else f"the policy {info.name!r} is not there to be asked"
    )


def _identity(policy: Configured | PolicyInfo) -> str:
    return canonical_json([policy.name, dict(policy.parameters)])


def _seed(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256(canonical_json(parts).encode()).digest()[:6], "big")
