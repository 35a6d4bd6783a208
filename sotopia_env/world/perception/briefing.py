"""The briefing, which is the part of a seat's observation that never changes, and the rules of disclosure.

The text holds the information of SOTOPIA-π's prompt (arXiv 2403.08715, appendix B.3) in our own words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sotopia_env.foundation.prompts import fill, reader
from sotopia_env.foundation.quoting import escape, quote
from sotopia_env.outcomes import AgreementRules, BallotRules, ClaimsRules, OutcomeSpace
from sotopia_env.outcomes.descriptions import describe_facts, describe_space, describe_worth, outline
from sotopia_env.outcomes.facts import SeatFacts
from sotopia_env.outcomes.worth import AdditiveWorth, Worth, WorthTable, worth_table
from sotopia_env.world.action import WORDLESS, ActionType
from sotopia_env.world.scenario import Character, Relationship, RelationshipKind, Task

if TYPE_CHECKING:
    from sotopia_env.outcomes.games.game import Game
    from sotopia_env.outcomes.games.rules import ChoicesRules
    from sotopia_env.outcomes.roles.rules import RolesRules

    PublicRules = AgreementRules | BallotRules | ChoicesRules | RolesRules

briefing_text = reader(__package__)
"""Returns a text of the briefing by the name of its file."""

_ACQUAINTANCE = ("age", "gender", "occupation", "pronouns", "public_info", "public_attributes")
_CLOSE = (
    *_ACQUAINTANCE,
    "personality",
    "big_five",
    "moral_foundations",
    "schwartz_values",
    "decision_style",
)
DISCLOSURE: Mapping[RelationshipKind, tuple[str, ...]] = {
    RelationshipKind.STRANGER: (),
    RelationshipKind.KNOW_BY_NAME: (),
    RelationshipKind.ACQUAINTANCE: _ACQUAINTANCE,
    RelationshipKind.FRIEND: _CLOSE,
    RelationshipKind.ROMANTIC: _CLOSE,
    RelationshipKind.FAMILY: _CLOSE,
}
"""The fields of a partner's profile that each relationship reveals (SOTOPIA §2.1; ``know-by-name`` as in the reference
code). The *name* is not listed: participants are addressed by it, so it is shown to all, strangers included, as in the
papers' prompts. No relationship reveals ``secret`` and ``private_attributes``."""

OWN_FIELDS = (*_CLOSE, "private_attributes", "secret")


@dataclass(frozen=True, slots=True)
class Partner:
    """The facts that a seat knows about another seat; ``text`` states all of them in words."""

    agent: str
    name: str
    kind: RelationshipKind
    backstory: str
    profile: str
    text: str


@dataclass(frozen=True, slots=True)
class Briefing:
    """The part of a seat's observation that never changes during an episode.

    Attributes:
        agent: the seat's id.
        name: the name of the character it enacts.
        context: the scenario's public text.
        shared_data: the context's numbers, for programs.
        profile: the seat's own profile in words, including the secret.
        partners: the other seats in order, each with the facts that the relationship reveals.
        goals: the seat's own goals.
        hints: the seat's own hints.
        private_info: the seat's own private information.
        notes: what the seat wrote down after earlier episodes with the same people; empty if nothing.
        private_data: the numbers in ``private_info``, for programs.
        recipients: every name that may appear in an action's ``to``, with the agent id it means; empty where private
            actions are not possible.
        protocol: the kind of the task's protocol (``agreement``, ``ballot``, ``claims``, ``choices``), or empty.
        space: the outcome space; ``None`` without a protocol.
        rules: the protocol's rules (whose assent is needed, how votes are counted); ``None`` without a protocol, and
            for claims, whose rules hold the answer.
        worth: the worth of every outcome to this seat; also in ``private_data`` under ``worth``.
        worths: what single values are worth to this seat; ``None`` if the rules switch this off, and for worths that
            are no sum over issues.
        reads_worths: whether the rules let the seat read what values and offers are worth to it.
        facts: what the seat reads about facts; ``None`` in a task without any.
        game: the game of choices with the payoffs that the seat may know; ``None`` in other tasks.
        outline: the issues, each with the direction that is better for the seat, on one line; empty without a
            protocol.
        head: the text of all this.
        answer: how to answer, with the available action types, and ``timing``.
        timing: how to say when the seat acts next; empty in an order that leaves no choice.
    """

    agent: str
    name: str
    context: str
    shared_data: Mapping[str, object]
    profile: str
    partners: tuple[Partner, ...]
    goals: tuple[str, ...]
    hints: tuple[str, ...]
    private_info: str
    private_data: Mapping[str, object]
    recipients: Mapping[str, str]
    head: str
    answer: str
    timing: str = ""
    protocol: str = ""
    space: OutcomeSpace | None = None
    worth: Worth | None = None
    rules: PublicRules | None = None
    outline: str = ""
    facts: SeatFacts | None = None
    game: Game | None = field(default=None, compare=False)
    worths: WorthTable | None = None
    notes: str = ""
    reads_worths: bool = True


def briefing(
    task: Task, agent: str, action_types: tuple[ActionType, ...], reactive: bool = False, worths: bool = True
) -> Briefing:
    """Returns the unchanging part of ``agent``'s observations in ``task``; built once per task and turn order."""
    # Everything besides the task that the text depends on; seeds and limits do not change it.
    key = ("briefing", agent, action_types, reactive, worths)
    if key not in task.memo:
        task.memo[key] = _brief(task, agent, action_types, briefing_text("timing") if reactive else "", worths)
    entry: Briefing = task.memo[key]
    return entry


def _brief(task: Task, agent: str, action_types: tuple[ActionType, ...], timing: str, worths: bool) -> Briefing:
    seat = task.seat_of[agent]
    own, side, scenario = task.characters[seat], task.scenario.seats[seat], task.scenario
    partners = _partners(task, seat)
    recipients = {}
    if scenario.private_messages:
        # Models address others by name or by id.
        recipients = {key: partner.agent for partner, _ in partners for key in (partner.agent, partner.name)}
    # Includes the secret and the private attributes, which DISCLOSURE never lists.
    profile = describe(own, OWN_FIELDS)
    answer = fill(
        briefing_text("answer"),
        form=_answer_form(task, action_types),
        types=", ".join(f'"{kind.value}"' for kind in action_types),
        private=briefing_text("private") if recipients else "",
        move="" if task.protocol is None else briefing_text("move"),
    )
    spec = scenario.outcome
    worth = None if spec is None else spec.worth[seat]
    space = None if task.protocol is None else task.protocol.space
    table = None
    if worths and space is not None and isinstance(worth, AdditiveWorth):
        table = worth_table(space, worth, agent)
    return Briefing(
        agent=agent,
        name=own.name,
        context=scenario.context,
        shared_data=scenario.shared_data,
        profile=profile,
        partners=tuple([partner for partner, _ in partners]),
        goals=side.goals,
        hints=side.hints,
        private_info=side.private_info,
        # Programs read the worth as data, models as the text that is part of ``head``.
        private_data=side.private_data
        if worth is None
        else {**side.private_data, "worth": worth.model_dump(mode="json")},
        recipients=recipients,
        head=_head(task, seat, profile, "\n".join([line for _, line in partners]), table),
        answer=f"{answer}\n{timing}" if timing else answer,
        timing=timing,
        protocol="" if spec is None else spec.protocol.kind,
        space=space,
        worth=worth,
        # The rules of claims contain the right answer, which no seat may see.
        rules=None if spec is None or isinstance(spec.protocol, ClaimsRules) else _public(spec.protocol),
        outline="" if spec is None else outline(spec, seat, task.names),
        facts=None if scenario.facts is None else scenario.facts.view(agent),
        game=_game(task, seat),
        worths=table,
        notes=task.notes.get(agent, ""),
        reads_worths=worths,
    )


def _public(rules: PublicRules) -> PublicRules:
    """The rules without the last round of a random ending."""
    return rules.public if rules.kind == "choices" else rules


def _game(task: Task, seat: int) -> Game | None:
    """The game of a task, with the payoffs of all seats where they are open, and else with the seat's own."""
    spec = task.scenario.outcome
    if spec is None or spec.protocol.kind != "choices":
        return None
    from sotopia_env.outcomes.games.game import game_of

    # One object for all seats and evaluators of a task, because it remembers what it has enumerated.
    whole: Game = task.memo.setdefault("game", game_of(spec.protocol, spec.worth))
    return whole if spec.protocol.payoffs == "open" else whole.seen_by(seat)


def _answer_form(task: Task, action_types: tuple[ActionType, ...]) -> str:
    """An answer with a move of the task's protocol, as JSON with … for the parts that the seat chooses."""
    # The form shows a type that can carry words and a move, if the seat may use one.
    kind = next((kind for kind in action_types if kind not in WORDLESS), ActionType.NONE)
    protocol = task.protocol
    if protocol is None or kind is ActionType.NONE:
        return f'{{"action_type": "{kind.value}", "argument": "…"}}'
    form, note = protocol.space.offer_form if protocol.kind == "agreement" else (_OTHER_MOVES[protocol.kind], "")
    if protocol.facts is not None and protocol.kind != "discussion":
        note = f"{note} (beside or in place of the move: {_OTHER_MOVES['discussion']})"
    return f'{{"action_type": "{kind.value}", "move": {escape(form)}, "argument": "…"}}{escape(note)}'


_OTHER_MOVES = {
    "ballot": '{"vote": "…"}',
    "claims": '{"claim": "…"}',
    "choices": '{"choose": "…"}',
    "roles": '{"vote": "…"}',
    "discussion": '{"state": {"…": "…"}}',
}


def _head(task: Task, seat: int, profile: str, others: str, table: WorthTable | None) -> str:
    """The briefing's text. Authors' texts, too, may hold control tokens of chat templates: each is escaped."""
    side, notes = task.scenario.seats[seat], task.notes.get(task.agents[seat], "")
    # Quoted: a model wrote them after it had read others' words.
    notes = f"\n  Your notes from before: {quote(notes)}" if notes else ""
    wishes = [f"{number}. {goal}" for number, goal in enumerate(side.goals, start=1)]
    wishes += [f"Hint: {hint}" for hint in side.hints]
    wishes += [f"Only you know: {side.private_info}"] if side.private_info else []
    return fill(
        briefing_text("briefing"),
        context=escape(_indent(task.scenario.context)),
        name=escape(task.characters[seat].name),
        profile=escape(profile),
        others=others,
        goals=escape("\n".join(f"  {wish}" for wish in wishes)) + notes,
        outcome=escape(_outcome_text(task, seat, table)),
    )


def _outcome_text(task: Task, seat: int, table: WorthTable | None) -> str:
    """The rules of the protocol, the facts that the seat may know and its own worth, in words."""
    spec, facts = task.scenario.outcome, task.scenario.facts
    text = "" if facts is None else _facts_text(task, facts.view(task.agents[seat]))
    if spec is None:
        return text
    # The rules read the same for every seat, the worth does not.
    if "rules text" not in task.memo:
        task.memo["rules text"] = _indent(describe_space(spec, task.names))
    worth = describe_worth(spec, seat, task.names, table)
    return f"\nWhat counts\n  {task.memo['rules text']}\n  {_indent(worth)}\n{text}"


def _facts_text(task: Task, facts: SeatFacts) -> str:
    return f"\nFacts\n  {_indent(describe_facts(facts, task.names))}\n"


def _indent(text: str) -> str:
    """Indents an author's text, so that none of its lines can be mistaken for a line of the briefing."""
    return "\n  ".join(text.splitlines())


def _partners(task: Task, seat: int) -> list[tuple[Partner, str]]:
    """The partners of ``seat``, each with the line of the briefing that describes it.

    Both are cached by the other seat and the relationship: 150 seats have 22,350 pairs.
    """
    entries: dict[tuple[int, str, str], tuple[Partner, str]] = task.memo.setdefault("partners", {})
    partners = []
    for other, relationship in task.relationships_of(seat):
        # The value of the kind, because hashing an enum member takes three times as long.
        key = (other, relationship.kind.value, relationship.backstory)
        entry = entries.get(key)
        if entry is None:
            partner = _acquaintance(task, other, relationship)
            entry = entries[key] = (partner, escape(f"  {partner.text}"))
        partners.append(entry)
    return partners


def _acquaintance(task: Task, other: int, relationship: Relationship) -> Partner:
    character, kind = task.characters[other], relationship.kind
    # Only disclosed fields are rendered, so that no other field can leak into the text.
    profile = describe(character, DISCLOSURE[kind])
    story = f" You two: {relationship.backstory}" if relationship.backstory else ""
    text = f"{character.name}: {_KIND_WORDS[kind]}.{' ' if profile else ''}{profile}{story}"
    return Partner(task.agents[other], character.name, kind, relationship.backstory, profile, text)


_KIND_WORDS: Mapping[RelationshipKind, str] = {
    RelationshipKind.FAMILY: "family",
    RelationshipKind.FRIEND: "a friend",
    RelationshipKind.ROMANTIC: "your romantic partner",
    RelationshipKind.ACQUAINTANCE: "an acquaintance",
    RelationshipKind.KNOW_BY_NAME: "known to you by name only",
    RelationshipKind.STRANGER: "a stranger",
}


def describe(character: Character, fields: tuple[str, ...]) -> str:
    """Returns the named fields of a profile in words, in a fixed order, and nothing of the other fields."""
    facts = [str(getattr(character, field)) for field in fields if field in _FACTS and getattr(character, field)]
    parts = [_describe_field(character, field) for field in fields if field not in _FACTS]
    return " ".join([*([f"{', '.join(facts)}."] if facts else []), *filter(None, parts)])


_FACTS = ("age", "gender", "occupation", "pronouns")
"""Fields whose values need no label."""
_LISTS = {"moral_foundations": "Morals", "schwartz_values": "Values"}


def _describe_field(character: Character, field: str) -> str:
    value = getattr(character, field)
    # 0 is a value, such as an age; empty texts and lists are not.
    if not value and value != 0:
        return ""
    match field:
        case "public_info" | "personality":
            return str(value)
        case "secret":
            return f"Secret: {value}"
        case "big_five":
            # Grouped by level, so that five traits take at most two clauses.
            traits: dict[str, list[str]] = {}
            for trait, level in value:
                traits.setdefault(str(level), []).append(str(trait))
            return "; ".join(f"{level} {', '.join(names)}" for level, names in traits.items()).capitalize() + "."
        case "public_attributes" | "private_attributes":
            return " ".join(f"{key}: {text}." for key, text in value.items())
        case "moral_foundations" | "schwartz_values":
            return f"{_LISTS[field]}: {', '.join(value)}."
        case _:
            return f"{field.replace('_', ' ').capitalize()}: {value}."
