"""The clone: a model that is built from nothing and imitates the teacher's turns, in one stage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import Field
from sotopia_training.data.samples import RowMaker
from sotopia_training.fitting.behavior_cloning import TokenRow, conversations, tokenise
from sotopia_training.stage.settings import PromptSettings

from sotopia_env.foundation.settings import Settings
from sotopia_env.storage import read_run
from sotopia_env.world.episode import Episode
from studies.learn.base_model import BaseSettings, make_model

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class CloneSettings(Settings):
    """Settings of the stage.

    Attributes:
        runs: the teacher's episodes, of which every seat is imitated.
        model: the size of the model, its prompts and its training.
    """

    runs: tuple[str, ...] = Field(min_length=1)
    model: BaseSettings

    @property
    def output(self) -> str:
        """The directory of the stage."""
        return self.model.output


def run(settings: CloneSettings) -> None:
    """Trains the model; does nothing if it exists."""
    make_model(settings.model, lambda: [episode for run in settings.runs for episode in read_run(run)], rows)


def rows(episode: Episode, prompt: PromptSettings, tokenizer: PreTrainedTokenizerBase) -> Iterator[TokenRow]:
    """Yields the conversation of every seat, with loss on its own answers."""
    for seat in episode.task.agents:
        cut = RowMaker(prompt).rows(episode, seat)
        tokens = ((row, tokenise(tokenizer, row.prompt, row.completion, prompt.max_length)) for row in cut)
        yield from (whole for _, whole in conversations(tokens))
