"""Many seats as tokens, played at the same time: partners act concurrently, and answers are sampled in one batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from sotopia_env.adapters import Seats
from sotopia_env.foundation.waiting import all_at_once, wait
from sotopia_env.world import Evaluator, Scalarisation
from sotopia_env.world.episode import PolicyInfo
from sotopia_env.world.play.table import Table
from sotopia_training.grpo.situations import Situation
from sotopia_training.grpo.token_seat import TokenFormat, TokenSeat
from sotopia_training.stage.settings import PromptSettings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LogProbs = Sequence[Sequence[float | None]]
"""Log-probability of every sampled token under the sampler, by answer; ``None`` if the sampler does not return it."""
Schemas = Sequence[Mapping[str, Any] | None]
"""The JSON schema that constrains each answer; ``None`` for free text."""


class Sample(Protocol):
    """A batch sampler."""

    def __call__(
        self, prompts: list[list[int]], schemas: Schemas | None = None
    ) -> tuple[Sequence[Sequence[int]], LogProbs | None]:
        """Returns sampled ids, with the end token if it was sampled, and their log-probabilities.

        Log-probabilities are returned if they may differ from those of the model in training (vLLM).

        Args:
            prompts: the token ids of each prompt.
            schemas: the schema of each prompt's answer; ``None`` for free text.
        """
        ...


class TokenPlayer:
    """Plays seats with a sampling function as the focal policy."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        prompt: PromptSettings,
        evaluator: Evaluator | None = None,
        scalarisation: Scalarisation | str | None = None,
        constrained: bool = False,
    ) -> None:
        """Creates the player.

        Args:
            tokenizer: as in :class:`~sotopia_training.grpo.token_seat.TokenFormat`, as are ``prompt`` and
                ``constrained``.
            prompt: the format and limits of prompts.
            evaluator: scores situations; the default is that of :class:`~sotopia_env.adapters.Seats`.
            scalarisation: computes the reward of situations; the default is that of ``Seats``, too.
            constrained: whether answers are sampled under the schema of the possible actions.

        Raises:
            InvalidValueError: the prompt format is ``single``.
        """
        self.format = TokenFormat(tokenizer, prompt, constrained)
        self._evaluator, self._scalarisation = evaluator, scalarisation

    def play(
        self, situations: Sequence[Situation], sample: Sample, row_count: Callable[[int], int] = int
    ) -> list[TokenSeat]:
        """Returns the seats in the order of ``situations``, each with its reward or the reason for its absence.

        Args:
            situations: the situations of the rows. Those with one seating share episodes, each in its own seat.
            sample: answers the prompts of all episodes in which it is the focal seat's turn.
            row_count: returns the largest of all processes' counts, if sampling is a collective operation (vLLM, FSDP,
                ZeRO-3).

        Raises:
            InvalidValueError: the evaluator does not score the dimensions that the reward needs.
        """
        rows = [(item.seating, item.seat, partial(self._seats, item)) for item in situations]
        seats = seats_of_rows(rows, self.format)
        self.play_on(seats, sample, row_count)
        return seats

    def play_on(self, seats: Sequence[TokenSeat], sample: Sample, row_count: Callable[[int], int] = int) -> None:
        """Plays new seats, or seats in progress, to the end and evaluates them; arguments are those of :meth:`play`."""
        episodes = list({id(seat.fellows): list(seat.fellows.values()) for seat in seats}.values())
        wait(all_at_once(fellows[0].play() for fellows in episodes))
        while True:
            acting = [seat for fellows in episodes for seat in fellows if seat.acting]
            rows = row_count(len(acting))  # 0 only if no process has a seat that acts
            if not rows:
                break
            prompts = [seat.sequence for seat in acting]
            # In a collective operation all processes must sample equally often, and equally many rows; the answers to
            # these additional prompts are dropped.
            spare = [prompts[0] if prompts else [self.format.end]] * (rows - len(prompts))
            schemas = ([seat.schema for seat in acting] + [None] * len(spare),) if self.format.constrained else ()
            answers, logprobs = sample([*prompts, *spare], *schemas)
            for number, seat in enumerate(acting):
                seat.take(answers[number], None if logprobs is None else logprobs[number])
            again = {id(seat.fellows): seat for seat in acting}.values()
            wait(all_at_once(seat.play() for seat in again))
        wait(all_at_once(_evaluate(fellows) for fellows in episodes))

    def _seats(self, situation: Situation) -> Seats:
        task, learners = situation.task, situation.learners
        key = f"{task.id}.{'+'.join(learners)}.{situation.seed}"
        focal = [PolicyInfo(agent=agent, name="focal") for agent in learners]
        table = Table(task, situation.rules, situation.seed, key=key, policies=focal)
        # A stage counts what failed and leaves it out; it asks again only where the model's own options say so.
        return Seats(table, situation.partners, evaluator=self._evaluator, scalarisation=self._scalarisation, retries=0)


def seats_of_rows(rows: Iterable[tuple[Hashable, str, Callable[[], Seats]]], format: TokenFormat) -> list[TokenSeat]:
    """Returns the seat of each row; rows with one seating are of one episode, as far as they are of different seats.

    Args:
        rows: of each row the seating, the agent, and a function that makes the seats of a new episode.
        format: how conversations become tokens.
    """
    episodes: dict[tuple[Hashable, int], dict[str, TokenSeat]] = {}
    counts: Counter[tuple[Hashable, str]] = Counter()
    result = []
    for seating, agent, make in rows:
        # The first row of each seat is of the first episode of its seating, the second of the second one.
        counts[seating, agent] += 1
        episode = (seating, counts[seating, agent])
        if episode not in episodes:
            episodes[episode] = TokenSeat.all_of(make(), format)
        result.append(episodes[episode][agent])
    return result


async def _evaluate(seats: Sequence[TokenSeat]) -> None:
    # One after the other: a judge is asked once about an episode, and the other seats read what it said.
    for seat in seats:
        await seat.evaluate()


def columns(seats: Sequence[TokenSeat], logprobs: bool) -> dict[str, Any]:
    """Returns the columns that TRL reads of a rollout, with one row for each seat.

    Args:
        seats: the seats, complete.
        logprobs: whether the sampler's log-probabilities are passed on, as for vLLM.
    """
    return {
        "prompt_ids": [seat.prompt for seat in seats],
        "completion_ids": [seat.completion for seat in seats],
        # The importance correction compares the sampler's log-probabilities with those of the model in training.
        "logprobs": [seat.logprobs for seat in seats] if logprobs else None,
        "env_mask": [seat.mask for seat in seats],
    }
