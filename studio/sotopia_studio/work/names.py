"""Resolution of names that came over the network: policies, evaluators, tasks and models.

With accounts, names can only refer to installed policies, evaluators and tasks: a user of the studio cannot make the
server import a module or open a file or directory. Without accounts, the user is the owner of the machine and may use
any name.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from pathlib import Path
from typing import Any, TypeVar

from sotopia_env import naming, tasks
from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.files import replacement
from sotopia_env.foundation.yaml_text import to_yaml
from sotopia_env.naming.grammar import split, split_options
from sotopia_env.naming.plugins import installed_only, without_building
from sotopia_env.runs.spec import RunSpec
from sotopia_env.world import Evaluator
from sotopia_env.world.answers import Configured
from sotopia_env.world.play.policy import Policy
from sotopia_env.world.reward import CustomDimension
from sotopia_studio.settings import ServiceSettings
from sotopia_studio.store.episodes import PERSON

_T = TypeVar("_T")
_BUILDER = ThreadPoolExecutor(1, "building")
_OUTSIDE = re.compile(r"\b(api_base|custom|examples|template)\s*=|(://)")
"""The options that make a name read a file, or send prompts and keys to an address."""
_FILES = frozenset({"examples", "template"})
_MOST_EPISODES = 200_000
_OF_A_RUN = frozenset({"max_cost", "max_tokens"})
"""Model settings that a run may contain; keys and addresses are set by the operator."""


def meaning(settings: ServiceSettings) -> AbstractContextManager[None]:
    """Returns the context manager in which names must be resolved."""
    return installed_only() if settings.accounts else nullcontext()


async def built(make: Callable[[], _T]) -> _T:
    """Returns the result of a function that builds models, in a thread of its own: that takes up to a minute.

    Meanwhile the event loop renews leases and carries out other jobs. Models are built one at a time, because those of
    one directory share what was loaded.
    """
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_BUILDER, copy_context().run, make)


async def checked(settings: ServiceSettings, check: Callable[[], _T]) -> _T:
    """Returns the result of a function that resolves names, without building what they name and outside the event loop.

    For processes that answer requests; models are built in workers.
    """

    def work() -> _T:
        with without_building(), meaning(settings):
            return check()

    return await asyncio.to_thread(work)


def check(settings: ServiceSettings, names: Iterable[str], manner: Mapping[str, Any] | None = None) -> None:
    """Raises :class:`InvalidValueError` if a name or a setting refers to a file or an address, with accounts."""
    if not settings.accounts:
        return
    own = re.compile(rf"custom={re.escape(str(_dimensions(settings)))}/[0-9a-f]{{16}}\.yaml")
    for name in names:
        if match := _OUTSIDE.search(own.sub("", name)):
            raise InvalidValueError(
                field=match[1] or "api_base",
                expected="a name without files and addresses: only the operator sets these",
            )
    for key in _FILES & set(manner or {}):
        raise InvalidValueError(field=f"manner.{key}", expected="settings without files: only the operator sets these")


def _dimensions(settings: ServiceSettings) -> Path:
    return (settings.data / "dimensions").resolve()


def policies(
    settings: ServiceSettings, models: ModelPool, names: Iterable[str], manner: Mapping[str, Any]
) -> list[Policy]:
    """Returns the policies with these names, except for people; opens no connections.

    Raises:
        UnknownNameError: a name is unknown.
        InvalidValueError: an option is invalid.
    """
    chosen = [name for name in names if name != PERSON]
    check(settings, chosen, manner)
    with meaning(settings):
        return [naming.make_policy(name, models, manner) for name in chosen]


def evaluator(
    settings: ServiceSettings, models: ModelPool, name: str, seated: Iterable[Configured] = ()
) -> Evaluator | None:
    """Returns the evaluator of this name, ``None`` for ``none``; raises as :func:`policies`."""
    check(settings, [name])
    with meaning(settings):
        return naming.make_optional_evaluator(name, model_factory=models.judge, policies=list(seated))


def with_dimensions(settings: ServiceSettings, name: str, dimensions: tuple[CustomDimension, ...]) -> str:
    """Returns the name of a judge that also scores a researcher's own dimensions.

    The dimensions are written to a file in the data directory, which every process of the service can read.

    Raises:
        InvalidValueError: ``name`` is not the name of one judge.
    """
    if not dimensions:
        return name
    head, options = split_options(name)
    if not head.startswith("judge:") or len(split(name, "+")) > 1:
        raise InvalidValueError("own dimensions need a judge", field="evaluator", expected="judge:MODEL", got=name)
    text = to_yaml({"dimensions": [dimension.model_dump(mode="json") for dimension in dimensions]})
    path = _dimensions(settings) / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.yaml"
    write_data(path, text)
    return f"{head}:{','.join(filter(None, (options, f'custom={path}')))}"


def write_data(path: Path, text: str) -> None:
    """Writes a file of the data directory; a full disk is an ``OSError``, as it is for the database."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacement(path) as stream:
        stream.write(text.encode())


def run_spec(settings: ServiceSettings, spec: RunSpec) -> RunSpec:
    """Returns a run with the operator's model settings and the run's own spending limits.

    Raises:
        InvalidValueError: the run contains other model settings or is too large.
        UnknownNameError: the run reads tasks from a file, and the service has accounts.
    """
    own = spec.models.model_dump(exclude_unset=True)
    if set(own) - _OF_A_RUN:
        field = f"models.{min(set(own) - _OF_A_RUN)}"
        raise InvalidValueError(field=field, expected="only max_cost and max_tokens; the operator sets the others")
    check_tasks(settings, spec.tasks)
    check_size(spec.tasks, spec.n, spec.repeats, _MOST_EPISODES)
    check(settings, [*spec.policies, *spec.matchups, spec.evaluator], spec.manner)
    return spec.model_copy(update={"models": limited(settings.models, own)})


def check_size(source: str, n: int | None, repeats: int, most: int) -> None:
    """Raises :class:`InvalidValueError` if there are too many tasks to plan without blocking the service."""
    numbers = [int(text[:12]) for text in re.findall(r"\bn\s*=\s*\(?\s*(\d+)", source)]
    if (total := max([n or 1, *numbers]) * repeats) > most:
        raise InvalidValueError(field="n", expected=f"at most {most:,} tasks times repeats", got=total)


def check_tasks(settings: ServiceSettings, source: str) -> None:
    """Raises :class:`UnknownNameError` if a source of tasks is a file or an import, in a service with accounts."""
    sources = [] if source in (*naming.SHIPPED, "all") else split(split_options(source)[0])
    for name in sources if settings.accounts else ():
        if name not in naming.SHIPPED and name not in tasks.FAMILIES and name not in naming.TASK_PLUGINS.names:
            raise UnknownNameError(field="tasks", got=name, valid=[*naming.SHIPPED, "all", *tasks.FAMILIES])


def limited(options: ModelOptions, limits: Mapping[str, Any]) -> ModelOptions:
    """Returns model settings with the given limits, capped by those of the operator."""
    changes = {}
    for name, value in limits.items():
        most = getattr(options, name)
        # `None` is no limit, so it never replaces a limit of the operator.
        changes[name] = value if most is None or (value is not None and value < most) else most
    return options.model_copy(update=changes)
