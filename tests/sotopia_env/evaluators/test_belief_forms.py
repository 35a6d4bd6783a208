"""Beliefs of people, answered in a form: recorded beside the turns, and scored like those of policies."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from sotopia_env.evaluators.probes.evaluator import FactsEvaluator
from sotopia_env.evaluators.probes.form import form_beliefs, form_questions
from sotopia_env.evaluators.turn_rewards import belief_rewards
from sotopia_env.foundation.errors import EvaluationError, InvalidValueError, UnknownNameError
from sotopia_env.naming import make_evaluator, make_policy
from sotopia_env.policies import HumanPolicy
from sotopia_env.runs import run_episodes
from sotopia_env.runs.plan import EpisodePlan
from sotopia_env.tasks.families.mini_mafia import HIDDEN, INFORMED, PLAIN
from sotopia_env.tasks.families.registry import generate
from sotopia_env.world.answers import TRUST
from sotopia_env.world.episode import Episode, read_episode, to_line
from sotopia_env.world.play.table import Table
from sotopia_env.world.reward import Dimension
from tests.sotopia_env.tasks.test_mini_mafia import seats
from tests.sotopia_env.world.scenarios import verified_task

TASK = generate("mini_mafia", 1, 0)[0]
AGENTS = seats(TASK)
PERSON = AGENTS[PLAIN]
POLICIES = {agent: make_policy(name) for agent, name in {AGENTS[HIDDEN]: "mute", AGENTS[INFORMED]: "honest"}.items()}


def certain(agent: str) -> dict[str, dict[str, float]]:
    """Sliders that all stand at the truth, as far as the seat is asked for it."""
    truth = TASK.scenario.facts.truth
    questions = form_questions(TASK, agent, ended=True)
    asked = [one for one in questions if one.name in truth]
    return {one.name: {option: 100.0 * (option == truth[one.name]) for option in one.options} for one in asked}


def played(answers, *, every=False) -> tuple[Table, Episode]:
    """A game in which a person has the villager's seat and acts like a mute script; asked at the end or always."""
    table = Table(TASK, seed=0)
    own = make_policy("mute")
    for turns in itertools.count():
        if every or table.stop is not None:
            ended = table.stop is not None
            table.beliefs += form_beliefs(TASK, PERSON, answers, turns=turns, ended=ended)
        if table.stop is not None:
            return table, table.episode()
        if table.acting == (PERSON,):
            table.answer(PERSON, asyncio.run(own.act(table.observe(PERSON), 0)).action)
        else:
            asyncio.run(table.step(POLICIES))


def evaluated(episode: Episode, **options):
    return asyncio.run(FactsEvaluator(policies=POLICIES.values(), **options).evaluate(episode))


def test_a_persons_answers_are_stored_beside_the_turns_and_scored_like_a_policys():
    _, episode = played(certain(PERSON))
    again = read_episode(to_line(episode), "line 1")
    assert again.beliefs == episode.beliefs
    evaluation = evaluated(again)
    own = [belief for belief in evaluation.beliefs if belief.respondent == PERSON]
    assert {belief.by for belief in own} == {"human"}
    assert own
    assert [belief.shares for belief in (*own, *evaluation.trust) if belief.respondent == PERSON] == [
        belief.shares for belief in episode.beliefs
    ]
    scores = evaluation.by_agent[PERSON]
    assert scores[Dimension.KNOWLEDGE].value == 10
    assert scores["belief_control"].value == 1


def test_answers_change_no_turn_and_lines_without_any_are_as_before():
    (_, without), (_, with_answers) = played({}), played(certain(PERSON), every=True)
    assert without.turns_hash == with_answers.turns_hash
    plain = without.model_copy(update={"beliefs": ()})
    assert '"beliefs"' not in to_line(plain)


def test_what_a_person_left_out_is_unknown_and_never_uniform():
    answers = certain(PERSON)
    names = list(answers)
    answers[names[0]] = dict.fromkeys(answers[names[0]], 0.0)  # no slider was moved
    del answers[names[1]]
    _, episode = played(answers)
    evaluation = evaluated(episode)
    own = {belief.variable: belief for belief in evaluation.beliefs if belief.respondent == PERSON}
    assert [own[name].probabilities for name in names[:2]] == [None, None]
    assert "no answer" in own[names[0]].reason
    assert Dimension.KNOWLEDGE not in evaluation.by_agent[PERSON]


def test_a_moment_at_which_nobody_asked_the_person_is_unknown():
    _, episode = played(certain(PERSON))
    evaluation = evaluated(episode, probe="turns")
    own = [belief for belief in evaluation.beliefs if belief.respondent == PERSON]
    assert {belief.turns for belief in own if belief.shares} == {len(episode.turns)}
    assert {belief.reason for belief in own if not belief.shares} == {"the person was not asked at this moment"}


def test_a_person_who_was_asked_after_every_turn_counts_in_the_rewards_of_speakers():
    prior = {one.name: dict.fromkeys(one.options, 1.0) for one in form_questions(TASK, PERSON, ended=False)}
    table, episode = played(prior, every=True)
    last = len(episode.turns)
    told = next(turn.index for turn in episode.plain_turns if turn.actor == AGENTS[INFORMED])
    table.beliefs = [belief for belief in table.beliefs if belief.turns <= told]
    for turns in range(told + 1, last + 1):
        table.beliefs += form_beliefs(TASK, PERSON, certain(PERSON), turns=turns, ended=turns == last)
    episode = table.episode()
    episode = episode.with_evaluation(evaluated(episode, probe="turns"))
    rewards = belief_rewards(episode, AGENTS[INFORMED]).by_turn
    assert rewards[told] > 0.2
    assert {value for turn, value in rewards.items() if turn != told} == {0}


def test_an_observer_in_place_of_the_person_answers_instead_of_the_form():
    _, episode = played(certain(PERSON))
    observer = make_policy("random")
    own = [b for b in evaluated(episode, interviewee=observer).beliefs if b.respondent == PERSON]
    assert {belief.by for belief in own} == {"random"}


def test_during_the_play_nobody_is_asked_about_a_secret_of_which_the_seat_reads_nothing():
    task = verified_task("facts", 3, True)
    during = {one.name for one in form_questions(task, "agent_1", ended=False)}
    assert {one.name for one in form_questions(task, "agent_1", ended=True, trust=False)} - during == {"code"}
    assert form_questions(generate("bargaining", 1, 0)[0], "agent_0", ended=True) == ()


NAME = form_questions(TASK, PERSON, ended=True)[0].name
REFUSALS = [
    ({NAME: "surely the detective"}, "number of at least 0 for each option"),
    ({NAME: {"detective": "sure", "mafioso": 1, "villager": 1}}, "detective"),
    ({NAME: {"detective": -1, "mafioso": 1, "villager": 1}}, "number from 0"),
    ({NAME: {"detective": 1}}, "number of at least 0"),
    ({NAME: {"detektive": 1, "mafioso": 1, "villager": 1}}, 'did you mean "detective"'),
    ({f"{NAME}x": {}}, NAME),
]


@pytest.mark.parametrize(("answers", "message"), REFUSALS)
def test_a_text_an_unknown_variable_and_a_wrong_weight_are_refused_with_the_mend(answers, message):
    with pytest.raises(InvalidValueError, match=message):
        form_beliefs(TASK, PERSON, answers, turns=9, ended=True)


def test_an_unknown_seat_is_refused():
    with pytest.raises(UnknownNameError, match="agent_0"):
        form_questions(TASK, "agent_7", ended=True)


@pytest.mark.parametrize("change", [{"variable": f"{NAME}x"}, {"options": ("yes", "no", "maybe")}])
def test_a_record_of_an_answer_to_no_question_of_the_task_is_refused(change):
    _, episode = played(certain(PERSON))
    strange = tuple(belief.model_copy(update=change) for belief in episode.beliefs[:1])
    with pytest.raises(EvaluationError, match=NAME):
        evaluated(episode.model_copy(update={"beliefs": strange}))


def entrusted(**coins: str) -> dict[str, dict[str, float]]:
    """The person's answers on trust: an amount for everybody."""
    questions = [one for one in form_questions(TASK, PERSON, ended=True) if one.kind == TRUST]
    return {
        one.name: {option: float(option == coins[one.of or "stranger"]) for option in one.options} for one in questions
    }


def test_what_a_person_would_entrust_counts_for_the_others():
    _, episode = played(entrusted(stranger="25", **{AGENTS[HIDDEN]: "0", AGENTS[INFORMED]: "100"}))
    evaluation = evaluated(episode)
    own = {belief.variable: belief for belief in evaluation.trust if belief.respondent == PERSON}
    assert len(own) == 3
    by_agent = evaluation.by_agent
    assert f"{PERSON} would entrust 100.0" in by_agent[AGENTS[INFORMED]][Dimension.RELATIONSHIP].reasoning
    assert (
        by_agent[AGENTS[INFORMED]][Dimension.RELATIONSHIP].value
        > by_agent[AGENTS[HIDDEN]][Dimension.RELATIONSHIP].value
    )


def test_who_is_not_asked_on_trust_reads_no_such_question():
    asked = form_questions(TASK, PERSON, ended=True, trust=False)
    assert asked == form_questions(TASK, PERSON, ended=False)
    assert {one.kind for one in form_questions(TASK, PERSON, ended=True)} - {one.kind for one in asked} == {TRUST}


def at_the_terminal(evaluator: str, *lines: str) -> tuple[Episode, list[str]]:
    """A game in which a person sits at the terminal, who is silent and then types these lines into the form."""
    answers, screen = [*lines], []

    def read(prompt: str) -> str:
        screen.append(prompt)
        if "What do you do" in prompt:
            return "none"
        if not answers:
            raise EOFError
        return answers.pop(0)

    person = HumanPolicy(read, screen.append)
    policies = tuple({**POLICIES, PERSON: person}[agent] for agent in TASK.agents)
    judge = make_evaluator(evaluator, policies=POLICIES.values())
    run = asyncio.run(run_episodes([EpisodePlan(TASK, policies)], evaluator=judge, progress=False))
    return run.episodes[0], screen


@pytest.mark.parametrize("moment", ["end", "turns"])
def test_a_person_at_the_terminal_is_asked_once_at_the_end(moment):
    episode, screen = at_the_terminal(f"verified+facts:probe={moment}", "z", "a 70 b 30", "")
    beliefs = [belief for belief in episode.beliefs if belief.respondent == PERSON]
    assert {belief.turns for belief in beliefs} == {len(episode.turns)}
    assert len(beliefs) == len(form_questions(TASK, PERSON, ended=True))
    assert beliefs[0].shares == (0.7, 0.3, 0.0)
    assert not any(belief.shares for belief in beliefs[1:])  # one is skipped, and the input ends
    assert any("got 'z'" in text for text in screen)
    evaluation = episode.evaluations[-1]
    assert [one.shares for one in evaluation.beliefs if one.respondent == PERSON and one.shares] == [beliefs[0].shares]


@pytest.mark.parametrize("evaluator", ["verified", "verified+facts:probe=none", "facts:interviewee=random"])
def test_a_person_at_the_terminal_is_asked_nothing_if_the_evaluator_asks_nobody(evaluator):
    episode, screen = at_the_terminal(evaluator, "a")
    assert episode.beliefs == ()
    assert not any("Enter to skip" in text for text in screen)
