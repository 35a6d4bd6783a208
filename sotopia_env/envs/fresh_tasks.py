"""A sequence of tasks that are generated when they are drawn, so that a long training run never repeats one."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import overload

from sotopia_env.foundation.errors import InvalidTaskError, InvalidValueError, UnknownNameError
from sotopia_env.tasks import TaskStream
from sotopia_env.world.scenario import Task

MANY = 2**31
"""The number of tasks of a stream from which an environment draws."""
_MOST_SKIPPED = 1_000
_NUMBER = re.compile(r"\d+$")


class FreshTasks(Sequence[Task]):
    """The first tasks of a stream that have a certain number of seats, as a sequence that generates each on access.

    The same stream, seats and index give the same task. Do not iterate over it: it has :data:`MANY` tasks.

    Attributes:
        samples: the first task of each source that has such tasks.
    """

    def __init__(self, stream: TaskStream, seats: int | None = None) -> None:
        """Looks at the first task of each source.

        Args:
            stream: the stream of tasks.
            seats: the number of seats; needed only if the sources differ in it.

        Raises:
            InvalidValueError: the sources differ in the number of seats, or none has ``seats``.
        """
        firsts = [stream.task(source) for source in range(stream.width)]
        counts = sorted({len(task.agents) for task in firsts})
        if seats is None and len(counts) > 1:
            raise InvalidValueError(
                f"the tasks have {counts} seats, but agents are fixed",
                field="task",
                hint=f"choose with seats={counts[0]}",
            )
        if seats is not None and seats not in counts:
            raise InvalidValueError(field="seats", expected=f"one of {counts}, the seats of the tasks", got=seats)
        self.seats = counts[0] if seats is None else seats
        self._stream = stream
        self._sources = [source for source, task in enumerate(firsts) if len(task.agents) == self.seats]
        self.samples = [firsts[source] for source in self._sources]

    def __len__(self) -> int:
        return MANY

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | Sequence[Task]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(MANY))]
        if not 0 <= index < MANY:
            raise IndexError(f"expected an index from 0 to {MANY - 1}, got {index}")
        # Consecutive indices alternate between the sources.
        number, position = divmod(index, len(self._sources))
        # A family's tasks may vary in seats: those with another number are skipped.
        for later in itertools.count(number):
            task = self._task(later, self._sources[position])
            if len(task.agents) == self.seats:
                return task
            if later - number > _MOST_SKIPPED:
                raise InvalidTaskError(
                    f"no task with {self.seats} seats within {_MOST_SKIPPED} of {task.id!r}", field="task"
                )
        raise AssertionError("unreachable")

    def get(self, task_id: str) -> Task:
        """Returns the task called ``task_id``, whose number ends its id.

        Raises:
            UnknownNameError: no task of the stream has this id.
        """
        match = _NUMBER.search(task_id)
        for source in self._sources if match else ():
            task = self._task(int(match[0]), source)  # type: ignore[index]
            if task.id == task_id and len(task.agents) == self.seats:
                return task
        raise UnknownNameError(field="task", expected=f"an id such as {self.samples[0].id!r}", got=task_id)

    def _task(self, number: int, source: int) -> Task:
        return self._stream.task(number * self._stream.width + source)
