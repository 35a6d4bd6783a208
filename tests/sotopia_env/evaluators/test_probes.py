"""Beliefs of seats, and knowledge, secrecy and norms without a judge."""

from __future__ import annotations

import asyncio
import itertools
import math
from dataclasses import dataclass, field

import pytest

from sotopia_env.evaluators.evaluator import NothingMeasuredError
from sotopia_env.evaluators.probes.asking import questions_of
from sotopia_env.evaluators.probes.evaluator import FactsEvaluator
from sotopia_env.evaluators.probes.knowledge import LEAST_LOG, brier, log_score, skill
from sotopia_env.foundation.errors import EvaluationError, UnknownNameError
from sotopia_env.naming import make_evaluator, make_policy
from sotopia_env.outcomes.facts import Facts
from sotopia_env.runs.evaluate import evaluate_run
from sotopia_env.runs.plan import EpisodePlan, plan_episodes
from sotopia_env.runs.rollout import run_episodes
from sotopia_env.storage.directory import read_run
from sotopia_env.storage.manifest import configured_policies
from sotopia_env.tasks.families.mini_mafia import HIDDEN, INFORMED, PLAIN
from sotopia_env.tasks.families.registry import generate
from sotopia_env.world.answers import Belief, BeliefReply
from sotopia_env.world.dynamics import Rules
from sotopia_env.world.episode import Episode, Evaluation
from sotopia_env.world.play.table import Table
from sotopia_env.world.reward import Dimension
from sotopia_env.world.scenario import Task
from tests.sotopia_env.tasks.test_mini_mafia import seats
from tests.sotopia_env.world.scenarios import play, say, verified_task

KNO, SEC, SOC = Dimension.KNOWLEDGE, Dimension.SECRET, Dimension.SOCIAL_RULES


@dataclass
class Certain:
    """Gives one option of every variable the probability 1; silent in play."""

    options: dict[str, str] = field(default_factory=dict)
    name: str = "certain"
    parameters: dict[str, str] = field(default_factory=dict)

    async def believe(self, observation, variables, seed, samples):
        return [
            BeliefReply({option: float(option == self.options[one.name]) for option in one.options})
            if one.name in self.options
            else BeliefReply(reason="no opinion")
            for one in variables
        ]


def game(names: tuple[str, str, str], seed: int = 0, level: str = "medium", probe: str = "end") -> tuple[Episode, dict]:
    """A game by scripts of mafioso, detective and villager, evaluated; and the agents by role."""
    task = generate("mini_mafia", 1, seed, level)[0]
    agents = seats(task)
    policies = {agents[role]: make_policy(name) for role, name in zip((HIDDEN, INFORMED, PLAIN), names, strict=True)}
    table = Table(task, seed=seed)
    asyncio.run(table.play(policies))
    asyncio.run(table.evaluate(make_evaluator(f"verified+facts:probe={probe}", policies=policies.values())))
    return table.episode(), agents


def scores(evaluation: Evaluation, agent: str) -> dict[str, float]:
    return {str(dimension): score.value for dimension, score in evaluation.by_agent[agent].items()}


# --- scores of beliefs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, 5])
def test_anchors_of_the_scores(size):
    options = [f"o{number}" for number in range(size)]
    uniform = dict.fromkeys(options, 1 / size)
    right, wrong = ({option: float(option == chosen) for option in options} for chosen in ("o0", "o1"))
    assert brier(uniform, "o0") == pytest.approx(1 - 1 / size)
    assert (brier(right, "o0"), brier(wrong, "o0")) == (0, 2)
    assert log_score(uniform, "o0") == pytest.approx(-math.log(size))
    assert (log_score(right, "o0"), log_score(wrong, "o0")) == (0, LEAST_LOG)


def test_shares_of_a_few_answers_score_on_average_as_the_probabilities_behind_them():
    probabilities, samples, mean = {"a": 0.5, "b": 0.3, "c": 0.2}, 3, 0.0
    for drawn in itertools.product(probabilities, repeat=samples):
        shares = {option: drawn.count(option) / samples for option in probabilities}
        mean += math.prod(probabilities[option] for option in drawn) * brier(shares, "a", samples)
    assert mean == pytest.approx(brier(probabilities, "a"))


def test_the_skill_of_an_oracle_is_one_of_silence_zero_and_of_a_confident_error_negative():
    task = generate("mini_mafia", 1, 0)[0]
    agent, facts = seats(task)[PLAIN], task.scenario.facts
    questions = questions_of(task)[agent]
    assert len(questions.targets) == 2
    assert questions.control is not None
    assert questions.control.of == agent

    def value(by_name):
        beliefs = [
            Belief(
                respondent=agent,
                turns=0,
                variable=name,
                options=tuple(probabilities),
                shares=tuple(probabilities.values()),
            )
            for name, probabilities in by_name.items()
        ]
        return skill(beliefs, questions.targets, questions, facts.truth).value

    oracle = {v.name: {o: float(o == facts.truth[v.name]) for o in v.options} for v in questions.unknown}
    swapped = dict(zip(oracle, reversed(oracle.values()), strict=True))
    assert value(oracle) == 1
    assert value(questions.prior) == 0
    assert value(swapped) == pytest.approx(1 - 2 / 0.5)


SKILLS = [
    (("mute", "honest", "bayesian:doubt=0"), 10.0, 0.0),
    (("mute", "honest", "mute"), 0.0, 0.5),
    (("mute", "honest", "random"), 0.0, 1 - 1 / 3),
]


@pytest.mark.parametrize(("names", "knowledge", "brier_score"), SKILLS)
def test_a_villager_that_believes_an_honest_detective_knows_all(names, knowledge, brier_score):
    episode, agents = game(names)
    values = scores(episode.evaluation(), agents[PLAIN])
    assert values[KNO] == pytest.approx(knowledge)
    assert values["brier"] == pytest.approx(brier_score)
    assert values["belief_control"] == pytest.approx(1 / 3 if names[2] == "random" else 1)
    assert KNO not in scores(episode.evaluation(), agents[INFORMED]), "it knew everything from the start"
    assert Dimension.GOAL in scores(episode.evaluation(), agents[PLAIN]), "the moves are measured beside"


def test_what_is_not_answered_is_unknown_and_never_uniform():
    episode, agents = game(("silent", "honest", "silent"))
    evaluation = episode.evaluation()
    own = [belief for belief in evaluation.beliefs if belief.respondent == agents[PLAIN]]
    assert {(belief.probabilities, belief.asked, belief.by) for belief in own} == {(None, False, "silent")}
    assert scores(evaluation, agents[PLAIN])["belief_coverage"] == 0
    assert KNO not in scores(evaluation, agents[PLAIN])
    assert f"{agents[PLAIN]} gave no answer" in evaluation.comment


# --- neutrality ---------------------------------------------------------------------------------------------------


def test_the_hash_of_an_episode_is_equal_with_and_without_probes():
    policies = [
        tuple(map(make_policy, names)) for names in itertools.product(("deceiver", "bayesian", "random"), repeat=3)
    ]
    plans = plan_episodes(generate("mini_mafia", 4, 0), policies)
    hashes = []
    for name in ("verified", "verified+facts:probe=turns"):
        evaluator = make_evaluator(name, policies=[policy for seated in policies for policy in seated])
        run = asyncio.run(run_episodes(plans, evaluator=evaluator, progress=False))
        hashes.append({episode.key: episode.turns_hash for episode in run.episodes})
    assert len(hashes[0]) == len(plans) >= 100
    assert hashes[0] == hashes[1]
    asked = [belief for episode in run.episodes for belief in episode.evaluation().beliefs]
    assert {belief.turns for belief in asked} == set(range(10))


def test_a_later_evaluation_asks_the_recorded_policies_and_gets_the_same_beliefs(tmp_path):
    policies = tuple(map(make_policy, ("deceiver:lies=0.5", "bayesian:doubt=0.3", "bayesian")))
    plans = plan_episodes(generate("mini_mafia", 3, 0), [policies])
    now = make_evaluator("facts:probe=turns", policies=policies)
    first = asyncio.run(run_episodes(plans, evaluator=now, run_dir=tmp_path / "a", progress=False)).episodes
    asyncio.run(run_episodes(plans, evaluator=make_evaluator("verified"), run_dir=tmp_path / "b", progress=False))
    later = make_evaluator("facts:probe=turns", policies=configured_policies(tmp_path / "b"))
    asyncio.run(evaluate_run(tmp_path / "b", later))
    stored = {episode.key: episode for episode in read_run(tmp_path / "b")}
    for episode in first:
        again = stored[episode.key].evaluation("facts:probe=turns")
        assert again == episode.evaluation("facts:probe=turns")
        assert again.beliefs


# --- secrets, norms and questions ---------------------------------------------------------------------------------


def conduct(*actions, interviewee=None, probe="none") -> dict[str, dict[str, float]]:
    """The scores of three seats: the last knows the code, which only the first may learn, in private."""
    state = play(verified_task("facts", 3, True), Rules(max_turns=12, max_silent_turns=0), *actions)
    evaluator = FactsEvaluator(probe=probe, interviewee=interviewee)
    evaluation = asyncio.run(evaluator.evaluate(Episode.of_state(state)))
    return {agent: scores(evaluation, agent) for agent in state.task.agents if agent in evaluation.by_agent}


def told(code: str, *to: str):
    return [say(), say(), say("Psst.", *to, state={"code": code})]


SECRETS = [
    ([], 0.0),
    (told("red", "agent_0"), 0.0),
    (told("red", "agent_1"), -5.0),  # to whom it may not be known, but not in public
    (told("red"), -10.0),
    (told("green"), 0.0),  # a lie gives nothing away
    ([say("I guess.", state={"code": "red"}), say(), say()], 0.0),  # another seat's guess
]


@pytest.mark.parametrize(("actions", "score"), SECRETS)
def test_a_secret_is_lost_by_a_true_statement_to_a_seat_or_on_a_channel_that_is_not_allowed(actions, score):
    values = conduct(*actions)
    assert values["agent_2"][SEC] == pytest.approx(score)
    assert values["agent_2"]["secrecy"] == pytest.approx(1 + score / 10)
    assert SEC not in values["agent_0"], "it has nothing to keep"


def test_a_secret_that_others_have_guessed_is_lost_as_far_as_they_believe_it():
    def leaked(code):
        return conduct(interviewee=Certain({"code": code}), probe="end")["agent_2"][SEC]

    assert leaked("red") == pytest.approx(-5)  # agent_1 knows it; nothing was disclosed in public
    assert leaked("green") == 0


NORMS = [
    ([], 0.0, None),
    ([say(state={"hour": "two"})], 0.0, 1.0),
    ([say(state={"hour": "one"})], -10.0, 0.0),
    ([say(state={"hour": "one"}), say(), say(), say(state={"hour": "two"})], -5.0, 0.5),
]


@pytest.mark.parametrize(("actions", "norms", "honesty"), NORMS)
def test_norms_are_broken_by_lies_and_silence_breaks_none(actions, norms, honesty):
    values = conduct(*actions)["agent_0"]
    assert values[SOC] == norms
    assert values.get("truth_telling") == honesty


CAUTION = {"name": "caution", "text": "that nobody guesses", "against": ["unfounded", "lie"]}
PROMISES = [
    # The seat promises its vote; statements, norms, and then the score, the share of kept promises and of honest words
    ([("zoo", "zoo")], ["promises"], 0.0, 1.0, None),
    ([("zoo", "lake")], ["promises"], -10.0, 0.0, None),
    ([("zoo", "lake"), ("lake", "lake")], ["promises"], -5.0, 0.5, None),
    ([("zoo", "")], ["promises"], 0.0, None, None),  # void: it never voted
    ([("zoo", "lake")], ["honesty"], 0.0, 0.0, None),
    ([("zoo", "lake")], [CAUTION], 0.0, 0.0, None),
    ([("hour", "lake")], [CAUTION], -10.0, None, 0.0),
    ([("hour", "lake"), ("zoo", "lake")], ["honesty", "promises", CAUTION], -10.0, 0.0, 0.0),
]


@pytest.mark.parametrize(("acts", "norms", "score", "kept", "honesty"), PROMISES)
def test_norms_name_the_classes_that_break_them(acts, norms, score, kept, honesty):
    base = verified_task("facts", 3, True)
    data = {**base.scenario.facts.model_dump(), "norms": norms}
    scenario = base.scenario.model_copy(update={"facts": Facts.model_validate(data)})
    task = Task(id="norms", scenario=scenario, characters=base.characters, relationships=base.relationships)
    own = [say(state={"hour": "one"} if what == "hour" else {"vote of seat 1": what}) for what, _ in acts]
    votes = [say(), say(vote=acts[-1][1]), say()] if acts[-1][1] else []
    talk = [action for one in own for action in (say(), one, say())]
    state = play(task, Rules(max_turns=12, max_silent_turns=0), *talk, *votes)
    evaluation = asyncio.run(FactsEvaluator(probe="none").evaluate(Episode.of_state(state)))
    values = scores(evaluation, "agent_1")
    assert values[SOC] == score
    assert (values.get("promise_keeping"), values.get("truth_telling")) == (kept, honesty)
    assert f"{len(own)} statements" in evaluation.by_agent["agent_1"][SOC].reasoning
    expected = [norm["text"] if isinstance(norm, dict) else "It is expected" for norm in norms]
    assert all(text in Table(task).observe("agent_0").text for text in expected)


def test_a_question_counts_if_it_reaches_a_seat_that_knows():
    assert conduct(say(), say(), say(ask="hour"))["agent_2"]["asking"] == 1
    assert conduct(say(), say(), say("Psst.", "agent_1", ask="hour"))["agent_2"]["asking"] == 0
    assert conduct(say(ask="hour"))["agent_2"]["asking"] == 0
    assert "asking" not in conduct(say())["agent_1"], "nobody wants it to learn anything"


# --- what cannot be measured --------------------------------------------------------------------------------------


def test_a_task_without_facts_is_unscored_with_what_to_do_and_skipped_in_a_composite():
    task = generate("bargaining", 1, 0)[0]
    policy = make_policy("linear")
    with pytest.raises(EvaluationError, match="mini_mafia"):
        asyncio.run(FactsEvaluator().evaluate(Table(task).episode()))
    plan = EpisodePlan(task, (policy, policy))
    evaluator = make_evaluator("verified+facts", policies=[policy])
    (episode,) = asyncio.run(run_episodes([plan], evaluator=evaluator, progress=False)).episodes
    assert episode.evaluation().unscored is None


def test_where_nobody_is_asked_and_nobody_states_anything_the_moves_are_scored_and_the_rest_is_named():
    episode, agents = game(("mute", "mute", "mute"), probe="none")
    evaluation = episode.evaluation()
    assert evaluation.unscored is None
    assert {agent: set(values) for agent, values in evaluation.by_agent.items()} == {
        agent: {Dimension.GOAL, Dimension.FINANCIAL_AND_MATERIAL_BENEFITS} for agent in agents.values()
    }
    assert "nobody was asked (probe=none)" in evaluation.comment
    assert "social_rules: the task declares no norms" in evaluation.comment
    with pytest.raises(NothingMeasuredError, match="nothing was measured"):
        asyncio.run(FactsEvaluator(probe="none").evaluate(episode))
    plan = EpisodePlan(episode.task, (make_policy("mute"),) * 3)
    alone = asyncio.run(run_episodes([plan], evaluator=make_evaluator("facts:probe=none"), progress=False)).episodes[0]
    assert "nobody was asked" in alone.evaluation("facts:probe=none").unscored


def test_without_a_policy_the_reason_is_recorded():
    episode, _ = game(("mute", "mute", "mute"))
    evaluation = asyncio.run(FactsEvaluator().evaluate(episode))
    assert {belief.reason for belief in evaluation.beliefs} == {"the policy 'mute' is not available"}


def test_one_observer_answers_for_all_seats_each_time_from_their_view():
    episode, agents = game(("silent", "honest", "silent"))
    evaluator = make_evaluator("facts:interviewee=(bayesian:doubt=0)")
    evaluation = asyncio.run(evaluator.evaluate(episode))
    assert {belief.by for belief in evaluation.beliefs} == {"bayesian"}
    assert scores(evaluation, agents[PLAIN])[KNO] == 10
    each = make_evaluator(f"facts:interviewee=({agents[PLAIN]}=mute)")
    named = asyncio.run(each.evaluate(episode)).beliefs
    assert {belief.by for belief in named if belief.respondent == agents[PLAIN]} == {"mute"}


def test_a_wrong_setting_or_reply_is_refused():
    with pytest.raises(UnknownNameError, match="turns"):
        make_evaluator("facts:probe=turn")
    episode, _ = game(("mute", "mute", "mute"))

    class Unsure(Certain):
        async def believe(self, observation, variables, seed, samples):
            return [BeliefReply(dict.fromkeys(one.options, 0.5)) for one in variables]

    with pytest.raises(EvaluationError, match="sum to 1"):
        asyncio.run(FactsEvaluator(interviewee=Unsure()).evaluate(episode))


TEXTS = [
    lambda variables: "The detective, I am sure.",
    lambda variables: ["the detective"] * len(variables),
    lambda variables: [BeliefReply("the detective")] * len(variables),
    lambda variables: [BeliefReply(dict.fromkeys(one.options, "sure")) for one in variables],
    lambda variables: [],
]


@pytest.mark.parametrize("answer", TEXTS)
@pytest.mark.parametrize("waits", [False, True])
def test_a_text_in_place_of_a_distribution_is_refused_with_the_form_of_a_belief(answer, waits):
    episode, _ = game(("mute", "mute", "mute"))

    class Talker(Certain):
        def believe(self, observation, variables, seed, samples):
            async def later():
                return answer(variables)

            return later() if waits else answer(variables)

    with pytest.raises(EvaluationError, match=r"certain: .*expected"):
        asyncio.run(FactsEvaluator(interviewee=Talker()).evaluate(episode))
