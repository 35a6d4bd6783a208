"""The writing of characters, relationships and scenarios, one for each inspiration, until there are enough."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sotopia_env.errors import InvalidValueError
from sotopia_env.files import AppendOnlyFile
from sotopia_env.writing.drafting import Drafter, Written, read_written
from sotopia_env.writing.inspirations import Inspiration, queues, take_evenly, unused
from sotopia_env.writing.kinds import Writing


@dataclass(frozen=True)
class Writer:
    """Has a model write until there are enough results.

    Attributes:
        drafter: asks the model.
        kind: of what is written.
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
            n: number of results.
            path: of the file that gets a line for each answered question.
            seed: fixes the order of the inspirations.
            used: inspirations that are not used again.

        Raises:
            InvalidValueError: all inspirations are used.
            ModelRefusedError: the model refuses every request.
            BudgetExceededError: the ledger's limit is reached; answered questions stay on disk.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        with AppendOnlyFile(path, exclusive=True) as file:
            records = read_written(path)
            for item in records:
                if item.result is not None:
                    self.kind.restore(item.result)
            previous = [Inspiration(item.source, item.text) for item in records]
            waiting = queues(unused(pool, used), previous, seed)
            if not waiting and not records:
                raise InvalidValueError("inspirations: all have been used; give more, or other ones")
            while missing := max(0, n - count(records)):
                batch = take_evenly(waiting, Counter(item.source for item in records if item.result), missing)
                if not batch:
                    break
                records += await self.drafter.ask_all(map(self.kind.question, batch), file)
        return sorted(records, key=lambda item: (item.source, item.text))


def count(records: Sequence[Written]) -> int:
    """Returns the number of results."""
    return sum(item.result is not None for item in records)
