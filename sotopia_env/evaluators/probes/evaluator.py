"""The evaluator ``facts``: knowledge, secrecy and norms without a judge, from moves and from probes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sotopia_env.evaluators.evaluator import Basis, NothingMeasuredError
from sotopia_env.evaluators.probes.asking import MOMENTS, Moments, probe, questions_of
from sotopia_env.evaluators.probes.conduct import Share, breaches, honesty, inquiry, kept_promises, leaks, restricted
from sotopia_env.evaluators.probes.foresight import LEAST_SKILL, foresight, outcomes_of_choices
from sotopia_env.evaluators.probes.knowledge import LEAST_LOG, skill
from sotopia_env.evaluators.probes.trust import trust_in
from sotopia_env.evaluators.respondents import Respondents
from sotopia_env.evaluators.turn_rewards import belief_rewards
from sotopia_env.foundation.errors import (
    DamagedRecordError,
    EvaluationError,
    InvalidValueError,
    PolicyError,
    UnknownNameError,
    check_whole,
)
from sotopia_env.outcomes.facts import Facts
from sotopia_env.outcomes.move import InvalidMoveError
from sotopia_env.world.answers import Belief, Configured
from sotopia_env.world.episode import Episode, Evaluation, Score
from sotopia_env.world.reward import CustomDimension, Dimension
from sotopia_env.world.scenario import Task
from sotopia_env.world.social_acts import SocialAct, social_acts

_CUSTOM: Mapping[str, tuple[int, int, str]] = {
    "brier": (0, 2, "Mean Brier score of the seat's beliefs at the end on what it is to learn; 0 is best."),
    "log_score": (int(LEAST_LOG), 0, "Mean log score of these beliefs, in nats; 0 is best."),
    "belief_coverage": (0, 1, "Share of the questions about the variables at the end that the seat answered."),
    "belief_control": (0, 1, "Probability that the seat gives at the end to a value that its briefing names."),
    "truth_telling": (0, 1, "Share of honest ones among the seat's statements other than promises."),
    "promise_keeping": (0, 1, "Share of kept ones among the seat's promises that were kept or broken."),
    "secrecy": (0, 1, "Share of what the seat had to keep that did not get out."),
    "asking": (0, 1, "Share of what the seat is to learn for which it asked a seat that may tell it."),
    "foresight": (LEAST_SKILL, 1, "Skill of the seat's beliefs on the others' coming choices, against uniform ones."),
    "intention": (LEAST_SKILL, 1, "The same for its own coming choices: how well it foresaw what it would do."),
    "persuasion": (-1, 1, "Change of the others' mean belief in the truth, or in what the seat aims at, by its turns."),
}
DIMENSIONS = {
    name: CustomDimension(name=name, low=low, high=high, instruction=text)
    for name, (low, high, text) in _CUSTOM.items()
}
"""The dimensions beyond KNO, SEC, SOC and REL, by name; one that a task or an episode does not define is not scored."""


class FactsEvaluator:
    """Measures what seats know, keep and state, in tasks with facts.

    Every score is computed from moves and from the *beliefs* of the seats' own policies, which are asked about the
    variables of the task with their own observation (:mod:`~sotopia_env.evaluators.probes.asking`):

    * KNO is ten times the skill of a seat's beliefs at the end on what it is to learn, in [0, 10]: 1 - its Brier score
      divided by that of the belief which its briefing alone gives.
    * SEC is minus ten times the part of what a seat had to keep that got out, in [-10, 0]
      (:func:`~sotopia_env.evaluators.probes.conduct.leaks`).
    * SOC is minus ten times the share of a seat's statements that break a norm of the task, in [-10, 0].
    * REL is five times what the others would entrust to the seat of an endowment, less what they would entrust to a
      stranger, as shares, in [-5, 5] (:mod:`~sotopia_env.evaluators.probes.trust`).
    * :data:`DIMENSIONS` has the parts and the other acts.

    The evaluation contains all answers as ``beliefs`` and ``trust``. An episode's turns, and so their hash, are the
    same with and without probes. A dimension for which the task declares nothing, or for which nobody answered, is not
    scored, and ``comment`` says why.

    Args:
        policies: the policies in the seats. Each seat is asked through the policy with the recorded name and
            parameters; seats without one remain unanswered.
        interviewee: a policy that answers for all seats instead, each time with the seat's observation, or a mapping
            from agent ids to such policies.
        probe: when seats are asked: ``end``, ``turns`` (at the start and after every turn) or ``none``.
        samples: the number of answers to a question where a policy has no probabilities at hand, at least 2.
        trust: whether seats are asked, at the end, what they would entrust to one another.
        choices: whether seats are asked about coming choices as long as these are due, their own among them.

    Raises:
        UnknownNameError: ``probe`` is not one of these.
        InvalidValueError: ``samples`` is less than 2, or ``interviewee`` is not a policy.
    """

    custom = tuple(DIMENSIONS.values())

    def __init__(
        self,
        *,
        policies: Iterable[Configured] = (),
        interviewee: Configured | Mapping[str, Configured] | None = None,
        probe: Moments = "end",
        samples: int = 8,
        trust: bool = True,
        choices: bool = False,
    ) -> None:
        if probe not in MOMENTS:
            raise UnknownNameError(field="probe", got=probe, valid=MOMENTS)
        check_whole("samples", samples, 2)
        self.probe, self.samples, self.trust, self.choices = probe, samples, trust, choices
        self._respondents = Respondents(policies, interviewee)

    @property
    def name(self) -> str:
        """``facts``, with the moments of the probes and ``choices`` if they are not the default."""
        changes = [f"probe={self.probe}"] if self.probe != "end" else []
        changes += ["choices=true"] if self.choices else []
        return ":".join(filter(None, ["facts", ",".join(changes)]))

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The settings, and the policies that answer instead of the seats'."""
        settings = {"probe": self.probe, "samples": self.samples, "trust": self.trust}
        if self.choices:  # only then, so that earlier evaluations keep their identity
            settings["choices"] = True
        return {**settings, "interviewee": self._respondents.parameters}

    def replaces(self, agent: str) -> bool:
        """Whether another policy answers in place of the one that played, or of the person who did."""
        return self._respondents.replaces(agent)

    def applies(self, episode: Episode) -> bool:
        """Whether the task has facts."""
        return episode.task.scenario.facts is not None

    def measures(self, task: Task) -> Mapping[Dimension, Basis]:
        """KNO, SEC, SOC and REL, as far as the task declares what they need."""
        facts, questions = task.scenario.facts, questions_of(task)
        if facts is None:
            return {}
        asks = self.probe != "none"
        bases: dict[Dimension, Basis] = {}
        if asks and any(one.targets for one in questions.values()):
            bases[Dimension.KNOWLEDGE] = "elicited"
        if asks and self.trust:
            bases[Dimension.RELATIONSHIP] = "elicited"
        if restricted(facts):
            bases[Dimension.SECRET] = "elicited" if asks else "verified"
        if facts.norms:
            bases[Dimension.SOCIAL_RULES] = "verified"
        return bases

    async def evaluate(self, episode: Episode) -> Evaluation:
        """Returns the scores of every seat and all beliefs.

        Raises:
            NothingMeasuredError: nobody is asked, and nobody did anything that counts for or against a seat.
            EvaluationError: the task has no facts, a policy could not be asked, or the turns contradict the rules.
            BudgetExceededError: a ledger's limit is reached.
        """
        task = episode.task
        if task.scenario.facts is None:
            raise EvaluationError(
                f"{self.name}: task {task.id!r} has no facts, so nothing can be known or kept in it; play one with "
                "'facts', such as family:mini_mafia, or use a judge (evaluator 'judge:MODEL')"
            )
        try:
            acts = social_acts(task, episode.plain_turns)
            answers = await probe(
                episode, self._respondents, self.probe, self.samples, trust=self.trust, choices=self.choices
            )
        except (PolicyError, DamagedRecordError, InvalidMoveError) as error:
            raise EvaluationError(f"{self.name}: {error}") from error
        names = {question.name for one in questions_of(task).values() for question in one.trust}
        beliefs = tuple([answer for answer in answers if answer.variable not in names])
        trust = tuple([answer for answer in answers if answer.variable in names])
        final = [belief for belief in beliefs if belief.turns == len(episode.turns)]
        seats = [_SeatMeasures(episode, agent, acts, final, beliefs, trust, self.name) for agent in task.agents]
        results = [result for seat in seats for result in seat.results()]
        scores = tuple(result for result in results if isinstance(result, Score))
        comment = "; ".join(dict.fromkeys(result for result in results if isinstance(result, str)))
        if not scores:
            raise NothingMeasuredError(f"{self.name}: nothing was measured: {comment}")
        return Evaluation(
            evaluator=self.name,
            parameters=dict(self.parameters),
            dimensions=self.custom,
            scores=scores,
            comment=comment,
            beliefs=beliefs,
            trust=trust,
        )


@dataclass(frozen=True, slots=True)
class _SeatMeasures:
    """The measures of one seat: scores, and in place of a missing one the reason."""

    episode: Episode
    agent: str
    acts: Sequence[SocialAct]
    final: Sequence[Belief]
    beliefs: Sequence[Belief]
    trust: Sequence[Belief]
    source: str

    def results(self) -> Iterator[Score | str]:
        yield from self._knowledge()
        yield from self._coverage()
        yield from self._secrecy()
        yield from self._norms()
        yield from self._relationship()
        yield from self._persuasion()
        yield from self._foresight()
        shares: dict[str, Share | None] = {
            "truth_telling": honesty(self.acts, self.agent),
            "promise_keeping": kept_promises(self.acts, self.agent),
            "asking": inquiry(self.episode, self.acts, self.agent),
        }
        for name, share in shares.items():
            if share is not None:
                yield self._score(name, share.value, share.parts)

    @property
    def _facts(self) -> Facts:
        facts = self.episode.task.scenario.facts
        assert facts is not None
        return facts

    @property
    def _own(self) -> list[Belief]:
        return [belief for belief in self.final if belief.respondent == self.agent]

    def _knowledge(self) -> Iterator[Score | str]:
        questions = questions_of(self.episode.task)[self.agent]
        learnt = skill(self._own, questions.targets, questions, self._facts.truth)
        if not questions.targets:
            yield f"knowledge: {self.agent} has nothing to learn"
        elif learnt is None:
            yield "knowledge: nobody was asked (probe=none)"
        elif not learnt.answers:
            yield f"knowledge: {self.agent} gave no answer ({learnt.missing})"
        else:
            yield self._score(Dimension.KNOWLEDGE, 10 * min(max(learnt.value, 0.0), 1.0), str(learnt))
            yield self._score("brier", learnt.brier, str(learnt))
            yield self._score("log_score", learnt.log, str(learnt))

    def _coverage(self) -> Iterator[Score]:
        """The share of questions that were answered, and the answer to the control question."""
        questions = [belief for belief in self._own if not belief.control]
        answers = [belief for belief in questions if belief.probabilities is not None]
        if questions:
            text = f"{len(answers)} of {len(questions)} questions answered"
            yield self._score("belief_coverage", len(answers) / len(questions), text)
        for belief in self._own:
            if belief.control and belief.probabilities is not None:
                share = min(1.0, belief.probabilities[self._facts.truth[belief.variable]])
                yield self._score("belief_control", share, f"its own {belief.variable}")

    def _secrecy(self) -> Iterator[Score | str]:
        leak = leaks(self.episode, self.acts, self.final, self.agent)
        if leak is None:
            whole = "the task keeps nothing from anybody"
            yield f"secret: {f'{self.agent} has nothing to keep' if restricted(self._facts) else whole}"
            return
        yield self._score(Dimension.SECRET, -10 * leak.value, leak.parts)
        yield self._score("secrecy", 1 - leak.value, leak.parts)

    def _norms(self) -> Iterator[Score | str]:
        broken = breaches(self._facts, self.acts, self.agent)
        if broken is None:
            yield "social_rules: the task declares no norms"
        else:
            yield self._score(Dimension.SOCIAL_RULES, -10 * broken.value, broken.parts)

    def _relationship(self) -> Iterator[Score | str]:
        if not self.trust:
            yield "relationship: nobody was asked what they would entrust"
            return
        trust = trust_in(self.episode.task, self.agent, self.trust)
        if trust.value is None:
            yield f"relationship: nobody said what they would entrust to {self.agent} ({trust.missing})"
        else:
            yield self._score(Dimension.RELATIONSHIP, trust.value, str(trust))

    def _persuasion(self) -> Iterator[Score]:
        if len(self.beliefs) == len(self.final):  # nobody was asked before the end
            return
        try:
            rewards = belief_rewards(self.episode, self.agent, self.beliefs)
        except InvalidValueError:  # nobody else answered, or seats act at once: the beliefs in the record show it
            return
        text = ", ".join(f"turn {turn}: {value:+.3f}" for turn, value in rewards.by_turn.items() if value)
        yield self._score("persuasion", min(max(sum(rewards.values), -1.0), 1.0), text or "no turn changed a belief")

    def _foresight(self) -> Iterator[Score]:
        owners = {variable.name: variable.of for variable in self._facts.variables if variable.kind == "choice"}
        answers = [b for b in self.beliefs if b.respondent == self.agent and b.variable in owners]
        if not answers:
            return
        outcomes = outcomes_of_choices(self.episode)
        parts = {
            "foresight": [belief for belief in answers if owners[belief.variable] != self.agent],
            "intention": [belief for belief in answers if owners[belief.variable] == self.agent],
        }
        for name, beliefs in parts.items():
            if (result := foresight(beliefs, outcomes)) is not None:
                yield self._score(name, *result)

    def _score(self, dimension: Dimension | str, value: float, reasoning: str) -> Score:
        return Score(agent=self.agent, dimension=dimension, value=value, reasoning=reasoning, source=self.source)
