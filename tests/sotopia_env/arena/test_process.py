"""Measures of how a seat played, of real episodes."""

import asyncio

import pytest

from sotopia_env import tasks
from sotopia_env.arena.process import process
from sotopia_env.evaluators import VerifiedOutcome
from sotopia_env.naming import make_evaluator
from sotopia_env.outcomes import Move
from sotopia_env.outcomes.result import SpokenAgreement
from sotopia_env.outcomes.specification import worth_value
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.testing import state_after
from sotopia_env.world import Action
from sotopia_env.world.answers import InterviewAnswer
from sotopia_env.world.episode import Episode, Evaluation
from tests.sotopia_env.interviewed import fair


def played(family: str, *policies: str, n: int = 4):
    plans = plan_episodes(tasks.generate(family, n, 5), [policies], both_seats=False)
    return asyncio.run(run_episodes(plans, evaluator=make_evaluator("verified"), progress=False)).episodes


def mean(episodes, agent: str, name: str) -> float:
    values = [process(episode)[agent][name] for episode in episodes]
    return sum(values) / len(values)


def test_offers_show_how_far_a_seat_went():
    generous, stubborn = played("bargaining", "generous", "boulware"), played("bargaining", "boulware", "boulware")
    assert mean(generous, "agent_0", "opening") < mean(stubborn, "agent_0", "opening")
    assert mean(generous, "agent_0", "reservation_shown") > mean(stubborn, "agent_0", "reservation_shown")


def test_a_frequency_model_learns_the_interests_of_steady_offers():
    steady, random_ = (mean(played("campsite", name, "boulware"), "agent_0", "interests_shown")
                       for name in ("boulware", "random-offers"))  # fmt: skip
    assert 1 >= steady > random_ > -1


def test_dominated_agreements_are_those_that_another_outcome_improves():
    checked = 0
    for episode in played("campsite", "random-offers", "conceder", n=8):
        outcome = episode.evaluations[-1].outcome
        found = process(episode)["agent_0"]
        assert found["value_left"] == pytest.approx(1 - outcome.efficiency)
        if not outcome.agreed:
            assert "dominated" not in found
            continue
        checked += 1
        spec, space = episode.task.scenario.outcome, episode.task.scenario.outcome.space(episode.task.names)
        own = [worth_value(spec, seat, outcome.terms) for seat in (0, 1)]
        others = [[worth_value(spec, seat, terms) for seat in (0, 1)] for terms in space.outcomes()]
        better = any(all(b >= a for a, b in zip(own, o, strict=True)) and o != own for o in others)
        assert found["dominated"] == float(better)
    assert checked


@pytest.mark.parametrize("family", ["mutual_friend", "group_decision"])
def test_measures_of_offers_are_absent_without_offers(family):
    episode = played(family, "linear", "linear", n=1)[0]
    found = process(episode)
    assert set(found) == set(episode.task.agents)
    assert all("opening" not in values and values["turns"] == len(episode.turns) for values in found.values())


def test_words_that_the_moves_do_not_settle():
    episode = next(e for e in played("bargaining", "generous", "generous") if e.evaluations[-1].outcome.agreed)
    terms = dict(episode.evaluations[-1].outcome.terms)
    others = {name: value + 1 for name, value in terms.items()}
    for spoken, expected in ((terms, 0.0), (others, 1.0)):
        agreement = SpokenAgreement(agreed=True, terms=spoken, turns={"agent_0": 1})
        found = process(episode.with_evaluation(Evaluation(evaluator="spoken-outcome", agreement=agreement)))
        assert found["agent_0"]["said_otherwise"] == expected
        assert "said_otherwise" not in found["agent_1"]


def test_of_two_seats_that_agreed_in_words_the_one_that_moved_otherwise_said_otherwise():
    """A seat offers, and the other says yes while it offers something else."""
    offer, other = Move("propose", {"price": 60}), Move("propose", {"price": 90})
    task = next(iter(tasks.generate("bargaining", 1, 5)))
    actions = [Action("speak", "60?", move=offer), Action("speak", "Yes, 60!", move=other), Action("speak", "Hm.")]
    for moves, expected in (
        ((0, 1), (0.0, 1.0)),
        ((0,), (0.0, 1.0)),  # no move at all follows the words
        ((1,), (1.0, 1.0)),
    ):
        turns = [a if n in moves else Action("speak", a.argument) for n, a in enumerate(actions)]
        episode = Episode.of_state(state_after(task, *turns))
        agreement = SpokenAgreement(agreed=True, terms={"price": 60}, turns={"agent_0": 1, "agent_1": 2})
        read = episode.with_evaluation(Evaluation(evaluator="spoken-outcome", agreement=agreement))
        found = process(read.with_evaluation(asyncio.run(VerifiedOutcome().evaluate(episode))))
        assert tuple(found[agent]["said_otherwise"] for agent in ("agent_0", "agent_1")) == expected
    accepted = [actions[0], Action("speak", "Well …", move=Move("accept", 1))]
    episode = Episode.of_state(state_after(task, *accepted))
    read = episode.with_evaluation(Evaluation(evaluator="spoken-outcome", agreement=agreement))
    found = process(read.with_evaluation(asyncio.run(VerifiedOutcome().evaluate(episode))))
    assert {found[agent]["said_otherwise"] for agent in episode.task.agents} == {0.0}


def test_secrets_that_the_others_answered_right_are_disclosed():
    def answer(respondent: str, value: bool | None, asked: bool = True) -> InterviewAnswer:
        reason = "" if value is not None else "no answer"
        choice = None if value is None else "an option"
        return InterviewAnswer(
            respondent=respondent, about="agent_0", index=0, value=value, choice=choice, reason=reason, asked=asked
        )

    episode = Episode.of_state(state_after(fair(), "Hello."))
    goal = InterviewAnswer(respondent="agent_0", about="agent_0", view="self", index=0, value=True)
    for answers, disclosure, discovery in (
        ([answer("agent_1", True), answer("agent_2", False)], 0.5, (1.0, 0.0)),
        ([answer("agent_1", True), answer("agent_2", None)], 0.5, (1.0, 0.0)),
        ([answer("agent_1", True), answer("agent_2", None, asked=False)], 1.0, (1.0, None)),
        ([], None, (None, None)),
    ):
        evaluation = Evaluation(evaluator="interview", answers=(goal, *answers))
        found = process(episode.with_evaluation(evaluation))
        assert found["agent_0"].get("disclosure") == disclosure
        assert tuple(found[agent].get("discovery") for agent in ("agent_1", "agent_2")) == discovery
        assert "disclosure" not in found["agent_1"]
