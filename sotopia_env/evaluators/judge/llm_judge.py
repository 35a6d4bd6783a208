"""An evaluator that asks a language model for a reasoning and a whole number for every agent and dimension.

Sources: SOTOPIA (arXiv 2310.11667) §3 and appendices D (instructions) and G.2 (bands); SOTOPIA-S4 §3.3 (custom
dimensions).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from sotopia_env.chat_model.protocol import ChatModel
from sotopia_env.evaluators.evaluator import Basis
from sotopia_env.evaluators.judge.dimensions_file import load_dimensions
from sotopia_env.evaluators.judge.document import document
from sotopia_env.evaluators.judge.prompt import Prompt, Rubric
from sotopia_env.evaluators.judge.question import JudgeAnswer, Manner, ModelEvaluator, remarks
from sotopia_env.evaluators.judge.verdict import Judgement, read_verdict
from sotopia_env.foundation.errors import UnknownNameError
from sotopia_env.foundation.waiting import all_at_once
from sotopia_env.world.episode import Episode, Evaluation, Score
from sotopia_env.world.reward import DIMENSIONS, CustomDimension, Dimension
from sotopia_env.world.scenario import Task

Per = Literal["episode", "agent"]
"""One call for all agents of an episode, or one call for each agent."""
_PER = ("episode", "agent")
_BY_NAME: Mapping[str, Dimension] = {d.value: d for d in DIMENSIONS}


class LLMJudge(ModelEvaluator):
    """Asks a model for a verdict on an episode.

    The model reads the episode as one JSON document, separate from the instructions (see
    :mod:`sotopia_env.evaluators.judge.document`). The verdict is keyed by agent id and parsed strictly: it must be the
    only JSON object of the answer, and contain exactly the requested agents and dimensions, with a reasoning and a
    whole number in range for each. If a verdict is refused, the model is asked again with the reason; when the re-asks
    are used up, the episode is *unscored* with that reason. Every agent of the task is judged, including agents that
    never acted.

    Args:
        model: the judge.
        dimensions: dimensions of the seven, by name or abbreviation; all by default.
        custom: custom dimensions, or the path of a YAML file with them
            (:func:`sotopia_env.evaluators.judge.dimensions_file.load_dimensions`); by default those of each episode's
            scenario.
        bands: whether to describe the bands of each range. In the paper this did not improve agreement with people.
        per: one call per ``"episode"`` or per ``"agent"``.
        temperature: the sampling temperature.
        reasks: the number of re-asks after verdicts that are refused.
        max_tokens: the limit on an answer, in tokens.
        replicate: distinguishes judges with the same settings, for several samples at a temperature above 0.

    Raises:
        UnknownNameError: a dimension or ``per`` is unknown.
        InvalidValueError: another argument is invalid.
    """

    def __init__(
        self,
        model: ChatModel,
        *,
        dimensions: Sequence[Dimension | str] = DIMENSIONS,
        custom: Sequence[CustomDimension] | Path = (),
        bands: bool = False,
        per: Per = "episode",
        temperature: float = 0.0,
        reasks: int = 2,
        max_tokens: int | None = None,
        replicate: int = 0,
    ) -> None:
        if per not in _PER:
            raise UnknownNameError(field="per", got=per, valid=_PER)
        self.rubric = Rubric.of(dimensions, load_dimensions(custom) if isinstance(custom, Path) else custom, bands)
        self.per = per
        settings = {
            "dimensions": [d.value for d in self.rubric.dimensions],
            "custom": [d.model_dump(mode="json") for d in self.rubric.custom],
            "bands": self.rubric.bands,
            "per": per,
        }
        manner = Manner(temperature, reasks, max_tokens, replicate)
        super().__init__("judge", model, manner, self.rubric.fingerprint, settings)

    def custom_in(self, task: Task) -> tuple[CustomDimension, ...]:
        """The judge's custom dimensions, or else those of the task's scenario."""
        return self.rubric.custom or task.scenario.dimensions

    def measures(self, task: Task) -> Mapping[Dimension, Basis]:
        """The dimensions of the seven that the judge is asked for."""
        return dict.fromkeys(self.rubric.dimensions, "judged")

    async def evaluate(self, episode: Episode) -> Evaluation:
        """Returns a score for every agent and dimension, or an unscored evaluation with the reason.

        Raises:
            EvaluationError: a call to the model failed permanently, or the episode does not fit the model.
            BudgetExceededError: the ledger's limit is reached.
        """
        agents = episode.task.agents
        groups = [agents] if self.per == "episode" else [(agent,) for agent in agents]
        answers = await all_at_once(self._ask(episode, group) for group in groups)
        refusals = [self._refusal(group, a) for group, a in zip(groups, answers, strict=True) if a.value is None]
        judgements = [judgement for answer in answers for judgement in answer.value or ()]
        return Evaluation(
            evaluator=self._name,
            parameters=dict(self._parameters),
            dimensions=self.custom_in(episode.task),
            # All or nothing: scores of some agents only would bias a mean over seats.
            scores=() if refusals else tuple(map(self._score, judgements)),
            unscored="; ".join(refusals) or None,
            comment=remarks(answers),
        )

    async def _ask(self, episode: Episode, agents: tuple[str, ...]) -> JudgeAnswer[tuple[Judgement, ...]]:
        rubric = replace(self.rubric, custom=self.custom_in(episode.task))

        def prompt(omitted: int) -> Prompt:
            return rubric.prompt(document(episode, omitted=omitted), agents)

        utterances = [turn.action.argument for turn in episode.plain_turns]
        read = partial(read_verdict, agents=agents, axes=rubric.axes, utterances=utterances)
        return await self.ask(episode, prompt, read)

    def _refusal(self, agents: Sequence[str], answer: JudgeAnswer[Any]) -> str:
        subject = "" if self.per == "episode" else f" on {', '.join(agents)}"
        return f"no valid verdict{subject} after {answer.reasks + 1} answers; the last one: {answer.refusal}"

    def _score(self, judgement: Judgement) -> Score:
        return Score(
            agent=judgement.agent,
            dimension=_BY_NAME.get(judgement.axis, judgement.axis),
            value=float(judgement.score),
            reasoning=judgement.reasoning,
            source=self._name,
        )
