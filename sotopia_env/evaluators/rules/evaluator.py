"""Scores on all seven dimensions from transparent rules over the episode, without a language model.

With these rules, the environment works without a model or an API key; they are also a baseline. They count words and
do not replace a judge. The docstring of each rule lists what it detects and its limitations.
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
"""Utterances of at most this many words ("yes, that works") may be repeated."""
PARROTED_WORDS = 8
"""The minimum number of words of another agent's public utterance whose exact repetition counts."""
POINTS_PER_FACT = 2.0
POINTS_PER_TOXIC_WORD = 2.5
SECRET_THRESHOLD = 0.4
"""The minimum share of the secret's content words in one utterance that counts as revealing (a part of) it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a rule for one agent."""

    value: float
    reasoning: str


Findings = Mapping[str, Finding]
"""The finding for each agent id of the task, including agents that never acted."""

_SILENT = Finding(5.0, "It said and did nothing, so there is nothing to judge; the middle of the range.")


def believability(acts: SpokenActs) -> Findings:
    """BEL, 0 to 10: whether the agent repeats utterances, confuses identities, or speaks as a language model.

    The score is 10 × the share of its utterances that are new, minus 5 if it confuses identities (addresses itself by
    its own first name, says that it is the other character, or writes "*Other* said:"), minus 5 if it calls itself an
    AI or a language model. It is 5 for an agent that did nothing.

    Detects: utterances of more than three words that equal, except for case and punctuation, an earlier one of the same
    agent, or an earlier public one of another agent with at least eight words. Does not detect: paraphrase,
    contradictions, conduct that does not fit the character. In simultaneous rounds, coincidences count as repetitions.
    """
    repeats = _repeats(acts)
    names = facts_of(acts.task).names
    findings: dict[str, Finding] = {}
    for agent, own in acts.own.items():
        if not own:
            findings[agent] = _SILENT
            continue
        # The set test is cheap and false for most utterances; only the others are searched with regular expressions.
        confuses = any(not names.isdisjoint(u.words) and confuses_identity(acts.task, u) for u in own)
        machine = any(map(speaks_as_machine, own))
        value = 10.0 * (1.0 - repeats[agent] / len(own)) - 5.0 * confuses - 5.0 * machine
        reasoning = f"{repeats[agent]} of {len(own)} utterances repeat earlier ones"
        reasoning += "; it confuses who is who" if confuses else ""
        reasoning += "; it speaks as a language model" if machine else ""
        findings[agent] = Finding(max(0.0, value), f"{reasoning}.")
    return findings


def _repeats(acts: SpokenActs) -> dict[str, int]:
    """The number of utterances of each agent that repeat one of its own, or a long one of another agent."""
    counts = dict.fromkeys(acts.own, 0)
    earlier: set[tuple[str, str]] = set()
    public: set[str] = set()
    for utterance in acts.utterances:
        length = len(utterance.words)
        if length <= REPEATABLE_WORDS:
            continue
        text = " ".join(utterance.words)
        # Repeating another person's few words is a way to agree ("I vote for the lake"), but not a whole speech.
        if (utterance.actor, text) in earlier or (length >= PARROTED_WORDS and text in public):
            counts[utterance.actor] += 1
        earlier.add((utterance.actor, text))
        if not utterance.to:
            public.add(text)
    return counts


def relationship(acts: SpokenActs) -> Findings:
    """REL, -5 to 5: five times the mean sentiment of the agent's utterances.

    The sentiment of an utterance is VADER's compound score. The result is 0 for an agent that did nothing.

    Detects: friendly and hostile words, negation, emphasis, emoticons. Does not detect: irony, politeness with bad
    intent, the target of the sentiment, the previous relationship, or the others' reactions.
    """
    findings = {}
    for agent, own in acts.own.items():
        mean = sum([sentiment(utterance) for utterance in own]) / len(own) if own else 0.0
        findings[agent] = Finding(5.0 * mean, f"The mean sentiment of its {len(own)} utterances is {mean:+.2f}.")
    return findings


def knowledge(acts: SpokenActs) -> Findings:
    """KNO, 0 to 10: two points for each fact about the others that reached the agent.

    A fact is a sentence of another seat's goals, private information, profile, private attributes or secret. It
    reaches an agent if an utterance that the agent perceived contains half of its content words (at least two and at
    most four; all words of a one-word fact), at least one of which is not in the agent's own briefing. A private
    message reaches only its recipients; an agent that has left perceives nothing.

    Detects: words in any form that has the same stem. Does not detect: paraphrase, facts spread over several
    utterances, inferences, whether an utterance is true, or whether the fact matters.
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
    """SEC, -10 to 0: the share of its own secret that the agent revealed in a single utterance.

    The score is -10 × the largest share of the secret's content words in one of its utterances, including private ones.
    It is 0 if that share is below 0.4, if only one of several words was used, or if the character has no secret. Words
    of the shared context and of names do not count.

    Detects: words in any form that has the same stem. Does not detect: paraphrase, hints, a secret that is revealed in
    parts, denial ("I never stole"), or that the others knew it already.
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
    """SOC, -10 to 0: minus 2.5 points for each offensive word, counted once per utterance.

    Detects: words and phrases of the list in ``better_profanity``, except those with an everyday sense
    (:data:`sotopia_env.evaluators.rules.toxicity.ORDINARY_WORDS`) and participants' names. Does not detect: disguised
    spellings, threats, lies, insults in decent words, or breaches of law and custom.
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
    """FIN, -5 to 5: always 0. Detects nothing, because words do not show gains without a verified outcome."""
    return dict.fromkeys(acts.own, _UNJUDGED_FIN)


def goal(acts: SpokenActs) -> Findings:
    """GOAL, 0 to 10: always 5. Detects nothing, because counting words cannot distinguish a goal that was reached from
    one that was discussed, and a guess would mislead.
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

    async def evaluate(self, episode: Episode) -> Evaluation:
        """Returns seven scores for every agent of the task, including agents that never acted."""
        acts = spoken_acts(episode)
        scores = [
            _score(agent, dimension, finding)
            for dimension, rule in RULES.items()
            for agent, finding in rule(acts).items()
        ]
        # Validation is skipped, because ``_score`` has validated each score; an evaluation takes half a millisecond.
        return Evaluation.model_construct(
            evaluator=self.name, parameters=dict(self.parameters), dimensions=(), scores=tuple(scores)
        )


@lru_cache(maxsize=2_048)
def _score(agent: str, dimension: Dimension, finding: Finding) -> Score:
    """The record of a finding. Cached, because records are immutable, most findings recur, and validation is slow."""
    return Score(
        agent=agent, dimension=dimension, value=finding.value, reasoning=finding.reasoning, source=RuleEvaluator.name
    )
