"""Frozen suites: the tasks, seats, orders, evaluator and reference pool of an arena, with the hashes that fix them.

A suite names its tasks by a source and a seed, and lists the hash of each: tasks that are generated differently, or
read from a changed file, are refused. ``behaviour`` is a hash of the turns that the pool plays in some of the tasks: a
policy of the pool that acts or speaks differently is refused, too. Episodes of one suite are therefore comparable
between machines and versions of the package.
"""

from __future__ import annotations

import hashlib
import importlib.resources
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NoReturn

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveInt

from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError, Verbatim
from sotopia_env.foundation.files import read_text, write_text_atomically
from sotopia_env.foundation.json_text import canonical_json
from sotopia_env.foundation.records import Line, Name, Record, read_record
from sotopia_env.foundation.waiting import wait
from sotopia_env.naming import make_policy
from sotopia_env.naming.plugins import installed_only
from sotopia_env.runs import RunSpec, plan_episodes, run_episodes
from sotopia_env.runs.plan import Orders
from sotopia_env.world import Rules, TaskSet
from sotopia_env.world.play.policy import policy_identity

SUITES = ("quick", "standard", "hard", "multiparty", "srbench", "social", "games", "roles")
"""The suites of the package."""
SUITE_FILE = "arena.json"
"""The file in a run directory with the suite that is played there."""
MOST_TASKS = 100_000
_TRIAL_TASKS = 8  # tasks in which the pool is played to check its behaviour


class Suite(Record):
    """A frozen set of games.

    Attributes:
        version: raised with every change of tasks, pool or rules; results of two versions are never mixed.
        about: one sentence about its purpose.
        tasks: the source of the tasks (:func:`sotopia_env.naming.task_set`).
        level: the difficulty of generated tasks.
        n: the number of tasks.
        seed: the seed of tasks and episodes.
        repeats: how often each episode is played, each time with another seed.
        orders: which seat acts first.
        max_turns: the turn limit; ``None`` for the tasks' own.
        pool: the names of the reference opponents, which are built in or of an installed package.
        evaluator: the name of the evaluator.
        metric: the payoff that is rated; a metric of :mod:`sotopia_env.reports`.
        hashes: the hash of every task, in the order of play.
        seats: the number of seats of every task.
        behaviour: a hash of the turns that the pool plays.
    """

    name: Name
    version: PositiveInt = 1
    about: Line = ""
    tasks: Line
    level: Line = "medium"
    n: Annotated[int, Field(ge=1, le=MOST_TASKS)] | None = None
    seed: NonNegativeInt = 0
    repeats: Annotated[int, Field(ge=1, le=1000)] = 1
    orders: Orders = "alternate"
    max_turns: PositiveInt | None = None
    pool: Annotated[tuple[Line, ...], Field(min_length=1)]
    evaluator: Line = "verified+diligence"
    metric: Line = "surplus_share"
    hashes: tuple[Line, ...] = ()
    seats: tuple[Annotated[int, Field(ge=2, le=1000)], ...] = ()
    behaviour: Line = ""

    @property
    def content_hash(self) -> str:
        """Hash of everything but the name and the description (16 hex digits)."""
        content = self.model_dump(exclude={"name", "about", "tasks"})
        return hashlib.sha256(canonical_json(content).encode()).hexdigest()[:16]

    @cached_property
    def pool_identities(self) -> tuple[str, ...]:
        """The identity of every policy of the pool; see :func:`~sotopia_env.world.play.policy.policy_identity`.

        Raises:
            UnknownNameError: a policy of the pool is not installed.
            InvalidValueError: a policy of the pool is a language model.
        """
        # A suite or a card may be somebody else's: no module or directory that it names is opened, no model is asked.
        with installed_only():
            return tuple(policy_identity(make_policy(name, _no_model)) for name in self.pool)

    @property
    def rules(self) -> Rules:
        """The order and limits of play, but for the first seat."""
        return self.spec(self.pool).rules

    def spec(self, policies: Sequence[str], **options: Any) -> RunSpec:
        """Returns the run in which each policy plays the pool, itself, and the other policies.

        Args:
            policies: the names of the policies to rate.
            options: other settings of the run, such as ``concurrency`` and ``models``.

        Raises:
            InvalidValueError: there is no policy, or one is named twice.
        """
        if not policies or len(set(policies)) != len(policies):
            raise InvalidValueError(field="policies", expected="different policies", got=list(policies))
        partners = list(dict.fromkeys([*self.pool, *policies]))
        return RunSpec(
            matchups=tuple(f"{policy} vs {partner}" for policy in policies for partner in partners),
            tasks=self.tasks,
            level=self.level,
            n=self.n,
            seed=self.seed,
            repeats=self.repeats,
            orders=self.orders,
            max_turns=self.max_turns,
            evaluator=self.evaluator,
            **options,
        )

    def expected(self, identity: str) -> int:
        """Returns the number of seats in which a policy meets the pool; ``identity`` is that of the policy."""
        opponents = len([other for other in self.pool_identities if other != identity])
        firsts = sum(seats * (seats if self.orders == "both" else 1) for seats in self.seats)
        return opponents * firsts * self.repeats

    def check(self) -> None:
        """Compares tasks and pool with the hashes.

        Raises:
            InvalidValueError: a task or the behaviour of the pool is not that of the suite.
        """
        check_frozen(self)
        current = freeze(self)
        if current.hashes != self.hashes:
            pairs = zip(self.hashes, current.hashes, strict=False)
            changed = sum(old != new for old, new in pairs) + abs(len(self.hashes) - len(current.hashes))
            raise self._changed(f"{changed} of {len(self.hashes)} tasks of {self.tasks!r} have other hashes")
        if current.behaviour != self.behaviour:
            raise self._changed("the policies of the pool play differently")

    def _changed(self, problem: str) -> InvalidValueError:
        return InvalidValueError(
            f"{problem} than when version {self.version} was frozen",
            field=f"suite {self.name!r}",
            hint="install the version of the package that froze it, or freeze a new version of the suite",
        )

    def save(self, path: Path) -> None:
        """Writes the suite as JSON, atomically."""
        write_text_atomically(path, self.model_dump_json(indent=1) + "\n")


def _no_model(name: str, *_: Any, **__: Any) -> NoReturn:
    raise InvalidValueError(
        field="pool", expected="policies that play alike everywhere, not a language model", got=name
    )


def check_frozen(suite: Suite) -> Suite:
    """Returns a suite with the hash of each task that is the package's own if it has its name and version.

    Raises:
        InvalidValueError: it is not such a suite.
    """
    if not suite.hashes or len(suite.hashes) != len(suite.seats) or suite.n not in (None, len(suite.hashes)):
        got = Verbatim(f"{len(suite.hashes)} hashes, {len(suite.seats)} numbers of seats, n = {suite.n}")
        raise InvalidValueError(field="hashes", expected="the hash and the number of seats of every task", got=got)
    if suite.name in SUITES:
        own = load_suite(suite.name)
        if (suite.version, suite.content_hash) != (own.version, own.content_hash) and suite.version <= own.version:
            raise InvalidValueError(
                f"it has the name of a suite of the package, whose version {own.version} is another one",
                field="name",
                got=Verbatim(f"{suite.name!r} version {suite.version}, hash {suite.content_hash}"),
                hint="freeze your own suite under another name",
            )
    return suite


FrozenSuite = Annotated[Suite, AfterValidator(check_frozen)]


def load_suite(name: str | Path) -> Suite:
    """Returns a suite of the package by name, or the suite in a JSON file.

    Raises:
        UnknownNameError: it is neither one of :data:`SUITES` nor a file.
        DamagedRecordError: the file is not a suite.
    """
    if name in SUITES:
        file = importlib.resources.files("sotopia_env").joinpath("data", "arena", f"{name}.json")
        return read_record(Suite, file.read_text(encoding="utf-8"), f"suite {name}")
    path = Path(name)
    if not path.is_file():
        raise UnknownNameError(field="suite", got=str(name), valid=SUITES, hint="or the path of a suite's JSON file")
    return read_record(Suite, read_text(path), path)


def freeze(suite: Suite) -> Suite:
    """Returns the suite with the hashes of its current tasks and of its pool's current behaviour.

    Raises:
        InvalidValueError: the suite cannot be played.
        UnknownNameError: a name in it is unknown, or the name of a policy or an evaluator that is not installed.
    """
    spec = suite.spec(suite.pool)
    assert suite.pool_identities  # raises if one of them is not installed, or a language model
    with installed_only():
        run = spec.resolve(ModelPool(spec.models))
        behaviour = _behaviour(suite, run.tasks[:_TRIAL_TASKS], run.rules)
    hashes = tuple(task.content_hash for task in run.tasks)
    seats = tuple(len(task.agents) for task in run.tasks)
    return suite.model_copy(update={"hashes": hashes, "seats": seats, "behaviour": behaviour})


def _behaviour(suite: Suite, tasks: TaskSet, rules: Any) -> str:
    """A hash of the turns of every policy of the pool beside the next one."""
    pairs = list(zip(suite.pool, suite.pool[1:] + suite.pool[:1], strict=True))
    plans = plan_episodes(tasks, pairs, seed=suite.seed, rules=rules, both_seats=False, orders=suite.orders)
    turns = [episode.turns_hash for episode in wait(run_episodes(plans, progress=False)).episodes]
    return hashlib.sha256("".join(turns).encode()).hexdigest()[:16]
