"""Importers of SOTOPIA-RL's files: episodes with a value per utterance, and rows of prompt, answer and optional value.

Rows are converted to the reward model's input: ``prompt`` as chat messages, ``completion``, ``value``, and the
``scenario`` by which they are split. A missing value is null, never 0: in annotated files an integer ``0`` means that
the utterance was not attributed, and an attribution of -1 that the attribution failed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeVar

from pydantic import Field

from sotopia_env.foundation.errors import DamagedRecordError
from sotopia_env.importers.foreign import (
    Foreign,
    Format,
    Identity,
    Product,
    ProductKind,
    Text,
    converted,
)
from sotopia_env.importers.formats.episodes import imported_episode
from sotopia_env.importers.formats.evaluations import evaluation_of
from sotopia_env.importers.formats.scene import ObservedScene
from sotopia_env.importers.formats.sotopia_text import UNKNOWN, action_of
from sotopia_env.importers.library import Library, content_id
from sotopia_env.importers.playback import Act, play_acts
from sotopia_env.importers.source import RawRecord
from sotopia_env.world.action import to_json
from sotopia_env.world.dynamics import initial_state, transition
from sotopia_env.world.episode import Episode
from sotopia_env.world.observation import observe

_RowT = TypeVar("_RowT", bound=Foreign)
_PARTNER = "Partner"
_UTTERANCE, _BY = "Utterance ", " by "


class AnnotatedEpisode(Foreign):
    """One seat of an episode, with a value for each of its utterances."""

    episode_id: Identity
    scenario: str
    agent: str
    goal: str
    attributed_utterances: dict[str, tuple[str, Any]] = Field(min_length=1)
    is_first_speaker: bool | None = None
    goal_score: float | None = None


def _value(field: str, value: Any) -> float | None:
    """The value of an utterance; ``None`` if it has none."""
    if isinstance(value, dict):
        if value.get("attribution") == -1:
            return None
        value = value.get("reward")
    # The type matters: the reference code writes ``0`` for an utterance without attribution and ``0.0`` for a value.
    if value is None or (type(value) is int and value == 0):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DamagedRecordError(field=field, expected="0, a number or an object with a reward", got=value)
    return float(value)


def _speaker(key: str) -> str:
    _, is_numbered, rest = key.partition(_UTTERANCE)
    number, is_signed, name = rest.partition(_BY)
    if not is_numbered or not is_signed or not number.isdigit() or not name:
        raise DamagedRecordError(
            field="attributed_utterances", expected="keys such as 'Utterance 0 by Ana Lee'", got=key
        )
    return name


def read_annotated(record: AnnotatedEpisode, item: RawRecord, library: Library) -> Iterator[Product]:
    """Yields the episode, and a row for every utterance of the seat that has a value."""
    speakers = [_speaker(key) for key in record.attributed_utterances]
    # The file names one seat only; a partner that never spoke gets a placeholder name.
    others = [name for name in dict.fromkeys(speakers) if name != record.agent] or [_PARTNER]
    is_first = speakers[0] == record.agent if record.is_first_speaker is None else record.is_first_speaker
    names = [record.agent, *others] if is_first else [*others, record.agent]
    ids = {name: f"agent_{seat}" for seat, name in enumerate(names)}
    acts = []
    for key, speaker in zip(record.attributed_utterances, speakers, strict=True):
        text = record.attributed_utterances[key][0]
        try:
            acts.append(Act(names.index(speaker), action_of(text, ids)))
        except DamagedRecordError as error:
            raise DamagedRecordError.of(error, within=f"attributed_utterances.{key}") from None
    goals = {name: record.goal if name == record.agent else UNKNOWN for name in names}
    scene = ObservedScene("", record.scenario, goals, {}, {})
    task = converted(lambda: library.shared(scene.key, scene.task))
    seat = names.index(record.agent)
    rewards = None
    if record.goal_score is not None:
        rewards = [[None, {"goal": record.goal_score}] if other == seat else None for other in range(len(names))]
    evaluation = evaluation_of(rewards, "", "", len(names))
    playback = converted(lambda: play_acts(task, acts))
    episode = imported_episode(f"{record.episode_id}/{seat}", task, playback, (), (evaluation,))
    yield Product(ProductKind.EPISODE, episode)
    keys = [key for key, name in zip(record.attributed_utterances, speakers, strict=True) if name == record.agent]
    values = [_value(f"attributed_utterances.{key}", record.attributed_utterances[key][1]) for key in keys]
    yield from _rows(episode, f"agent_{seat}", values, content_id(record.scenario), playback.inserted)


def _rows(
    episode: Episode, seat: str, values: list[float | None], scenario: str, inserted: Collection[int]
) -> Iterator[Product]:
    """A row for every act of ``seat`` that has a value, with the seat's observation before the act as the prompt."""
    state = initial_state(episode.task, episode.rules, episode.seed)
    rest = iter(values)
    for item in episode.turns:
        turn = item.turn
        # Silent turns that the playback inserted are not in the file, so no value belongs to them.
        value = next(rest, None) if turn.actor == seat and turn.index not in inserted else None
        if value is not None:
            row = {
                "prompt": observe(state, seat).messages,
                "completion": [{"role": "assistant", "content": to_json(turn.action, episode.task.names)}],
                "value": value,
                "episode": episode.key,
                "task": episode.task.id,
                "scenario": scenario,
                "seat": seat,
                "turn": turn.index,
                "format": "chat",
            }
            yield Product(ProductKind.ROW, row)
        state = transition(state, turn.attempted or turn.action)


# --- rows ------------------------------------------------------------------------------------------------------------


class InputRow(Foreign):
    """Prompt and answer, for SFT and GRPO; with a value, for the reward model."""

    input: str
    output: str
    value: Any = None


class AlpacaRow(Foreign):
    """The older format, also of SOTOPIA-π: the prompt is in ``instruction``, in ``input`` or in both."""

    instruction: Text
    input: Text = ""
    output: str
    value: Any = None
    system: Text = ""
    history: list[tuple[str, str]] | None = None


class PromptRow(Foreign):
    """A reconstructed prompt with its answer."""

    prompt: str
    result: str


_SCENARIO = "Scenario:"


def _row(messages: list[tuple[str, str]], answer: str, value: Any) -> dict[str, Any]:
    """A row, whose ``scenario`` is a hash of the scenario in the prompt, or of the last message if it names none."""
    # Rows of one scenario must not be split between training and evaluation: their prompts differ in a few turns only.
    lines = [line.strip() for _, text in messages for line in text.split("\n")]
    scenario = next((line for line in lines if line.startswith(_SCENARIO)), None)
    return {
        "prompt": [{"role": role, "content": text} for role, text in messages],
        "completion": [{"role": "assistant", "content": answer}],
        "value": None if value is None else _number(value),
        "scenario": content_id(scenario or messages[-1][1]),
    }


def _number(value: Any) -> float | None:
    number = value.get("reward") if isinstance(value, dict) else value
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise DamagedRecordError(field="value", expected="a number or null", got=value)
    return float(number)


def _input_row(row: InputRow) -> dict[str, Any]:
    return _row([("user", row.input)], row.output, row.value)


def _alpaca_row(row: AlpacaRow) -> dict[str, Any]:
    prompt = "\n".join(filter(None, (row.instruction, row.input)))
    if not prompt:
        raise DamagedRecordError(field="instruction, input", expected="a prompt in one of them", hint="remove the row")
    before = [message for pair in row.history or () for message in zip(("user", "assistant"), pair, strict=True)]
    system = [("system", row.system)] if row.system else []
    return _row([*system, *before, ("user", prompt)], row.output, row.value)


def _prompt_row(row: PromptRow) -> dict[str, Any]:
    return _row([("user", row.prompt)], row.result, None)


def _texts(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["prompt"][-1]["content"], row["completion"][0]["content"]


def _as_input(row: Mapping[str, Any]) -> dict[str, Any]:
    prompt, answer = _texts(row)
    return {"input": prompt, "output": answer, **_valued(row)}


def _as_alpaca(row: Mapping[str, Any]) -> dict[str, Any]:
    prompt, answer = _texts(row)
    *before, _ = row["prompt"]
    system = [message["content"] for message in before if message["role"] == "system"]
    talk = [message["content"] for message in before if message["role"] != "system"]
    history = [list(pair) for pair in zip(talk[::2], talk[1::2], strict=True)]
    return {
        "instruction": prompt,
        "input": "",
        "output": answer,
        **_valued(row),
        **({"system": system[0]} if system else {}),
        **({"history": history} if history else {}),
    }


def _valued(row: Mapping[str, Any]) -> dict[str, float]:
    return {} if row["value"] is None else {"value": row["value"]}


def _as_prompt(row: Mapping[str, Any]) -> dict[str, Any]:
    prompt, answer = _texts(row)
    return {"prompt": prompt, "result": answer}


def _row_format(
    name: str,
    summary: str,
    shape: type[_RowT],
    read: Callable[[_RowT], dict[str, Any]],
    write: Callable[[Mapping[str, Any]], dict[str, Any]],
) -> Format[_RowT]:
    def product(row: _RowT, item: RawRecord, library: Library) -> Iterator[Product]:
        yield Product(ProductKind.ROW, read(row))

    return Format(name, summary, ProductKind.ROW, shape, product, write)


ANNOTATED = Format(
    "sotopia-rl-annotated",
    "SOTOPIA-RL episodes with values of utterances",
    ProductKind.EPISODE,
    AnnotatedEpisode,
    read_annotated,
)
TRAINING = (
    ANNOTATED,
    _row_format("sotopia-rl-prompts", "SOTOPIA-RL prompts", PromptRow, _prompt_row, _as_prompt),
    _row_format("alpaca-rows", "rows with instruction, input, output", AlpacaRow, _alpaca_row, _as_alpaca),
    _row_format("sotopia-rl-rows", "SOTOPIA-RL training rows", InputRow, _input_row, _as_input),
)
