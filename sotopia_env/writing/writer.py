"""A writer that asks a model for one record per inspiration until there are enough results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from sotopia_env.foundation.errors import InvalidValueError, Where, excerpt
from sotopia_env.foundation.validation import invalid
from sotopia_env.writing.drafting import Drafter, Written, open_written
from sotopia_env.writing.inspirations import Inspiration, queues, take_evenly, unused
from sotopia_env.writing.kinds import Writing


@dataclass(frozen=True)
class Writer:
    """Asks a model for records until there are enough results.

    Attributes:
        drafter: asks the model.
        kind: the kind of the records.
    """

    drafter: Drafter
    kind: Writing

    async def write(
        self, pool: Iterable[Inspiration], n: int, path: Path, seed: int, used: Iterable[Inspiration] = ()
    ) -> list[Written]:
        """Asks until there are ``n`` results or all inspirations are used, and returns all questions.

        Questions of an earlier call in ``path`` count, so the same call continues a killed one. A question without any
        answer does not use up its inspiration; the same call repeats it.

        Args:
            pool: the inspirations.
            n: the number of results.
            path: the file to which each answered question is appended.
            seed: the seed of the order of the inspirations.
            used: inspirations to skip.

        Raises:
            InvalidValueError: all inspirations are used, or ``path`` contains other work.
            ModelRefusedError: the model refuses every request.
            BudgetExceededError: the ledger's limit is reached; answered questions stay on disk.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_written(path) as journal:
            previous = list(journal.values())
            for item in previous:
                self._restore(item, path)
            answered = [Inspiration(item.source, item.text) for item in previous]
            waiting = queues(unused(pool, used), answered, seed)
            if not waiting and not previous:
                raise InvalidValueError("all of them are used", field="inspirations", hint="add other ones")

            async def ask(inspiration: Inspiration) -> bool:
                answer = await self.drafter.record(self.kind.question(inspiration), journal)
                return answer is not None and answer.result is not None

            # Each batch has as many questions as results are missing; refused answers make another batch necessary.
            while not self.drafter.stop.reason:
                accepted = Counter(item.source for item in journal.values() if item.result is not None)
                batch = take_evenly(waiting, accepted, max(0, n - accepted.total()))
                if not batch:
                    break
                await self.drafter.work_through(batch, ask, "questions")
            # Questions are answered concurrently, so the order of the file varies; the returned order does not.
            return sorted(journal.values(), key=lambda item: (item.source, item.text))

    def _restore(self, item: Written, path: Path) -> None:
        try:
            if item.result is not None:
                self.kind.restore(item.result)
        except (ValidationError, InvalidValueError) as error:
            problem = invalid(error) if isinstance(error, ValidationError) else error
            hint = "use the directory and the cast of the same work"
            where = Where(path, record=excerpt(item.text))
            raise InvalidValueError.of(problem, within="result", hint=hint, where=where) from None


def count(records: Sequence[Written]) -> int:
    """Returns the number of results."""
    return sum(item.result is not None for item in records)
