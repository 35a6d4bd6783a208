"""What the proof holds out is held out, and its speakers are understood by the reader that scores them."""

import asyncio
import json
import re
from pathlib import Path
from statistics import fmean

import pytest

from sotopia_env import tasks
from sotopia_env.evaluators import default_evaluator
from sotopia_env.runs.plan import plan_episodes
from sotopia_env.runs.rollout import run_episodes
from sotopia_env.storage.directory import read_run
from sotopia_env.tasks.bargaining import read_acts
from sotopia_env.tasks.texts import bargaining as bargaining_words
from sotopia_env.world.action import ActionType
from sotopia_env.world.dynamics import Rules, initial_state, transition
from sotopia_env.world.observation import SeatView
from training.collect.selection import BCFilter
from training.data.samples import RowMaker
from training.data.sources import source_rows
from training.proof.base_model import _talk, talk_rows
from training.proof.recipe import PROMPT, SEEN, UNSEEN, Recipe
from training.proof.seed_run import SeedRun, partner, seat_of
from training.proof.speakers import _ASSENTS, PlainDealer
from training.proof.strange_words import StrangeWords
from training.proof.unseen import is_held_out, overlaps, prices, split_bargaining, wording

FAMILY = {wording(text.replace("{price}", "1")) for text in (*bargaining_words.OFFERS, *bargaining_words.ACCEPTS)}


@pytest.fixture(scope="module")
def split():
    return split_bargaining(20, 40, 10, 30, "easy", 11)


def play(situations, policy, other):
    plans = plan_episodes(situations, [(policy, other)], rules=Rules(max_turns=6), seed=0)
    return run_episodes(plans, evaluator=default_evaluator(), progress=False).episodes


def test_tests_share_no_price_person_item_or_wording_of_goals_with_training(split):
    shared = overlaps(split)
    assert [met for met, _ in shared["training"].values()] == [0, 0, 0, 0]
    assert [shared["base"][name][0] for name in ("people", "items", "goal wordings")] == [0, 0, 0]
    assert shared["base"]["prices"][0] > 0  # as numbers that it knows; and dev tasks are of the tests' kind
    assert shared["dev"]["items"][0] > 0
    tested = {price for task in split.test for price in prices(task)}
    assert shared["training"]["prices"] == (0, len(tested))
    assert {price % 2 for task in split.train for price in prices(task)} == {0}
    assert {price % 2 for task in (*split.dev, *split.test) for price in prices(task)} == {1}


def test_every_price_of_a_seat_stands_in_what_it_is_told(split):
    for task in split.test:
        for seat in task.scenario.seats:
            for name in ("target_price", "dream_price", "walk_away_price"):
                assert f"${seat.private_data[name]}" in seat.private_info


@pytest.mark.parametrize("settings", [*SEEN, *UNSEEN])
def test_partners_in_tests_say_nothing_in_words_of_training(split, settings):
    assert not {spec.split(",")[0] for spec in SEEN} & {spec.split(",")[0] for spec in UNSEEN}
    for held_out, situations in ((True, split.test[:6]), (False, split.train[:6])):
        other = partner(settings, held_out)
        said = [
            item.turn.action.argument
            for episode in play(situations, PlainDealer(), other)
            for item in episode.turns
            if item.turn.actor == seat_of(episode, other.name) and item.turn.action.argument
        ]
        assert said
        assert {is_held_out(wording(text)) for text in said} == {held_out}


def test_an_assent_that_names_no_price_makes_the_deal_and_nothing_said_afterwards_breaks_it(split):
    """The speakers agree without a price, and name their price again where a deal is made already."""
    agreed = {}
    for episode in play(split.train, PlainDealer(), partner(SEEN[0], False)):
        own = [
            item.turn.action.argument for item in episode.turns if item.turn.actor == seat_of(episode, "plain-dealer")
        ]
        assert own[-1] not in _ASSENTS or episode.evaluation().outcome.agreement
        assert not set(own[:2]) & set(_ASSENTS)
        begins = episode.turns[0].turn.actor == seat_of(episode, "plain-dealer")
        agreed.setdefault(begins, set()).update(set(own) & set(_ASSENTS))
    assert agreed == {True: set(), False: set(_ASSENTS)}  # who begins has not the last word, and insists


def texts(episodes, words_of):
    """What was said by the policies of one name, and by all others: no seat may be forgotten."""
    found = {True: [], False: []}
    for episode in episodes:
        names = {info.agent: info.name for info in episode.policies}
        for item in episode.turns:
            if item.turn.action.argument:
                found[names[item.turn.actor] == words_of].append(item.turn.action.argument)
    return found


def test_the_experts_recording_is_of_the_training_side_in_every_seat(split, tmp_path):
    """The expert's and its partners', as they stand in the run that cloning reads."""
    SeedRun(Recipe(expert_tasks=12), Path("no-base"), split, 7, tmp_path)._record_expert()
    episodes = list(read_run(tmp_path / "expert"))
    assert {info.name for episode in episodes for info in episode.policies} == {
        "plain-dealer",
        *(spec.split(",")[0] for spec in SEEN),
    }
    assert {episode.task.id for episode in episodes} <= {task.id for task in split.train}
    for said in texts(episodes, "plain-dealer").values():
        assert len(said) > 20
        assert not [text for text in said if is_held_out(wording(text))]


def test_strange_words_leave_numbers_and_a_seats_own_words_alone_and_are_nobodys_wording(split, tokenizer):
    """What the base hears in its talk, and what is heard in cloned episodes."""
    settings = Recipe().base.model_copy(update={"output": "nowhere"})
    episodes = _talk(split.base, settings)
    strange, changed = StrangeWords(0.75), []
    for episode in episodes:
        for seat in episode.task.agents:
            heard = strange.heard_by(episode, seat)
            assert heard == strange.heard_by(episode, seat)
            assert heard.evaluations == episode.evaluations
            for before, after in zip(episode.turns, heard.turns, strict=True):
                said, words = before.turn.action.argument, after.turn.action.argument
                assert re.findall(r"\d+", said) == re.findall(r"\d+", words)
                if before.turn.actor == seat or before.turn.action.action_type is not ActionType.SPEAK:
                    assert before == after
                else:
                    changed.append(said != words)
                    assert said == words or wording(words) not in FAMILY
    assert 0.6 < fmean(changed) < 0.85
    plain = StrangeWords(0)
    assert [plain.heard_by(episode, "agent_0") for episode in episodes] == list(episodes)
    # every turn was made strange by itself, and still a seat's conversation is one row
    talked = [list(talk_rows(episode, settings.prompt, tokenizer, strange)) for episode in episodes]
    assert [len(found) for found in talked] == [2] * len(episodes)


def test_what_is_cloned_was_heard_in_strange_words_and_said_by_the_expert(split, tmp_path):
    run = SeedRun(Recipe(expert_tasks=12), Path("no-base"), split, 7, tmp_path)
    run._record_expert()
    chosen = BCFilter(policies=("plain-dealer",), group="task")
    data = run._selected("expert", "plain-dealer", chosen)
    rows = list(source_rows([data], RowMaker(PROMPT)))
    recorded = {episode.key: episode for episode in read_run(tmp_path / "expert")}
    heard = {episode.key: episode for episode in read_run(data.run)}
    assert recorded.keys() == heard.keys()
    assert recorded != heard
    assert {row.episode for row in rows} <= recorded.keys()
    for row in rows:
        said = recorded[row.episode].turns[row.turn].turn
        assert said.actor == row.seat
        assert json.loads(row.completion)["argument"] == said.action.argument


def test_scaled_prices_stay_distinct_and_no_test_needs_a_great_number(split):
    """Two prices that are rounded to one would make another task of it; great numbers are rare in the base's talk."""
    for task in (*split.base, *split.train, *split.dev, *split.test):
        _, level, seed, number = task.id.split("-")
        drawn = prices(tasks.family("bargaining").generate(int(number), int(seed), level))
        pairs = set(zip(drawn, prices(task), strict=True))
        assert len(pairs) == len(set(drawn)) == len(set(prices(task))), task.id
    for task in (*split.dev, *split.test):
        dreams = {seat.private_data["dream_price"] for seat in task.scenario.seats}
        told = task.scenario.model_dump_json(include={"context", "seats"})
        written = {int(number.replace(",", "")) for number in re.findall(r"\$(\d[\d,]*)", told)}
        assert set(prices(task)) | dreams >= written >= dreams
        assert max(written | set(prices(task)) | dreams) <= 221


def test_strange_words_of_a_partner_do_what_its_plain_ones_do(split):
    """Multi-turn GRPO hears them: the same moves, in words out of place, and in no phrasing of the tests."""
    plain, strange = (partner(SEEN[0], False, share) for share in (0.0, 1.0))
    changed = []
    for episode in play(split.train, PlainDealer(), plain):
        listed = int(episode.task.scenario.shared_data["listed_price"])
        seat = next(info.agent for info in episode.policies if info.name == plain.name)
        state = initial_state(episode.task, episode.rules, episode.seed)
        view = SeatView(episode.task, episode.rules, seat)
        for at, item in enumerate(episode.turns):
            if item.turn.actor == seat:
                seen = view.observe(state)
                said, other = (asyncio.run(one.act(seen, at)).action.argument for one in (plain, strange))
                assert read_acts(other, listed) == read_acts(said, listed)
                assert not is_held_out(wording(other))
                changed.append(other != said)
            state = transition(state, item.turn.action)
    assert len(changed) > 40
    assert fmean(changed) > 0.4  # what no strange words do is said plainly
