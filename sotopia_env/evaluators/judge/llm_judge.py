"""A language model as evaluator: reasoning and a whole number for every agent and dimension, or no scores at all.

Sources: SOTOPIA (arXiv 2310.11667) §3 and appendix D (instructions), G.2 (bands); SOTOPIA-S4 §3.3 (own dimensions).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

from sotopia_env.chat_model.protocol import ChatModel
from sotopia_env.errors import UnknownNameError
from sotopia_env.evaluators.evaluator import Basis
from sotopia_env.evaluators.judge.document import document
from sotopia_env.evaluators.judge.prompt import Prompt, Rubric
from sotopia_env.evaluators.judge.question import Answer, Manner, ModelEvaluator, remarks
from sotopia_env.evaluators.judge.verdict import Judgement, read_verdict
from sotopia_env.waiting import all_at_once
from sotopia_env.world.episode import Episode, Evaluation, Score
from sotopia_env.world.reward import DIMENSIONS, CustomDimension, Dimension
from sotopia_env.world.scenario import Task

Per = Literal["episode", "agent"]
"""One call for all agents of an episode, or one for each."""
_PER = ("episode", "agent")
_BY_NAME: Mapping[str, Dimension] = {d.value: d for d in DIMENSIONS}


class LLMJudge(ModelEvaluator):
    """Asks a model for a verdict on a episode.

    The episode reaches the model as one JSON document, apart from the instructions (see
    :mod:`sotopia_env.evaluators.judge.document`). The verdict is keyed by agent id and read strictly: exactly the
    agents and dimensions asked for, whole numbers in range, a reasoning for each. One that is not accepted is asked
    for again with the reason; when the re-asks are used up the episode is *unscored* with that reason. Every agent of
    the task is judged, those that never acted included.

    Args:
        model: the judge.
        dimensions: which of the seven, by name or abbreviation; all by default.
        custom: further dimensions (:func:`sotopia_env.evaluators.judge.dimensions_file.load_dimensions`).
        bands: adds descriptions of the ranges' parts. In the paper this did not bring the judge closer to people.
        per: one call per ``"episode"`` or per ``"agent"``.
        temperature: sampling temperature.
        reasks: number of re-asks after answers that are not accepted.
        max_tokens: limit on an answer, in tokens.
        replicate: a number that tells apart judges that are the same in everything else (several samples at a
            temperature above 0).

    Raises:
        UnknownNameError: a dimension or ``per`` is not known.
        InvalidValueError: another argument is not valid.
    """

    def __init__(
        self,
        model: ChatModel,
        *,
        dimensions: Sequence[Dimension | str] = DIMENSIONS,
        custom: Sequence[CustomDimension] = (),
        bands: bool = False,
        per: Per = "episode",
        temperature: float = 0.0,
        reasks: int = 2,
        max_tokens: int | None = None,
        replicate: int = 0,
    ) -> None:
        if per not in _PER:
            raise UnknownNameError(field="per", got=per, valid=_PER)
        self.rubric = Rubric.of(dimensions, custom, bands)
        self.per = per
        self._axes = self.rubric.axes
        settings = {
            "dimensions": [d.value for d in self.rubric.dimensions],
            "custom": [d.model_dump(mode="json") for d in self.rubric.custom],
            "bands": self.rubric.bands,
            "per": per,
        }
        manner = Manner(temperature, reasks, max_tokens, replicate)
        super().__init__("judge", model, manner, self.rubric.fingerprint, settings)

    def measures(self, task: Task) -> Mapping[Dimension, Basis]:
        """The dimensions it is asked for, of the seven."""
        return dict.fromkeys(self.rubric.dimensions, "judged")

    async def evaluate_async(self, episode: Episode) -> Evaluation:
        """Returns a score for every agent and dimension, or an unscored evaluation with the reason.

        Raises:
            EvaluationError: a call to the model failed for good, or the episode does not fit the model.
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
            dimensions=self.rubric.custom,
            scores=() if refusals else tuple(map(self._score, judgements)),
            unscored="; ".join(refusals) or None,
            comment=remarks(answers),
        )

    async def _ask(self, episode: Episode, agents: tuple[str, ...]) -> Answer[tuple[Judgement, ...]]:
        def prompt(omitted: int) -> Prompt:
            return self.rubric.prompt(document(episode, omitted=omitted), agents)

        return await self.ask(episode, prompt, partial(read_verdict, agents=agents, axes=self._axes))

    def _refusal(self, agents: Sequence[str], answer: Answer[Any]) -> str:
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
