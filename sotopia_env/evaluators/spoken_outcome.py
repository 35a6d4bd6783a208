"""GOAL and FIN of an episode without moves, by what a language model reads as agreed in it: scored, never verified."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from sotopia_env.chat_model.protocol import ChatModel
from sotopia_env.errors import EvaluationError, InvalidTaskError
from sotopia_env.evaluators.evaluator import Basis
from sotopia_env.evaluators.judge.document import document
from sotopia_env.evaluators.judge.prompt import Prompt, fingerprint
from sotopia_env.evaluators.judge.question import Answer, Manner, ModelEvaluator, remarks
from sotopia_env.evaluators.spoken_agreement import agreement_schema, protocol_of, read_agreement, with_outcome
from sotopia_env.evaluators.verified import VerifiedOutcome, share_scores
from sotopia_env.outcomes import AgreementRules, BallotRules, Quorum, SpokenAgreement
from sotopia_env.prompts import fill, load
from sotopia_env.quoting import disarm, quote
from sotopia_env.world.episode import Episode, Evaluation
from sotopia_env.world.outcome import references
from sotopia_env.world.reward import Dimension
from sotopia_env.world.scenario import Task


class SpokenOutcome(ModelEvaluator):
    """Asks a model what was agreed in an episode of words alone, such as an imported one.

    The answer is terms of the task's outcome space, with a turn for each seat that shows its assent, or that nothing
    was agreed (:mod:`sotopia_env.evaluators.spoken_agreement`). One that is not accepted is asked for again with the
    reason; when the re-asks are used up the episode is *unscored* with that reason. GOAL and FIN follow from the terms
    by the formula of verified outcomes, but the result is an opinion: ``Evaluation.outcome`` stays empty, and every
    score names this evaluator as its source. The model reads the situation, the names and the turns; no goal, no worth
    and nothing private.

    Args:
        model: who reads.
        temperature: sampling temperature.
        reasks: how often it is asked again after an answer that is not accepted.
        max_tokens: limit on an answer, in tokens.
        replicate: tells apart evaluators that are the same in everything else.

    Raises:
        InvalidValueError: an argument cannot be meant.
    """

    def __init__(
        self,
        model: ChatModel,
        *,
        temperature: float = 0.0,
        reasks: int = 2,
        max_tokens: int | None = None,
        replicate: int = 0,
    ) -> None:
        texts = ("spoken_outcome_closing", "judge_data_rule", "judge_data", "judge_reask")
        prompt = fingerprint(load("spoken_outcome"), *texts)
        super().__init__("spoken-outcome", model, Manner(temperature, reasks, max_tokens, replicate), prompt)

    def applies(self, episode: Episode) -> bool:
        """Whether the task has an outcome that can be agreed on."""
        try:
            protocol_of(episode.task)
        except EvaluationError:
            return False
        return True

    def measures(self, task: Task) -> Mapping[Dimension, Basis]:
        """GOAL and FIN of a task with an outcome, as a model read them."""
        return dict.fromkeys(VerifiedOutcome().measures(task), "judged")

    async def evaluate_async(self, episode: Episode) -> Evaluation:
        """Returns GOAL and FIN for every agent, or an unscored evaluation with the reason.

        What was read is in ``agreement`` of the evaluation.

        Raises:
            EvaluationError: the task has nothing that can be agreed on or too many outcomes, moves were made, a call
                to the model failed for good, or the episode does not fit the model.
            BudgetExceededError: the ledger's limit is reached.
        """
        task = episode.task
        protocol_of(task)
        try:
            references(task)  # before anything is paid for
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
            scores=share_scores(task, agreement.outcome, self._name),
            agreement=agreement,
            comment=remarks([answer]),
        )

    async def read(self, episode: Episode) -> Answer[SpokenAgreement]:
        """Returns what the model reads as agreed, or why none of its answers was accepted.

        Raises:
            EvaluationError: as :meth:`evaluate_async`.
        """
        task = episode.task
        if any(turn.action.move is not None for turn in episode.plain_turns):
            raise EvaluationError(
                f"{self._name}: expected an episode of words alone, got moves; 'verified' computes what they came to"
            )
        system, schema = _instructions(task), agreement_schema(task, len(episode.plain_turns))
        closing = load("spoken_outcome_closing")

        def prompt(omitted: int) -> Prompt:
            return Prompt(system, document(episode, omitted=omitted, turns_only=True), closing, schema)

        return await self.ask(episode, prompt, partial(read_agreement, episode=episode))


def _instructions(task: Task) -> str:
    space = protocol_of(task).space
    issues = "\n".join(f"- {issue.name}: {space.values_text(index)}" for index, issue in enumerate(space.issues))
    terms = ", ".join(f"{quote(issue.name)}: …" for issue in space.issues)
    turns = ", ".join(f'"{agent}": …' for agent in task.agents)
    text = fill(
        load("spoken_outcome"),
        data_rule=load("judge_data_rule"),
        issues=issues,
        needs=_needs(task),
        form=f'{{"reasoning": "…", "agreement": {{"terms": {{{terms}}}, "turns": {{{turns}}}}}}}',
    )
    return disarm(text)  # issues and options are texts of the scenario's author


_DECISIONS = {
    "plurality": "a decision is for the option that most participants named, and a tie is none",
    "majority": "a decision needs more than half of all participants",
    "unanimity": "a decision needs every participant",
}


def _needs(task: Task) -> str:
    """Whose assent it takes, in words with agent ids."""
    assert task.scenario.outcome is not None
    rules = task.scenario.outcome.protocol
    if isinstance(rules, BallotRules):
        return _DECISIONS[rules.rule]
    needs = rules.needs if isinstance(rules, AgreementRules) else "all"
    if not isinstance(needs, Quorum):
        return "an agreement needs the assent of every participant"
    among = f", among them {', '.join(needs.veto)}" if needs.veto else ""
    return f"an agreement needs the assent of {needs.quorum} of the {len(task.agents)} participants{among}"
