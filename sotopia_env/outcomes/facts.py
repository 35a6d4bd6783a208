"""Facts: the variables of a task with their values, who knows them, and who may know them.

A *variable* has a name, a few options and one value. A seat knows a value if the task says so (``known_by``), if a deal
informs it, if it was shown to it (:mod:`~sotopia_env.outcomes.protocols.statements`), or if it follows from these and
the deals. Statements alone make nobody know anything. Policies never get a :class:`Facts`, which holds every value,
but a :class:`SeatFacts`.

Roles are variables of kind ``role``, and a seat's coming choice, such as its vote, is one of kind ``choice``: it has no
value before it is made. A *deal* distributes values among variables as cards are dealt, which everybody knows: what is
left over can be concluded. Source of hard evidence beside cheap talk: Grossman (1981), Milgrom (1981).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from sotopia_env.foundation.errors import InvalidValueError, Verbatim
from sotopia_env.foundation.records import Label, Line, Name, Record
from sotopia_env.outcomes.amounts import count_text
from sotopia_env.outcomes.issues import check_distinct

MOST_WORLDS = 10_000
"""The maximum number of ways in which the values of one deal can fall."""

Values = Mapping[str, str]
"""Values by the name of a variable."""
Distribution = Mapping[str, float]
"""Probabilities by option; they sum to 1."""


class ActClass(StrEnum):
    """The classes of statements.

    ``honest``, ``lie`` and ``unfounded``: the speaker knew the value to be true, knew it to be false, or did not know.
    ``kept``, ``broken`` and ``void``: a promise, which is a statement about one's own coming choice, and that choice
    was the same, another, or none. ``right`` and ``wrong``: an accusation, which is a statement about another's role;
    it is honest, a lie or unfounded besides.
    """

    HONEST = "honest"
    LIE = "lie"
    UNFOUNDED = "unfounded"
    KEPT = "kept"
    BROKEN = "broken"
    VOID = "void"
    RIGHT = "right"
    WRONG = "wrong"


class Norm(Record):
    """What a task expects of everybody's statements.

    Attributes:
        name: such as ``caution``.
        text: what is expected, as it follows the words "It is expected": "that nobody states what they do not know".
        against: the classes of statements that break it.
    """

    name: Name
    text: Line
    against: tuple[ActClass, ...] = Field(min_length=1)


KnownNorm = Literal["honesty", "promises"]
NORMS: Mapping[KnownNorm, Norm] = {
    "honesty": Norm(name="honesty", text="that nobody states what they know to be false", against=(ActClass.LIE,)),
    "promises": Norm(name="promises", text="that promises are kept", against=(ActClass.BROKEN,)),
}
"""The norms that a task can declare by name alone."""


class Variable(Record):
    """One thing that can be known, said, shown and asked about.

    Attributes:
        name: such as ``role of Ana``; unique in the task.
        options: the possible values.
        value: the true one; ``None`` for a choice, which is still to be made.
        kind: a ``fact``, the ``role`` of a seat, or the coming ``choice`` of a seat.
        of: the agent id of the seat whose role or choice it is; empty for a fact.
        text: what it is, in words for people, such as "the hour at which the train leaves".
        known_by: agent ids of the seats that know the value from the start.
        may_know: agent ids of the seats that may come to know it besides; ``all``, or a list, which makes it a secret
            from the others: these do not even read of the variable.
        channel: ``all``, or ``private`` where it may be told in private turns only.
        evidence: whether its value can be shown; otherwise it can only be stated.
        wanted_by: agent ids of the seats that are to learn it.
        expert: agent id of the seat that everybody who may know it takes for the one who does; empty if it is not said.
        aims: agent id to the option that this seat wants the others to believe in.
    """

    name: Label
    options: tuple[Label, ...] = Field(min_length=2)
    value: Name | None = None
    kind: Literal["fact", "role", "choice"] = "fact"
    of: str = ""
    text: Line = ""
    known_by: tuple[Name, ...] = ()
    may_know: Literal["all"] | tuple[Name, ...] = "all"
    channel: Literal["all", "private"] = "all"
    evidence: bool = True
    wanted_by: tuple[Name, ...] = ()
    expert: str = ""
    aims: dict[Name, Name] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_distinct(self.options, "options")
        if (self.value is None) is not (self.kind == "choice"):
            expected = "none for a choice, which is still to be made" if self.value else "the true option"
            raise InvalidValueError(field="value", expected=expected, got=self.value)
        if self.value is not None and self.value not in self.options:
            raise InvalidValueError(field="value", got=self.value, valid=self.options)
        if bool(self.of) is (self.kind == "fact"):
            expected = f"the agent id of the seat whose {self.kind} it is" if self.kind != "fact" else "none for a fact"
            raise InvalidValueError(field="of", expected=expected, got=self.of)
        for agent, option in self.aims.items():
            if option not in self.options:
                raise InvalidValueError(field=f"aims.{agent}", got=option, valid=self.options)
        return self

    @property
    def secret(self) -> bool:
        """Whether some seats may not know it."""
        return self.may_know != "all"

    @property
    def public(self) -> PublicVariable:
        """The part of it that a seat that may know it reads."""
        fields = (self.kind, self.of, self.text, self.evidence, self.channel, self.expert)
        return PublicVariable(self.name, self.options, *fields)

    def admits(self, agent: str) -> bool:
        """Whether a seat may know the value, or knows it from the start."""
        return self.may_know == "all" or agent in self.may_know or agent in self.known_by


class Deal(Record):
    """Values that are dealt to variables, every way equally likely; all of this is known to everybody.

    Attributes:
        variables: names of variables.
        values: as many values; one that is listed twice falls to two variables.
        informs: by value, the values whose holders its holder knows: ``{detective: [mafioso]}``. The holder of a role
            always knows its own.
    """

    variables: tuple[Name, ...] = Field(min_length=2)
    # Sorted, because the order in which an author lists them could tell who has which.
    values: Annotated[tuple[Name, ...], AfterValidator(lambda values: tuple(sorted(values)))]
    informs: dict[Name, tuple[Name, ...]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_distinct(self.variables, "variables")
        if len(self.values) != len(self.variables):
            raise InvalidValueError(
                field="values", expected=f"{len(self.variables)}, one per variable", got=len(self.values)
            )
        for value in {*self.informs, *itertools.chain.from_iterable(self.informs.values())}:
            if value not in self.values:
                raise InvalidValueError(field="informs", got=value, valid=list(dict.fromkeys(self.values)))
        if (size := _permutations(self.values)) > MOST_WORLDS:
            raise InvalidValueError(
                field="values", expected=f"at most {MOST_WORLDS} ways to deal", got=Verbatim(count_text(size))
            )
        return self

    @cached_property
    def ways(self) -> tuple[dict[str, str], ...]:
        """Every way in which the values can fall."""
        return tuple(dict(zip(self.variables, way, strict=True)) for way in _arrangements(Counter(self.values)))

    @cached_property
    def _briefings(self) -> dict[frozenset[str], tuple[dict[str, str], ...]]:
        return {}

    def briefings(self, own: frozenset[str]) -> tuple[dict[str, str], ...]:
        """Returns what the holder of the variables ``own`` knows from the start, conclusions included, in each way."""
        if own not in self._briefings:
            self._briefings[own] = tuple(self.briefing(own, way) for way in self.ways)
        return self._briefings[own]

    def briefing(self, own: frozenset[str], way: Values) -> dict[str, str]:
        """Returns what the holder of the variables ``own`` knows from the start if the values fall in this ``way``."""
        names = {value for name in own for value in self.informs.get(way[name], ())}
        return self.conclusions({name: way[name] for name in self.variables if name in own or way[name] in names})

    def conclusions(self, knowledge: Values) -> dict[str, str]:
        """Returns the values of the deal that ``knowledge`` contains, and those that follow from it."""
        key = frozenset([(name, knowledge[name]) for name in self.variables if name in knowledge])
        if key not in self._conclusions:
            # In most ways a holder knows the same few values.
            if len(self._conclusions) >= MOST_WORLDS:
                self._conclusions.clear()
            self._conclusions[key] = self._concluded(knowledge)
        return self._conclusions[key].copy()

    @cached_property
    def _conclusions(self) -> dict[frozenset[tuple[str, str]], dict[str, str]]:
        return {}

    def _concluded(self, knowledge: Values) -> dict[str, str]:
        ways = consistent(self, knowledge)
        return {name: ways[0][name] for name in self.variables if len({way[name] for way in ways}) == 1}


def _permutations(values: Collection[str]) -> int:
    size = 1
    for number, value in enumerate(values, start=1):
        size = size * number // list(values)[:number].count(value)
    return size


def _arrangements(left: Counter[str]) -> Iterator[tuple[str, ...]]:
    """Each distinct order of a multiset once."""
    if not left:
        yield ()
    for value in list(left):
        yield from ((value, *rest) for rest in _arrangements(left - Counter([value])))


@dataclass(frozen=True)
class PublicVariable:
    """The part of a variable that a seat that may know it reads; see :class:`Variable`."""

    name: str
    options: tuple[str, ...]
    kind: str
    of: str
    text: str
    evidence: bool
    channel: str = "all"
    expert: str = ""


@dataclass(frozen=True)
class SeatFacts:
    """What one seat reads about facts before the first turn.

    Attributes:
        agent: the seat.
        variables: those it may know, by name.
        knowledge: the values it knows.
        deals: the public deals.
        norms: what is expected of everybody, in words.
        duties: by variable it knows, to whom it may be told; only variables that not everybody may know everywhere.
        targets: the variables it is to learn.
        memo: derived data only, such as beliefs, under keys that name everything that they depend on.
    """

    agent: str
    variables: Mapping[str, PublicVariable]
    knowledge: Values
    deals: tuple[Deal, ...]
    norms: tuple[str, ...]
    duties: Mapping[str, tuple[tuple[str, ...], str]]
    targets: tuple[str, ...] = ()
    memo: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def worlds(self, knowledge: Values | None = None) -> tuple[tuple[Deal, tuple[dict[str, str], ...]], ...]:
        """Returns each deal with the ways that agree with a seat's ``knowledge``, by default its own at the start."""
        values = self.knowledge if knowledge is None else knowledge
        return tuple((deal, consistent(deal, values)) for deal in self.deals)

    def briefings(self, deal: Deal, agent: str) -> tuple[dict[str, str], ...]:
        """Returns what ``agent`` knows about a deal from the start, for each of its ways."""
        return deal.briefings(frozenset([name for name in deal.variables if self.variables[name].of == agent]))

    def admits_all(self, name: str) -> bool:
        """Whether everybody may know a variable that this seat knows, on any channel."""
        return name not in self.duties

    def beliefs(self, knowledge: Values | None = None) -> dict[str, dict[str, float]]:
        """Returns the probability of every option given the values that are known and the deals, by variable."""
        return beliefs(self.variables.values(), self.deals, self.knowledge if knowledge is None else knowledge)


class Facts(Record):
    """The facts of a task. It holds every value, so it never reaches an observation.

    Attributes:
        variables: what can be known.
        deals: values that were dealt among some of them.
        norms: what the task expects of statements: ``honesty`` (no lies), ``promises`` (kept), or norms of its own;
            every seat reads them.
        open_wants: whether a seat reads which variables it is to learn; false where its goal alone is to say so.
    """

    variables: tuple[Variable, ...] = Field(min_length=1)
    deals: tuple[Deal, ...] = ()
    norms: tuple[KnownNorm | Norm, ...] = ()
    # Left out of files at its default, so that the content hash of earlier tasks stays.
    open_wants: bool = Field(default=True, exclude_if=bool)

    @cached_property
    def by_name(self) -> Mapping[str, Variable]:
        """The variables by name."""
        return {variable.name: variable for variable in self.variables}

    @cached_property
    def expectations(self) -> tuple[Norm, ...]:
        """The norms in full."""
        return tuple(norm if isinstance(norm, Norm) else NORMS[norm] for norm in self.norms)

    @cached_property
    def truth(self) -> Values:
        """The values of all variables but choices."""
        return {variable.name: variable.value for variable in self.variables if variable.value is not None}

    def initial(self, agent: str) -> frozenset[str]:
        """Returns the variables whose values ``agent`` is told before the first turn."""
        listed = frozenset(variable.name for variable in self.variables if agent in variable.known_by)
        return listed.union(*(self._dealt(deal, agent) for deal in self.deals))

    def _dealt(self, deal: Deal, agent: str) -> frozenset[str]:
        """The variables of a deal whose values ``agent`` knows from the start."""
        own = frozenset([name for name in deal.variables if self.by_name[name].of == agent])
        return frozenset(deal.briefing(own, {name: self.truth[name] for name in deal.variables}))

    def knowledge(self, names: Iterable[str]) -> dict[str, str]:
        """Returns the values that a seat knows to which those of ``names`` were disclosed, conclusions included."""
        values = {name: self.truth[name] for name in names}
        for deal in self.deals:
            values |= deal.conclusions(values)
        # In the declared order: the order in which values came to be known differs from one replay to the next.
        return {name: values[name] for name in self.by_name if name in values}

    def view(self, agent: str) -> SeatFacts:
        """Returns what ``agent`` reads about facts before the first turn."""
        knowledge = self.knowledge(self.initial(agent))
        visible = [v for v in self.variables if v.admits(agent) or v.name in knowledge]
        return SeatFacts(
            agent,
            {v.name: v.public for v in visible},
            knowledge,
            self.deals,
            tuple(norm.text for norm in self.expectations),
            {
                v.name: ((*v.known_by, *(v.may_know if v.may_know != "all" else ())) if v.secret else (), v.channel)
                for v in visible
                if v.name in knowledge and (v.secret or v.channel == "private")
            },
            tuple(v.name for v in visible if agent in v.wanted_by) if self.open_wants else (),
        )

    def check(self, agents: Collection[str]) -> None:
        """Raises InvalidValueError unless the facts fit a task with these seats."""
        check_distinct(tuple(variable.name for variable in self.variables), "facts.variables")
        check_distinct(tuple(norm.name for norm in self.expectations), "facts.norms")
        for index, variable in enumerate(self.variables):
            _check_variable(variable, agents, f"facts.variables.{index}", {n for d in self.deals for n in d.variables})
        for index, deal in enumerate(self.deals):
            self._check_deal(deal, f"facts.deals.{index}")
        dealt = Counter(name for deal in self.deals for name in deal.variables)
        if twice := [name for name, count in dealt.items() if count > 1]:
            raise InvalidValueError("a variable is in two deals", field="facts.deals", got=twice[0])

    def _check_deal(self, deal: Deal, field: str) -> None:
        for name in deal.variables:
            variable = self.by_name.get(name)
            if variable is None:
                raise InvalidValueError(field=f"{field}.variables", got=name, valid=self.by_name)
            if variable.kind != "role" or variable.secret:
                expected = "roles that everybody may know, because everybody knows how they were dealt"
                raise InvalidValueError(field=f"{field}.variables", expected=expected, got=name)
            if foreign := [value for value in deal.values if value not in variable.options]:
                raise InvalidValueError(field=f"{field}.values", got=foreign[0], valid=variable.options)
        values = [self.truth[name] for name in deal.variables]
        if Counter(values) != Counter(deal.values):
            raise InvalidValueError(
                field=f"{field}.values", expected=f"the values of its variables, {', '.join(values)}", got=deal.values
            )


def consistent(deal: Deal, knowledge: Values) -> tuple[dict[str, str], ...]:
    """Returns the ways of a deal that agree with ``knowledge``; at least one, if it is true."""
    fixed = [(name, knowledge[name]) for name in deal.variables if name in knowledge]
    return tuple(way for way in deal.ways if all(way[name] == value for name, value in fixed)) if fixed else deal.ways


def beliefs(
    variables: Iterable[PublicVariable | Variable], deals: Iterable[Deal], knowledge: Values
) -> dict[str, dict[str, float]]:
    """Returns the probability of every option, by variable: 1 for known values, the deals' shares, else uniform."""
    dealt = {name: ways for deal in deals for ways in [consistent(deal, knowledge)] for name in deal.variables}
    result: dict[str, dict[str, float]] = {}
    for variable in variables:
        name, options = variable.name, variable.options
        if name in knowledge:
            result[name] = {option: float(option == knowledge[name]) for option in options}
        elif ways := dealt.get(name):
            values = [way[name] for way in ways]
            result[name] = {option: values.count(option) / len(values) for option in options}
        else:
            result[name] = dict.fromkeys(options, 1 / len(options))
    return result


def _check_variable(variable: Variable, agents: Collection[str], field: str, dealt: Collection[str]) -> None:
    others = variable.may_know if variable.may_know != "all" else ()
    fields = {"of": (variable.of,), "expert": (variable.expert,), "known_by": variable.known_by, "may_know": others}
    for name, seats in {**fields, "wanted_by": variable.wanted_by, "aims": tuple(variable.aims)}.items():
        check_distinct(seats, f"{field}.{name}")
        for agent in filter(None, seats):
            if agent not in agents:
                raise InvalidValueError(field=f"{field}.{name}", got=agent, valid=agents)
    if variable.kind == "choice":
        return
    admitted = [agent for agent in agents if variable.admits(agent)]
    if not admitted or not (variable.known_by or variable.name in dealt):
        raise InvalidValueError(
            "nobody can know it", field=f"{field}.known_by", got=variable.name, hint="name a seat that knows its value"
        )
    if variable.secret and len(admitted) == len(agents) and variable.channel == "all":
        raise InvalidValueError(
            "a secret that everybody may know",
            field=f"{field}.may_know",
            got=variable.name,
            hint="leave out 'may_know', or a seat from whom it is to be kept",
        )
    if stranger := next((agent for agent in variable.wanted_by if not variable.admits(agent)), ""):
        raise InvalidValueError("a seat is to learn what it may not know", field=f"{field}.wanted_by", got=stranger)
