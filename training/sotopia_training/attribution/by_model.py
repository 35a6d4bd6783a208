"""A language model as attributor (SOTOPIA-RL, appendix G), through the chat-model seam.

The instructions have the content of appendix G.1 (direct) and G.3 (key utterance); their wording is our own, in
``prompts/attribution*.txt``. The model reads the conversation as the focal seat witnessed it, in the JSON document
that judges read (:mod:`sotopia_env.evaluators.judge.document`): every turn has its number in the episode (its
index + 1, as in all displays of turns) and its agent's id. The document is structured data, so no utterance can pose as
a turn.

The answer is keyed by these numbers and read strictly: it must give exactly the turns in question a whole number on the
scale. If an answer is refused, the model is asked again and told the reason. The attribution is missing, with a reason,
if no answer is valid, the call fails permanently, or the conversation does not fit the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

from sotopia_env.chat_model import ChatModel
from sotopia_env.evaluators.judge.document import document
from sotopia_env.evaluators.judge.prompt import Prompt, closed_object, fingerprint, judge_text
from sotopia_env.evaluators.judge.question import Manner, ask, check_model, tag
from sotopia_env.evaluators.judge.verdict import Refusal, object_members, read_object, refusal
from sotopia_env.foundation.errors import EvaluationError, FieldError, UnknownNameError
from sotopia_env.foundation.prompts import fill, reader
from sotopia_env.foundation.quoting import escape
from sotopia_env.world import Dimension
from sotopia_env.world.episode import Episode
from sotopia_env.world.reward import RANGES
from sotopia_training.attribution.methods import Importance, SeatScore, Unattributed, attributable_turns

load = reader(__package__)

Scale = Literal["three", "ten"]
SCALES: Mapping[str, int] = MappingProxyType({"three": 3, "ten": 10})
"""Highest weight of each scale; A is the weight divided by it (appendix G.1)."""


class LLMAttributor:
    """Asks a model how much each turn of a seat contributed to one score.

    Args:
        model: the model to ask.
        scale: ``"three"`` (weights 0 to 3) or ``"ten"`` (0 to 10).
        key: whether to ask, in a question of its own, which turn mattered most; without it the most important turn is
            the one with the highest weight.
        manner: the temperature, the number of re-asks and the length limit of an answer.

    Raises:
        UnknownNameError: ``scale`` is not one of :data:`SCALES`.
        InvalidValueError: ``model`` is not a chat model.
    """

    def __init__(
        self, model: ChatModel, *, scale: Scale = "three", key: bool = False, manner: Manner | None = None
    ) -> None:
        if scale not in SCALES:
            raise UnknownNameError(field="scale", got=scale, valid=SCALES)
        self.model, self.scale, self.key = check_model(model), scale, key
        self.manner = manner = manner or Manner()
        self.parameters: Mapping[str, Any] = {
            "model": model.name,
            "model_parameters": dict(model.parameters),
            "scale": scale,
            "key": key,
            "temperature": manner.temperature,
            "reasks": manner.reasks,
            "max_tokens": manner.max_tokens,
            "prompt": _fingerprint(scale),
        }

    @property
    def name(self) -> str:
        """The attributor's name in records, ``llm:MODEL``."""
        return f"llm:{self.model.name}"

    @property
    def tag(self) -> str:
        """A hash (six hex digits) of the parameters and the wording of the prompts."""
        return tag(self.parameters)

    async def attribute(self, episode: Episode, seat: str, score: SeatScore) -> Importance | Unattributed:
        """Returns A for every attributable turn of a seat, or the reason why it is missing.

        Raises:
            BudgetExceededError: the ledger's limit is reached.
            ModelRefusedError: the model refuses every question.
        """
        turns = attributable_turns(episode, seat)
        if not turns:
            return Unattributed("no turn to attribute to")
        numbers = [turn + 1 for turn in turns]
        weights = await self._ask(
            episode,
            seat,
            score,
            self._direct(seat, score, numbers),
            partial(read_weights, turns=turns, scale=self.scale),
        )
        # With a single turn, the key turn is known without a second (paid) question.
        if isinstance(weights, Unattributed) or not self.key or len(turns) == 1:
            return weights if isinstance(weights, Unattributed) else Importance(weights)
        key = await self._ask(episode, seat, score, _key(seat, score, numbers), partial(read_key, turns=turns))
        return key if isinstance(key, Unattributed) else Importance(weights, key)

    async def _ask(
        self, episode: Episode, seat: str, score: SeatScore, texts: tuple[str, str, Mapping[str, Any]], read: Any
    ) -> Any:
        system, closing, schema = texts

        def prompt(omitted: int) -> Prompt:
            return Prompt(system, document(episode, viewer=seat, omitted=omitted), closing, schema)

        label = f"{self.name}: {episode.key} {seat} {score.dimension}"
        try:
            # No turn may be left out to make the document fit: the model could not weigh it.
            answer = await ask(self.model, prompt, 0, read, self.manner, label)
        except EvaluationError as error:
            return Unattributed(f"not answered: {error}")
        if answer.value is None:
            return Unattributed(f"no valid answer after {answer.reasks + 1}: {answer.refusal}")
        return answer.value

    def _direct(self, seat: str, score: SeatScore, numbers: Sequence[int]) -> tuple[str, str, Mapping[str, Any]]:
        """The instructions, the closing words and the schema of the answer."""
        top, goal = SCALES[self.scale], score.dimension == Dimension.GOAL
        system = fill(
            load("attribution"),
            agent=seat,
            dimension=score.dimension,
            description=_description(score),
            scale=load(f"attribution_scale_{self.scale}"),
            particulars=f"\n{load('attribution_particulars_goal')}" if goal else "",
            top=str(top),
            form='{"weights": {' + ", ".join(f'"{number}": <0 to {top}>' for number in numbers) + "}}",
        )
        # The numbers of all turns are required keys, so that a constrained model cannot leave one out.
        weight = {"type": "integer", "minimum": 0, "maximum": top}
        schema = closed_object({"weights": closed_object({str(number): weight for number in numbers})})
        return system, _closing("attribution_closing", seat, score, numbers), schema


def _key(seat: str, score: SeatScore, numbers: Sequence[int]) -> tuple[str, str, Mapping[str, Any]]:
    form = '{"turn": <one of ' + ", ".join(map(str, numbers)) + ">}"
    system = fill(
        load("attribution_key"),
        agent=seat,
        dimension=score.dimension,
        description=_description(score),
        form=form,
    )
    schema = closed_object({"turn": {"type": "integer", "enum": list(numbers)}})
    return system, _closing("attribution_key_closing", seat, score, numbers), schema


def _closing(name: str, seat: str, score: SeatScore, numbers: Sequence[int]) -> str:
    return fill(load(name), turns=", ".join(map(str, numbers)), agent=seat, dimension=score.dimension)


def _description(score: SeatScore) -> str:
    return load(f"attribution_{score.dimension}") if score.dimension in RANGES else escape(score.instruction.strip())


def _fingerprint(scale: str) -> str:
    """A hash (16 hex digits) of all prompt texts, without the episode."""
    # The parameters in records contain this hash, so that answers to other wordings are not reused.
    names = ["attribution", f"attribution_scale_{scale}", "attribution_particulars_goal", "attribution_closing"]
    names += ["attribution_key", "attribution_key_closing", *(f"attribution_{d.value}" for d in Dimension)]
    return fingerprint(*map(load, names), *map(judge_text, ("judge_data", "judge_reask")))


def read_weights(text: str, turns: Sequence[int], scale: Scale) -> dict[int, float] | Refusal:
    """Returns A by index of the turn from an answer such as ``{"weights": {"1": 0, "3": 2}}``, or a refusal.

    Args:
        text: the model's answer.
        turns: the indices of the turns that must be weighed; the answer names them by number, index + 1.
        scale: the scale of the weights.
    """
    answer = read_object(text)
    if isinstance(answer, Refusal):
        return answer
    top, problems = SCALES[scale], list[str]()
    outer = object_members(answer, ("weights",), "the answer", problems)
    weights = object_members(outer["weights"], [str(turn + 1) for turn in turns], "weights", problems) if outer else {}
    for number, weight in weights.items():
        if type(weight) is not int or not 0 <= weight <= top:  # ``isinstance`` would accept ``True``
            expected = f"a whole number from 0 to {top}"
            problems.append(str(FieldError(field=f"weights.{number}", expected=expected, got=weight)))
    return refusal(problems) or {int(number) - 1: weight / top for number, weight in weights.items()}


def read_key(text: str, turns: Sequence[int]) -> int | Refusal:
    """Returns the index of the turn in an answer such as ``{"turn": 3}``, or a refusal."""
    answer = read_object(text)
    if isinstance(answer, Refusal):
        return answer
    problems: list[str] = []
    outer = object_members(answer, ("turn",), "the answer", problems)
    number = outer.get("turn")
    if outer and (type(number) is not int or number - 1 not in turns):
        numbers = ", ".join(str(turn + 1) for turn in turns)
        problems.append(str(FieldError(field="turn", expected=f"one of the numbers {numbers}", got=number)))
    return refusal(problems) or int(number or 0) - 1


__all__ = ["SCALES", "LLMAttributor", "Scale", "read_key", "read_weights"]
