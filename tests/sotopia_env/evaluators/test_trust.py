"""Relationship as what the others would entrust to a seat, against a stranger: by scripts, models, and nobody."""

from __future__ import annotations

import asyncio
import json

import pytest

from sotopia_env import Table, tasks
from sotopia_env.evaluators.evaluator import measures
from sotopia_env.evaluators.probes.evaluator import FactsEvaluator
from sotopia_env.evaluators.probes.trust import trust_in
from sotopia_env.naming import make_evaluator, make_policy
from sotopia_env.policies import LLMPolicy
from sotopia_env.tasks.families.mini_mafia import HIDDEN, INFORMED, PLAIN
from sotopia_env.testing import ScriptedChatModel
from sotopia_env.world.answers import ENTRUSTED, TRUST, BeliefReply, entrusting
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.episode import Episode, Evaluation
from sotopia_env.world.reward import Dimension
from tests.sotopia_env.evaluators.test_probes import game, scores
from tests.sotopia_env.interviewed import question_of
from tests.sotopia_env.world.scenarios import play, say, verified_task

REL = Dimension.RELATIONSHIP


def trust_after(*actions) -> tuple[dict[str, float], Evaluation]:
    """The relationship scores of three honest seats: a wolf, a seer who knows all roles, and a sheep."""
    state = play(verified_task("facts", 3, True), Rules(max_turns=12, max_silent_turns=0), *actions)
    evaluator = FactsEvaluator(interviewee=make_policy("honest"))
    evaluation = asyncio.run(evaluator.evaluate(Episode.of_state(state)))
    return {agent: scores(evaluation, agent)[REL] for agent in state.task.agents}, evaluation


@pytest.mark.parametrize("share", [0, 0.2, 1 / 3, 0.5, 0.99, 1])
def test_the_amounts_have_the_mean_that_is_meant(share):
    probabilities = entrusting(share)
    assert sum(probabilities.values()) == pytest.approx(1)
    assert sum(int(option) * part for option, part in probabilities.items()) == pytest.approx(100 * share)
    assert tuple(probabilities) == ENTRUSTED


VOTES = [say(vote="lake"), say(vote="zoo"), say(vote="lake")]
COURSES = [
    # Nothing was said: everybody is a stranger.
    ([say()], (0, 0, 0)),
    # The wolf says what the seer knows to be false; the sheep cannot tell. 5 · ((1/3 - 1/2) + 0) / 2
    ([say(state={"role of seat 0": "seer"})], (-5 / 12, 0, 0)),
    ([say(state={"role of seat 0": "wolf"})], (5 / 12, 0, 0)),
    # Two lies weigh more than one, the same lie twice does not.
    ([say(state={"role of seat 0": "seer"}), say(), say()] * 2, (-5 / 12, 0, 0)),
    ([say(state={"role of seat 0": "seer", "role of seat 1": "wolf"})], (5 * (1 / 4 - 1 / 2) / 2, 0, 0)),
    # A private lie costs the trust of its recipient alone, and a lie that is refuted later was a lie all the same.
    ([say("Psst.", "agent_1", state={"role of seat 2": "wolf"})], (-5 / 12, 0, 0)),
    ([say(state={"hour": "one"}), say(), say()], (0, 0, 0)),
    ([say(state={"hour": "one"}), say(), say(), say(show="hour")], (0, 0, 0)),
    # A promise is compared with the vote, which all see when the ballot closes.
    ([say(), say(state={"vote of seat 1": "zoo"}), say(), *VOTES], (0, 5 * (2 / 3 - 1 / 2), 0)),
    ([say(), say(state={"vote of seat 1": "lake"}), say(), *VOTES], (0, 5 * (1 / 3 - 1 / 2), 0)),
    ([say(), say(state={"vote of seat 1": "lake"})], (0, 0, 0)),
]


@pytest.mark.parametrize(("actions", "expected"), COURSES)
def test_trust_follows_from_what_a_seat_has_witnessed_and_can_check(actions, expected):
    values, evaluation = trust_after(*actions)
    assert tuple(values.values()) == pytest.approx(expected)
    assert "would entrust" in evaluation.by_agent["agent_0"][REL].reasoning


@pytest.mark.parametrize("script", ["honest", "oracle", "promiser"])
def test_in_games_scripts_trust_by_what_was_chosen(script):
    task = tasks.family("dilemma").generate(0, 0, "easy")  # a prisoner's dilemma of five rounds
    policies = {"agent_0": make_policy("cheater"), "agent_1": make_policy("cooperator")}
    table = Table(task, Rules(), seed=0)
    asyncio.run(table.play(policies))
    evaluator = FactsEvaluator(interviewee=make_policy(script))
    evaluation = asyncio.run(evaluator.evaluate(table.episode()))
    values = {agent: scores(evaluation, agent)[REL] for agent in task.agents}
    # Five rounds without and with co-operation: 1/7 and 6/7, less the 1/2 of a stranger.
    assert values == {"agent_0": pytest.approx(5 * (1 / 7 - 1 / 2)), "agent_1": pytest.approx(5 * (6 / 7 - 1 / 2))}


def test_a_liar_caught_out_is_trusted_less_than_a_stranger_and_the_honest_one_more():
    for seed in range(6):
        episode, agents = game(("deceiver", "honest", "bayesian"), seed)
        shares = trust_in(episode.task, agents[HIDDEN], episode.evaluation().trust).shares
        liar, stranger = shares[agents[INFORMED]]
        assert (liar, stranger) in ((pytest.approx(1 / 5), 0.5), (pytest.approx(2 / 5), 0.5))
        # The villager catches the liar only where it is accused itself; else the lie wins its trust.
        assert shares[agents[PLAIN]][0] == pytest.approx(2 / 3 if liar == pytest.approx(2 / 5) else 1 / 4)
        # Both know of one true statement of the detective: that about themselves.
        assert scores(episode.evaluation(), agents[INFORMED])[REL] == pytest.approx(5 * (2 / 3 - 1 / 2))


def test_who_does_not_answer_is_left_out_and_without_anybody_there_is_no_score():
    episode, agents = game(("random", "silent", "silent"))
    evaluation = episode.evaluation()
    assert REL not in scores(evaluation, agents[HIDDEN])
    assert f"relationship: nobody said what they would entrust to {agents[HIDDEN]}" in evaluation.comment
    assert "states no beliefs" in evaluation.comment
    only = evaluation.by_agent[agents[INFORMED]][REL]
    assert only.value == 0, "a uniform answer is the same for everybody"
    assert f"{agents[PLAIN]} gave no answer" in only.reasoning


class Grudge:
    """Entrusts nothing to one agent, and all to a stranger."""

    name, parameters = "grudge", {}

    def __init__(self, agent: str) -> None:
        self.agent = agent

    def believe(self, observation, variables, seed, samples):
        return [
            BeliefReply(entrusting(float(one.of != self.agent))) if one.kind == TRUST else BeliefReply(reason="none")
            for one in variables
        ]


def test_the_score_has_the_range_of_its_dimension():
    episode, agents = game(("mute", "mute", "mute"))
    evaluation = asyncio.run(FactsEvaluator(interviewee=Grudge(agents[PLAIN])).evaluate(episode))
    assert scores(evaluation, agents[PLAIN])[REL] == -5
    assert scores(evaluation, agents[HIDDEN])[REL] == 0
    assert {belief.turns for belief in evaluation.trust} == {len(episode.turns)}
    assert not {belief.variable for belief in evaluation.trust} & {belief.variable for belief in evaluation.beliefs}


def test_a_model_is_asked_a_closed_question_by_name():
    episode, agents = game(("mute", "mute", "mute"))
    target = episode.task.names[agents[HIDDEN]]

    def reply(request):
        text = request.messages[-1]["content"]
        options = question_of(text)
        amount = "75" if f"entrust to {target}" in text else "25"
        return json.dumps({"answer": next((key for key, option in options.items() if option == amount), "A")})

    model = LLMPolicy(ScriptedChatModel(reply, name="local/m"))
    evaluation = asyncio.run(FactsEvaluator(interviewee=model, samples=2).evaluate(episode))
    assert scores(evaluation, agents[HIDDEN])[REL] == pytest.approx(2.5)
    assert scores(evaluation, agents[PLAIN])[REL] == 0


def test_trust_is_asked_for_at_the_end_unless_it_is_switched_off():
    episode, _ = game(("deceiver", "honest", "bayesian"), probe="turns")
    policies = [make_policy(name) for name in ("deceiver", "honest", "bayesian")]
    bare = make_evaluator("facts:probe=turns,trust=false", policies=policies)
    evaluation = asyncio.run(bare.evaluate(episode))
    assert evaluation.trust == ()
    assert "nobody was asked what they would entrust" in evaluation.comment
    assert evaluation.beliefs == episode.evaluation().beliefs
    assert REL not in measures(bare, episode.task)
    assert measures(make_evaluator("facts"), episode.task)[REL] == "elicited"
    line = Episode.model_validate_json(episode.model_dump_json())
    assert line.evaluation().trust == episode.evaluation().trust != ()
