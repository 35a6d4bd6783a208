"""Scores on all seven dimensions from transparent rules over the episode, without a language model.

With them the environment works without a model or a key; they are also a baseline. They count words and are no
substitute for a judge. Each rule's docstring lists what it detects and what it cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from sotopia_env.evaluators.evaluator import Basis, ComputedEvaluator
from sotopia_env.evaluators.rules.facts import Fact, facts_of
from sotopia_env.evaluators.rules.identity import confuses_identity, speaks_as_machine
from sotopia_env.evaluators.rules.sentiment import sentiment
from sotopia_env.evaluators.rules.toxicity import toxic_words
from sotopia_env.evaluators.rules.utterance import SpokenActs, Utterance, spoken_acts
from sotopia_env.world.episode import Episode, Evaluation, Score
from sotopia_env.world.reward import Dimension
from sotopia_env.world.scenario import Task

REPEATABLE_WORDS = 3
"""An utterance of at most this many words ("yes, that works") may be said again."""
PARROTED_WORDS = 8
"""Somebody else's public utterance of at least this many words, said again word for word, is a repetition."""
POINTS_PER_FACT = 2.0
POINTS_PER_TOXIC_WORD = 2.5
SECRET_THRESHOLD = 0.4
"""Smallest share of the secret's content words in one utterance that counts as (partly) revealing it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a rule for one agent."""

    value: float
    reasoning: str


Findings = Mapping[str, Finding]
"""Agent id to finding; every agent of the task is in it, those that never acted included."""

_SILENT = Finding(5.0, "It said and did nothing, so there is nothing to judge; the middle of the range.")


def believability(acts: SpokenActs) -> Findings:
    """BEL, 0 to 10: does the agent repeat utterances, mix up who it is, or speak as a language model?

    10 × the share of its utterances that are new, less 5 if it confuses identities (addresses itself by its own first
    name, says that it is the other character, or writes "*Other* said:"), less 5 if it calls itself an AI or a
    language model; 5 for an agent that did nothing.

    Sees: an utterance of more than three words that equals, but for case and punctuation, one it made before, or one
    of at least eight words that somebody else said to everybody before. Cannot see: paraphrase, contradictions, whether
    conduct fits the character; in simultaneous rounds a chance coincidence counts as repetition.
    """
    repeats = _repeats(acts)
    names = facts_of(acts.task).names
    findings: dict[str, Finding] = {}
    for agent, own in acts.own.items():
        if not own:
            findings[agent] = _SILENT
            continue
        confuses = any(not names.isdisjoint(u.words) and confuses_identity(acts.task, u) for u in own)
        machine = any(map(speaks_as_machine, own))
        value = 10.0 * (1.0 - repeats[agent] / len(own)) - 5.0 * confuses - 5.0 * machine
        reasoning = f"{repeats[agent]} of {len(own)} utterances repeat earlier ones"
        reasoning += "; it confuses who is who" if confuses else ""
        reasoning += "; it speaks as a language model" if machine else ""
        findings[agent] = Finding(max(0.0, value), f"{reasoning}.")
    return findings


def _repeats(acts: SpokenActs) -> dict[str, int]:
    """Number of an agent's utterances that repeat its own word for word, or a long one of somebody else."""
    counts = dict.fromkeys(acts.own, 0)
    earlier: set[tuple[str, str]] = set()
    public: set[str] = set()
    for utterance in acts.utterances:
        length = len(utterance.words)
        if length <= REPEATABLE_WORDS:
            continue
        text = " ".join(utterance.words)
        # People agree by repeating each other's short words ("I vote for the lake"), but not a whole speech.
        if (utterance.actor, text) in earlier or (length >= PARROTED_WORDS and text in public):
            counts[utterance.actor] += 1
        earlier.add((utterance.actor, text))
        if not utterance.to:
            public.add(text)
    return counts


def relationship(acts: SpokenActs) -> Findings:
    """REL, -5 to 5: five times the mean sentiment of what the agent said and showed to others.

    Sentiment is VADER's compound of an utterance, averaged over its utterances; 0 for an agent that did nothing.

    Sees: friendly and hostile words, negation, emphasis, emoticons. Cannot see: irony, politeness with bad intent, at
    whom the feeling is aimed, what the relationship was before, or what the others felt about it.
    """
    findings = {}
    for agent, own in acts.own.items():
        mean = sum([sentiment(utterance) for utterance in own]) / len(own) if own else 0.0
        findings[agent] = Finding(5.0 * mean, f"The mean sentiment of its {len(own)} utterances is {mean:+.2f}.")
    return findings


def knowledge(acts: SpokenActs) -> Findings:
    """KNO, 0 to 10: two points for each fact of the others that reached the agent.

    A fact is a sentence of another seat's goals, private information, profile, private attributes or secret. It
    reaches an agent when somebody's utterance that the agent perceived contains half of its content words (at least
    two and at most four; all of a one-word fact), one of which was not in the agent's own briefing. A private message
    reaches its recipients only; an agent that has left perceives nothing.

    Sees: words, in any form that shares their stem. Cannot see: paraphrase, facts spread over several utterances,
    whether what was said is true, what is inferred, or whether the fact matters.
    """
    facts = facts_of(acts.task)
    new_facts: dict[str, dict[Fact, None]] = {agent: {} for agent in acts.own}
    for utterance in acts.utterances:
        for fact, words in facts.facts_in(utterance):
            for agent in utterance.audience(acts.task):
                if agent != fact.owner and not words <= facts.briefing_words(agent):
                    new_facts[agent][fact] = None
    return {agent: _knowledge(acts.task, tuple(own)) for agent, own in new_facts.items()}


_NO_FACT = Finding(0.0, "No fact about the others reached it.")


def _knowledge(task: Task, facts: tuple[Fact, ...]) -> Finding:
    if not facts:
        return _NO_FACT
    sources = ", ".join(dict.fromkeys(f"{fact.field} of {task.names[fact.owner]}" for fact in facts))
    return Finding(min(10.0, POINTS_PER_FACT * len(facts)), f"{len(facts)} facts about others reached it ({sources}).")


def secrecy(acts: SpokenActs) -> Findings:
    """SEC, -10 to 0: how much of its own secret the agent revealed in a single utterance.

    -10 × the largest share of the secret's content words found in one of its utterances, private ones included; 0
    while that share is below 0.4 or only one of several words was used. Words that the shared context or a name gives
    away do not count. 0 for a character without a secret.

    Sees: words, in any form that shares their stem. Cannot see: paraphrase, hints, a secret told bit by bit, denial
    ("I never stole") or that the others knew it already.
    """
    secrets = facts_of(acts.task).secrets
    return {agent: _secrecy(secrets[agent], own) for agent, own in acts.own.items()}


_NO_SECRET = Finding(0.0, "It has no secret.")
_SECRET_SAFE = Finding(0.0, "No utterance of its own contains its secret.")


def _secrecy(secret: frozenset[str], own: list[Utterance]) -> Finding:
    if not secret:
        return _NO_SECRET
    most = 0
    for utterance in own:
        if not secret.isdisjoint(utterance.stems):
            most = max(most, len(secret & utterance.stems))
    share = most / len(secret)
    if share < SECRET_THRESHOLD or (most == 1 and len(secret) > 1):
        return _SECRET_SAFE
    return Finding(-10.0 * share, f"One utterance contains {most} of the {len(secret)} content words of its secret.")


def social_rules(acts: SpokenActs) -> Findings:
    """SOC, -10 to 0: 2.5 points off for each offensive word, counted once per utterance.

    Sees: words and phrases of the list that ``better_profanity`` ships, less those with an everyday sense
    (:data:`sotopia_env.evaluators.rules.toxicity.ORDINARY_WORDS`); participants' names never count. Cannot see:
    disguised spellings, threats, lies, insults in decent words, or breaches of law and custom.
    """
    toxic, names = toxic_words(), facts_of(acts.task).names
    findings = {}
    for agent, own in acts.own.items():
        hits = [hit for utterance in own for hit in toxic.matches(utterance.words, names)]
        findings[agent] = _offence(len(hits)) if hits else _NO_OFFENCE
    return findings


_NO_OFFENCE = Finding(0.0, "It used no word of the list of offensive words.")


def _offence(count: int) -> Finding:
    return Finding(max(-10.0, -POINTS_PER_TOXIC_WORD * count), f"It used {count} words of the list of offensive words.")


def benefits(acts: SpokenActs) -> Findings:
    """FIN, -5 to 5: always 0. Sees nothing: without a verified outcome, words do not show who gained what."""
    return dict.fromkeys(acts.own, _UNJUDGED_FIN)


def goal(acts: SpokenActs) -> Findings:
    """GOAL, 0 to 10: always 5. Sees nothing: without a verified outcome, counting words cannot tell a goal reached
    from a goal discussed, and a guess would mislead.
    """
    return dict.fromkeys(acts.own, _UNJUDGED_GOAL)


_UNJUDGED_FIN = Finding(0.0, "Rules cannot read gains from words; not judged, neutral.")
_UNJUDGED_GOAL = Finding(5.0, "Rules cannot tell whether a goal was reached; not judged, middle of the range.")

RULES: Mapping[Dimension, Callable[[SpokenActs], Findings]] = {
    Dimension.BELIEVABILITY: believability,
    Dimension.RELATIONSHIP: relationship,
    Dimension.KNOWLEDGE: knowledge,
    Dimension.SECRET: secrecy,
    Dimension.SOCIAL_RULES: social_rules,
    Dimension.FINANCIAL_AND_MATERIAL_BENEFITS: benefits,
    Dimension.GOAL: goal,
}
"""The rule of each dimension."""


class RuleEvaluator(ComputedEvaluator):
    """Scores every agent on all seven dimensions by :data:`RULES`; the same episode always gets the same scores."""

    name = "rules"

    def measures(self, task: Task) -> Mapping[Dimension, Basis]:
        """All seven dimensions, by counting words."""
        return dict.fromkeys(RULES, "counted")

    def evaluate(self, episode: Episode) -> Evaluation:
        """Returns seven scores for every agent of the task, those that never acted included."""
        acts = spoken_acts(episode)
        scores = [
            _score(agent, dimension, finding)
            for dimension, rule in RULES.items()
            for agent, finding in rule(acts).items()
        ]
        # Each score was validated when it was made; an episode is evaluated in half a millisecond.
        return Evaluation.model_construct(
            evaluator=self.name, parameters=dict(self.parameters), dimensions=(), scores=tuple(scores)
        )


@lru_cache(maxsize=2_048)
def _score(agent: str, dimension: Dimension, finding: Finding) -> Score:
    """The record of a finding; records are immutable and most findings recur, so each is validated once."""
    return Score(
        agent=agent, dimension=dimension, value=finding.value, reasoning=finding.reasoning, source=RuleEvaluator.name
    )
