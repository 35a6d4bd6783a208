"""An evaluator that scores GOAL and FIN of an episode without moves from a language model's reading of the agreement.

The result is scored, never verified.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from sotopia_env.chat_model.protocol import ChatModel
from sotopia_env.evaluators.evaluator import Basis
from sotopia_env.evaluators.judge.document import document
from sotopia_env.evaluators.judge.prompt import Prompt, fingerprint, judge_text
from sotopia_env.evaluators.judge.question import JudgeAnswer, Manner, ModelEvaluator, remarks
from sotopia_env.evaluators.spoken_agreement import agreement_schema, protocol_of, read_agreement, with_outcome
from sotopia_env.evaluators.verified import VerifiedOutcome, share_scores
from sotopia_env.foundation.errors import EvaluationError, InvalidTaskError
from sotopia_env.foundation.prompts import fill, reader
from sotopia_env.foundation.quoting import escape, quote
from sotopia_env.outcomes import AgreementRules, BallotRules
from sotopia_env.outcomes.result import SpokenAgreement
from sotopia_env.outcomes.specification import Quorum
from sotopia_env.world.episode import Episode, Evaluation
from sotopia_env.world.outcome import references
from sotopia_env.world.reward import Dimension
from sotopia_env.world.scenario import Task

load = reader(__package__)


class SpokenOutcome(ModelEvaluator):
    """Asks a model for the agreement in an episode without moves, such as an imported one.

    The answer gives terms of the task's outcome space, with a turn for each seat that shows its assent, or says that
    nothing was agreed (:mod:`sotopia_env.evaluators.spoken_agreement`). If an answer is refused, the model is asked
    again with the reason; when the re-asks are used up, the episode is *unscored* with that reason. GOAL and FIN follow
    from the terms by the formula of verified outcomes, but the result is an opinion: ``Evaluation.outcome`` stays
    empty, and every score names this evaluator as its source. The model reads the situation, the names and the turns,
    but neither goals nor worths nor private information.

    With ``words_only``, the model reads an episode with moves, without its moves, their effects and its end. The
    evaluation then has the agreement and no scores, because the moves decide what the episode is worth.

    Args:
        model: the model that reads the episode.
        temperature: the sampling temperature.
        reasks: the number of re-asks after answers that are refused.
        max_tokens: the limit on an answer, in tokens.
        replicate: distinguishes evaluators with the same settings.
        words_only: whether to read the words of an episode with moves.

    Raises:
        InvalidValueError: an argument is invalid.
    """

    def __init__(
        self,
        model: ChatModel,
        *,
        temperature: float = 0.0,
        reasks: int = 2,
        max_tokens: int | None = None,
        replicate: int = 0,
        words_only: bool = False,
    ) -> None:
        own = ("spoken_outcome", "spoken_outcome_closing", "spoken_outcome_needs")
        prompt = fingerprint(*map(load, own), *map(judge_text, ("judge_data_rule", "judge_data", "judge_reask")))
        self.words_only = words_only
        # Absent by default: a new parameter would change the names of recorded evaluations.
        parameters = {"words_only": True} if words_only else {}
        manner = Manner(temperature, reasks, max_tokens, replicate)
        super().__init__("spoken-outcome", model, manner, prompt, parameters)

    def applies(self, episode: Episode) -> bool:
        """Whether the task has an outcome that can be agreed on."""
        try:
            protocol_of(episode.task)
        except EvaluationError:
            return False
        return True

    def measures(self, task: Task) -> Mapping[Dimension, Basis]:
        """GOAL and FIN for a task with an outcome, on the basis of a model's reading; nothing with ``words_only``."""
        return {} if self.words_only else dict.fromkeys(VerifiedOutcome().measures(task), "judged")

    async def evaluate(self, episode: Episode) -> Evaluation:
        """Returns GOAL and FIN for every agent (with ``words_only``, none), or an unscored evaluation with the reason.

        The model's reading is in ``agreement`` of the evaluation.

        Raises:
            EvaluationError: the task has no agreement or too many outcomes, the episode has moves or does not fit the
                model, or a call to the model failed permanently.
            BudgetExceededError: the ledger's limit is reached.
        """
        task = episode.task
        protocol_of(task)
        if self.words_only:
            episode = _without_moves(episode)
        try:
            references(task)  # raises before a request is paid for
        except InvalidTaskError as error:
            raise EvaluationError(f"{self._name}: {error}") from error
        answer = await self.read(episode)
        if answer.value is None:
            reason = f"no valid answer after {answer.reasks + 1} answers; the last one: {answer.refusal}"
            return Evaluation(evaluator=self._name, parameters=dict(self._parameters), unscored=reason)
        agreement = with_outcome(answer.value, episode, self.model.name)
        assert agreement.outcome is not None
        return Evaluation(
            evaluator=self._name,
            parameters=dict(self._parameters),
            scores=() if self.words_only else share_scores(task, agreement.outcome, self._name),
            agreement=agreement,
            comment=remarks([answer]),
        )

    async def read(self, episode: Episode) -> JudgeAnswer[SpokenAgreement]:
        """Returns the agreement that the model reads, or the reason why its answers were refused.

        Raises:
            EvaluationError: for the reasons of :meth:`evaluate`.
        """
        task = episode.task
        if any(turn.action.move is not None for turn in episode.plain_turns):
            raise EvaluationError(
                f"{self._name}: expected an episode without moves, got moves; 'verified' computes their outcome, and "
                "the option words_only=true reads the words beside them"
            )
        system, schema = _instructions(task), agreement_schema(task, len(episode.plain_turns))
        closing = load("spoken_outcome_closing")

        def prompt(omitted: int) -> Prompt:
            return Prompt(system, document(episode, omitted=omitted, turns_only=True), closing, schema)

        return await self.ask(episode, prompt, partial(read_agreement, episode=episode))


def _without_moves(episode: Episode) -> Episode:
    """The words of an episode: neither moves nor their effects nor the end, which would say that they settled it."""
    turns = episode.plain_turns
    words = [replace(turn, action=replace(turn.action, move=None), effect=None, hidden=None) for turn in turns]
    return episode.with_turns(words).model_copy(update={"stop": None})


def _instructions(task: Task) -> str:
    space = protocol_of(task).space
    issues = "\n".join(f"- {issue.name}: {space.values_text(index)}" for index, issue in enumerate(space.issues))
    terms = ", ".join(f"{quote(issue.name)}: …" for issue in space.issues)
    turns = ", ".join(f'"{agent}": …' for agent in task.agents)
    text = fill(
        load("spoken_outcome"),
        data_rule=judge_text("judge_data_rule"),
        issues=issues,
        needs=_needs(task),
        form=f'{{"reasoning": "…", "agreement": {{"terms": {{{terms}}}, "turns": {{{turns}}}}}}}',
    )
    return escape(text)  # issues and options are texts from the scenario's author


def _needs(task: Task) -> str:
    """The assents that an agreement or a decision needs, in words with agent ids."""
    assert task.scenario.outcome is not None
    rules = task.scenario.outcome.protocol
    texts = dict(line.split(": ", 1) for line in load("spoken_outcome_needs").splitlines())
    if isinstance(rules, BallotRules):
        return texts[rules.rule]
    needs = rules.needs if isinstance(rules, AgreementRules) else "all"
    if not isinstance(needs, Quorum):
        return texts["all"]
    numbers = {"quorum": str(needs.quorum), "seats": str(len(task.agents))}
    if not needs.veto:
        return fill(texts["quorum"], **numbers)
    return fill(texts["veto"], **numbers, veto=", ".join(needs.veto))
