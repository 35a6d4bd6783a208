"""The public file format of a verified outcome: protocol, issues, and each seat's worth for every outcome.

A mistake raises an error when the record is built; the message names the field and the fix. Policies must not see the
whole record; they get an :class:`~sotopia_env.outcomes.space.OutcomeSpace` and their own worth instead.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

from pydantic import Discriminator, Field, PlainValidator, Tag, model_validator

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError, Verbatim
from sotopia_env.foundation.records import Label, Name, Record
from sotopia_env.outcomes.amounts import count_text, fold
from sotopia_env.outcomes.facts import Facts
from sotopia_env.outcomes.games.payoffs import AmountsWorth, GameWorth
from sotopia_env.outcomes.issues import ChoiceIssue, Issue, ItemsIssue, NumberIssue, Seats, check_distinct
from sotopia_env.outcomes.move import LONGEST_CLAIM, InvalidMoveError
from sotopia_env.outcomes.space import OPTION, OutcomeSpace
from sotopia_env.outcomes.variants import protocol_variant
from sotopia_env.outcomes.worth import AdditiveWorth, BallotWorth, ClaimsWorth, FactsWorth, TableWorth, Worth

# Reading a table visits every outcome of the space, to find those without a value.
LARGEST_TABLE = 10_000
LARGEST_GAME = 100_000
"""The maximum number of combinations of choices in a game without a stock."""


class Quorum(Record):
    """Agreed when at least ``quorum`` seats have accepted, among them every seat in ``veto`` (agent ids)."""

    quorum: int = Field(ge=2)
    veto: tuple[Name, ...] = ()


def _form_of_needs(value: Any) -> str | None:
    return "all" if value == "all" else "quorum" if isinstance(value, (dict, Quorum)) else None


# With a discriminator, pydantic reports one error; a plain union would report those of both forms.
Needs = Annotated[
    Annotated[Literal["all"], Tag("all")] | Annotated[Quorum, Tag("quorum")],
    Discriminator(
        _form_of_needs,
        custom_error_type="needs_form",
        custom_error_message='expected \'all\' or an object such as {"quorum": 3, "veto": ["agent_0"]}',
    ),
]


def _is_empty(value: object) -> bool:
    return value == ""


class ProtocolRules(Record):
    """The base class of the rules of all protocols.

    Attributes:
        variant: the protocol of another package that carries them out
            (:func:`~sotopia_env.outcomes.register_protocol`); empty for this package's own.
    """

    variant: Annotated[str, Field(max_length=100)] = Field(default="", exclude_if=_is_empty)


class AgreementRules(ProtocolRules):
    """Offers that are accepted by number.

    Attributes:
        needs: the seats whose assent an agreement needs.
        standing: ``own``: every seat has at most one open offer, and a counter-offer leaves the others' open;
            ``latest``: only the last offer is open (stacked alternating offers, Aydoğan et al. 2017).
    """

    kind: Literal["agreement"] = "agreement"
    needs: Needs = "all"
    standing: Literal["own", "latest"] = "own"


class BallotRules(ProtocolRules):
    """A vote of every seat.

    Attributes:
        options: what can be voted for.
        rule: how the votes decide.
        secret: whether others see who voted, but not for which option, until the ballot closes.
        ties: whether a tie for the most votes decides ``none`` of them, or a ``lot`` is drawn among them.
        opens: the number of turns of its own that a seat has before it may vote.
        own: whether a seat may vote for the option that is its own name.
    """

    kind: Literal["ballot"] = "ballot"
    options: tuple[Label, ...] = Field(min_length=2)
    rule: Literal["plurality", "majority", "unanimity"] = "plurality"
    secret: bool = False
    # Left out of files at their defaults, so that the content hash of earlier tasks stays.
    ties: Literal["none", "lot"] = Field(default="none", exclude_if=lambda value: value == "none")
    opens: int = Field(default=0, ge=0, exclude_if=operator.not_)
    own: bool = Field(default=True, exclude_if=bool)

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_distinct(self.options, "options")
        return self


class ClaimsRules(ProtocolRules):
    """Claims against ``answer``, which only evaluators see; ``needs`` says whether all seats must be right or one.

    ``shown`` says whether the list of candidates is public; if it is, only a candidate can be claimed.
    """

    kind: Literal["claims"] = "claims"
    candidates: tuple[Label, ...] = Field(min_length=1)
    answer: Name
    needs: Literal["all", "any"] = "all"
    tries: int = Field(default=1, ge=1)
    shown: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_distinct(self.candidates, "candidates")
        # Only candidates can be claimed, so another answer could never be right.
        if fold(self.answer) not in map(fold, self.candidates):
            raise InvalidValueError(field="answer", got=self.answer, valid=self.candidates)
        if long := [candidate for candidate in self.candidates if len(candidate) > LONGEST_CLAIM]:
            raise InvalidValueError(
                field="candidates", expected=f"at most {LONGEST_CLAIM} characters each", got=long[0]
            )
        return self


_RULES: Mapping[str, type[Record] | str] = {
    "agreement": AgreementRules,
    "ballot": BallotRules,
    "claims": ClaimsRules,
    "choices": "games.rules:ChoicesRules",
    "roles": "roles.rules:RolesRules",
}
"""The class of each kind of rules; the modules of games are imported only where a task has them."""


def _read_rules(value: Any) -> Any:
    if not isinstance(value, dict | Record):
        raise InvalidValueError(expected="an object with fields", got=value)
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    if kind is None:
        raise InvalidValueError(field="kind", expected="a value", got=Verbatim("nothing"))
    if not isinstance(kind, str) or kind not in _RULES:
        raise UnknownNameError(field="kind", got=kind, valid=_RULES)
    rules = _RULES[kind]
    if isinstance(rules, str):
        module, name = rules.split(":")
        rules = getattr(import_module(f"sotopia_env.outcomes.{module}"), name)
    return rules.model_validate(value)


if TYPE_CHECKING:
    from sotopia_env.outcomes.games.rules import ChoicesRules
    from sotopia_env.outcomes.roles.rules import RolesRules

    AnyRules: TypeAlias = AgreementRules | BallotRules | ClaimsRules | ChoicesRules | RolesRules
else:
    AnyRules = Any


class OutcomeSpec(Record):
    """A machine-checkable outcome. It holds every seat's worth, so it never reaches an observation.

    Attributes:
        protocol: the rules by which moves lead to an outcome.
        issues: the subjects of an agreement; empty for a ballot, claims or choices.
        worth: the worth for each seat, in the form that fits the protocol.
    """

    protocol: Annotated[AnyRules, PlainValidator(_read_rules)]
    issues: tuple[Issue, ...] = ()
    worth: tuple[Worth, ...] = Field(min_length=2)

    @model_validator(mode="after")
    def _check(self) -> Self:
        # An unknown variant fails when the file is read, not when an episode starts.
        if self.protocol.variant:
            protocol_variant(self.protocol.variant, self.protocol.kind)
        _check_issues(self)
        for seat, worth in enumerate(self.worth):
            try:
                _check_worth(self, worth)
            except InvalidValueError as error:
                raise InvalidValueError.of(error, within=f"worth[{seat}]") from None
        _check_quorum(self, len(self.worth))
        if self.protocol.kind == "choices":
            _check_game(self, self.protocol)
        return self

    def resolved(self, facts: Facts | None) -> OutcomeSpec:
        """Returns the specification with worths in numbers where they depend on facts; for evaluators only."""
        if facts is not None and self.protocol.kind == "roles":
            return self.model_copy(update={"protocol": self.protocol.resolved(facts)})
        if facts is None or not isinstance(self.protocol, BallotRules):
            return self
        options, truth = self.protocol.options, facts.truth
        worths = [worth.resolved(options, truth) if isinstance(worth, FactsWorth) else worth for worth in self.worth]
        return self.model_copy(update={"worth": tuple(worths)})

    def space(self, names: Seats) -> OutcomeSpace:
        """Returns the space for the seats in ``names``; it contains neither worths nor answers."""
        if self.protocol.kind == "ballot" or self.protocol.kind == "roles":
            return OutcomeSpace((ChoiceIssue(name=OPTION, options=self.protocol.options),), dict(names))
        if self.protocol.kind == "choices":
            rules = self.protocol
            # One issue per seat: its choice. A point of the space is what all choose, and what a contract is about.
            own = [ChoiceIssue(name=name, options=rules.options_of(agent)) for agent, name in names.items()]
            return OutcomeSpace(tuple(own), dict(names))
        return OutcomeSpace(self.issues, dict(names))

    @cached_property
    def space_by_id(self) -> OutcomeSpace:
        """The outcome space with agent ids for names."""
        return self.space({f"agent_{seat}": f"agent_{seat}" for seat in range(len(self.worth))})


def _check_issues(spec: OutcomeSpec) -> None:
    kind = spec.protocol.kind
    if kind == "agreement" and not spec.issues:
        raise InvalidValueError(field="issues", expected="at least one issue to agree on")
    if kind != "agreement" and spec.issues:
        raise InvalidValueError(
            field="issues", expected=f"none for {kind}", got=spec.issues[0].name, hint="leave them out"
        )
    check_distinct(tuple(issue.name for issue in spec.issues), "issues")


_WORTH_FORMS: dict[str, tuple[tuple[type, ...], str]] = {
    "agreement": ((AdditiveWorth, TableWorth), "'issues' or 'table'"),
    "ballot": ((BallotWorth, FactsWorth), "'options' or 'facts'"),
    "claims": ((ClaimsWorth,), "'right'"),
    "choices": ((GameWorth,), "'payoffs', 'counts' or 'per'"),
    "roles": ((BallotWorth,), "'options'"),
}


def _check_worth(spec: OutcomeSpec, worth: Worth) -> None:
    types, keys = _WORTH_FORMS[spec.protocol.kind]
    if not isinstance(worth, types):
        raise InvalidValueError(expected=f"a worth with {keys} for the protocol {spec.protocol.kind!r}")
    if isinstance(worth, AdditiveWorth):
        _check_keys(worth.issues, [issue.name for issue in spec.issues], ".issues", "issue")
        for issue in spec.issues:
            _check_gains(issue, worth.issues[issue.name])
    elif isinstance(worth, BallotWorth) and (spec.protocol.kind == "ballot" or spec.protocol.kind == "roles"):
        _check_keys(worth.options, spec.protocol.options, ".options", "option")
    elif isinstance(worth, FactsWorth) and isinstance(spec.protocol, BallotRules):
        for name, value in ((name, value) for name, by_value in worth.facts.items() for value in by_value):
            for option in worth.facts[name][value]:
                if option not in spec.protocol.options:
                    raise InvalidValueError(field=f".facts.{name}.{value}", got=option, valid=spec.protocol.options)
    elif isinstance(worth, TableWorth):
        _check_table(spec, worth)


def _check_gains(issue: NumberIssue | ChoiceIssue | ItemsIssue, gains: dict[str, float]) -> None:
    field = f".issues.{issue.name}"
    if isinstance(issue, ChoiceIssue):
        _check_keys(gains, issue.options, field, "option")
        return
    key = "per_unit" if isinstance(issue, NumberIssue) else "each"
    if list(gains) != [key]:
        raise InvalidValueError(
            field=field,
            expected=f'{{"{key}": number}} for {issue.kind}',
            got=Verbatim(", ".join(list(gains)[:6])),
        )


def _check_keys(keys: Iterable[str], expected: Iterable[str], field: str, noun: str) -> None:
    names = list(expected)
    if unknown := [key for key in keys if key not in names]:
        raise InvalidValueError(f"unknown {noun}", field=field, got=unknown[0], valid=names)
    if missing := [name for name in names if name not in keys]:
        problem = f"no worth for the {noun} {missing[0]!r}"
        raise InvalidValueError(problem, field=field, hint="add it (0 where it does not matter)")


def _check_table(spec: OutcomeSpec, worth: TableWorth) -> None:
    # Not ``spec.space_by_id``: the specification is still being validated.
    agents = {f"agent_{seat}": f"agent_{seat}" for seat in range(len(spec.worth))}
    space = OutcomeSpace(spec.issues, agents)
    if space.size > LARGEST_TABLE:
        raise InvalidValueError(
            field=".table",
            expected=f"at most {LARGEST_TABLE} outcomes",
            got=Verbatim(count_text(space.size)),
            hint="use 'issues' instead",
        )
    rows: dict[tuple[Any, ...], int] = {}
    for row, entry in enumerate(worth.table):
        try:
            key = space.key(space.normalise(entry.terms))
        except InvalidMoveError as error:
            raise InvalidValueError.of(error, within=f".table[{row}]") from None
        if (earlier := rows.setdefault(key, row)) != row:
            problem = f"the same terms as table[{earlier}]"
            raise InvalidValueError(problem, field=f".table[{row}]", hint="each outcome is valued once")
    if len(rows) < space.size:
        terms = next(terms for terms in space.outcomes() if space.key(terms) not in rows)
        problem = f"no value for {space.describe(terms)}"
        raise InvalidValueError(problem, field=".table", hint=f"add it ({space.size} outcomes in all)")


def _check_game(spec: OutcomeSpec, rules: ChoicesRules) -> None:
    agents = [f"agent_{seat}" for seat in range(len(spec.worth))]
    rules.check_seats(agents)
    options = [rules.options_of(agent) for agent in agents]
    for seat, worth in enumerate(spec.worth):
        assert isinstance(worth, GameWorth)
        if problem := worth.problem(seat, options):
            raise InvalidValueError.of(problem, within=f"worth[{seat}]")
    if rules.stock is not None:
        _check_stock_worths(spec)
    elif (size := math.prod(map(len, options))) > LARGEST_GAME:
        expected, got = f"at most {LARGEST_GAME} combinations of choices", Verbatim(count_text(size))
        raise InvalidValueError(field="protocol", expected=expected, got=got, hint="use fewer options or larger steps")


def _check_stock_worths(spec: OutcomeSpec) -> None:
    first = spec.worth[0]
    for seat, worth in enumerate(spec.worth):
        if worth != first or not isinstance(worth, AmountsWorth) or not {*worth.per} <= {"own", "total"}:
            expected = "the same worth for every seat where there is a stock, by 'own' and 'total'"
            raise InvalidValueError(field=f"worth[{seat}]", expected=expected)


def _check_quorum(spec: OutcomeSpec, seats: int) -> None:
    needs = spec.protocol.needs if isinstance(spec.protocol, AgreementRules) else "all"
    if not isinstance(needs, Quorum):
        return
    if needs.quorum > seats:
        raise InvalidValueError(
            field="protocol.needs.quorum", expected=f"at most {seats}, the number of seats", got=needs.quorum
        )
    agents = [f"agent_{seat}" for seat in range(seats)]
    for agent in needs.veto:
        if agent not in agents:
            raise InvalidValueError(field="protocol.needs.veto", got=agent, valid=agents)
    check_distinct(needs.veto, "protocol.needs.veto")


def check_facts(spec: OutcomeSpec | None, facts: Facts | None) -> None:
    """Raises InvalidValueError unless the worths and choices of a task are about its ``facts``."""
    if spec is not None and spec.protocol.kind == "roles":
        spec.protocol.check_facts(facts, len(spec.worth))
    variables = {} if facts is None else {name: v for name, v in facts.by_name.items() if v.kind != "choice"}
    for seat, worth in enumerate(() if spec is None else spec.worth):
        for name, by_value in worth.facts.items() if isinstance(worth, FactsWorth) else ():
            field = f"outcome.worth[{seat}].facts"
            if name not in variables:
                raise InvalidValueError(field=field, got=name, valid=variables, hint="declare the variable in 'facts'")
            if strange := [value for value in by_value if value not in variables[name].options]:
                raise InvalidValueError(field=f"{field}.{name}", got=strange[0], valid=variables[name].options)
    choices = [variable for variable in (() if facts is None else facts.variables) if variable.kind == "choice"]
    for variable in choices:
        if strange := [option for option in variable.options if option not in _options_of(spec, variable.of)]:
            expected = "an option of the ballot or of the game, since a choice is one of these"
            raise InvalidValueError(field=f"facts.{variable.name}.options", expected=expected, got=strange[0])
    owners = [variable.of for variable in choices]
    if twice := [variable for variable in choices if owners.count(variable.of) > 1]:
        hint = "a seat has one coming choice: leave out one of them"
        raise InvalidValueError(
            "two choices of one seat", field=f"facts.{twice[1].name}.of", got=twice[1].of, hint=hint
        )


def _options_of(spec: OutcomeSpec | None, agent: str) -> tuple[str, ...]:
    """What a seat can choose; nothing where nothing is chosen."""
    rules = None if spec is None else spec.protocol
    if rules is not None and rules.kind == "choices":
        return rules.menu_of(agent)
    return rules.options if isinstance(rules, BallotRules) else ()


def check_seats(spec: OutcomeSpec, seats: int) -> None:
    """Raises InvalidValueError unless ``spec`` is for ``seats`` seats."""
    if len(spec.worth) != seats:
        raise InvalidValueError(field="outcome.worth", expected=f"one per seat ({seats})", got=len(spec.worth))


def worth_value(spec: OutcomeSpec, seat: int, terms: Mapping[str, Any]) -> float:
    """Returns the worth of ``terms`` in normal form (divisions by agent id) to ``seat``; about a microsecond."""
    return spec.worth[seat].value(spec.space_by_id, terms, f"agent_{seat}")
