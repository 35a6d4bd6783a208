"""Procedural tasks: a stream from templates over reading the same tasks as JSON, and tasks per second."""

from __future__ import annotations

import itertools

from benchmarks.measure import Figure, cpu_rounds
from sotopia_env.tasks import TaskStream
from sotopia_env.world import Task
from tests.sotopia_env.tasks.test_templates import TEMPLATES

COUNT = 200


def figures() -> list[Figure]:
    """The cost of a drawn task, and of one that is drawn and written, over that of reading one."""
    # The same tasks as text, so that drawing and reading produce equal objects.
    stream = TaskStream(TEMPLATES, seed=1)
    texts = [task.model_dump_json() for task in itertools.islice(stream.tasks(), COUNT)]

    def draw() -> int:
        return sum(1 for _ in itertools.islice(stream.tasks(), COUNT))

    def write() -> int:
        return sum(bool(task.model_dump_json()) for task in itertools.islice(stream.tasks(), COUNT))

    def read() -> int:
        return sum(bool(Task.model_validate_json(text)) for text in texts)

    times = cpu_rounds({"draw": draw, "write": write, "read": read})
    rate = f"{1e6 / times['write']:,.0f} written a second"
    return [
        Figure("a drawn task over one that is read", times["draw"] / times["read"], "x", 1.5),
        Figure("a drawn and written task over one that is read", times["write"] / times["read"], "x", 2, note=rate),
    ]
