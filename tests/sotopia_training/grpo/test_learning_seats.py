"""Several seats that learn: who sits where, episodes that rows share, and baselines by role."""

import json
import shutil
from collections import Counter

import pytest
import torch
from sotopia_training.grpo import multi_turn
from sotopia_training.grpo import stage as grpo
from sotopia_training.grpo.multi_turn import EpisodeRollout, EpochSampler, prompt_rows
from sotopia_training.grpo.settings import GRPOSettings, check
from sotopia_training.grpo.situations import SituationSettings, situations
from sotopia_training.grpo.token_episodes import TokenPlayer
from sotopia_training.models.loading import write_prompt_settings
from sotopia_training.models.tokenizers import answer_ids
from sotopia_training.stage.settings import PromptSettings

from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.settings import settings_of
from sotopia_env.foundation.yaml_text import parse_yaml
from sotopia_env.naming import make_evaluator
from sotopia_env.naming.seats import role_of, sides
from sotopia_env.tasks import generate
from tests.errors import raises
from tests.sotopia_training.conftest import StoppedError, killed_after
from tests.sotopia_training.grpo.grpo_settings import TRAINER, multi_turn_settings
from tests.test_docs import PAGES, blocks

PROMPT = PromptSettings(format="brief", max_length=4000, max_answer=40)
WORDS = '{"action_type": "speak", "argument": "It was not me."}'
ROLES = ("hidden", "informed", "plain")


def mafia(partners, **values):
    return SituationSettings(families=("mini_mafia",), partners=partners, **{"count": 1, **values})


def by_role(settings):
    """The partners of each focal role, by role."""
    return {
        role_of(item.task, item.seat): {role_of(item.task, agent): p.name for agent, p in item.partners.items()}
        for item in situations(settings)
    }


def test_a_list_is_for_all_other_seats():
    assert by_role(mafia(["honest"])) == {role: dict.fromkeys({*ROLES} - {role}, "honest") for role in ROLES}


def test_partners_have_roles_and_are_allies_or_opponents():
    seated = by_role(mafia({"ally": ["honest"], "opponent": ["deceiver"], "informed": ["bayesian"]}))
    assert seated == {
        "hidden": {"informed": "bayesian", "plain": "deceiver"},
        "informed": {"hidden": "deceiver", "plain": "honest"},
        "plain": {"hidden": "deceiver", "informed": "bayesian"},
    }


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("mini_mafia", [1, 2]),
        ("werewolf", [2, 6]),
        ("jester", [1, 1, 4]),
        ("bargaining", [1, 1]),
        ("dilemma", [1, 1]),
        ("briefing", [3]),
    ],
)
def test_sides_are_the_seats_that_win_together(family, expected):
    (task,) = generate([family], 1, 0, "medium")
    assert sorted(map(len, sides(task))) == expected
    assert sorted(agent for side in sides(task) for agent in side) == [*task.agents]


def test_the_town_learns_together_against_a_script():
    town = situations(mafia({"ally": ["self"], "opponent": ["deceiver"]}, learners=ROLES[1:]))
    assert [sorted(role_of(item.task, agent) for agent in item.learners) for item in town] == [
        ["informed", "plain"]
    ] * 2
    assert town[0].seating == town[1].seating
    assert town[0].partner.count("self") == town[0].partner.count("deceiver") == 1


def test_lists_of_several_roles_are_combined():
    settings = mafia({"hidden": ["deceiver", "mute"], "other": ["honest", "bayesian"]}, count=4, learners=["plain"])
    pairs = [sorted(policy.name for policy in item.partners.values()) for item in situations(settings)]
    assert len({*map(tuple, pairs)}) == 4


def test_all_seats_of_one_draw_have_the_same_past_self(tmp_path):
    from sotopia_training.grpo.self_play import SelfPlay

    settings = mafia({"opponent": ["honest", "mute", {"policy": "uniform", "share": 2}], "ally": ["self"]})
    items, drawing = situations(settings), SelfPlay(settings, tmp_path, PROMPT)
    town = [item for item in items if role_of(item.task, item.seat) != "hidden"]
    drawn = [[drawing.with_partners(item, step) for item in town] for step in range(20)]
    assert all(one.seating == other.seating for one, other in drawn)
    assert len({one.partner for one, _ in drawn}) == 3


@pytest.mark.parametrize(
    ("partners", "more", "error"),
    [
        ({"hidde": ["honest"], "other": ["mute"]}, {}, {"got": "hidde", "nearest": "hidden"}),
        (["honest"], {"learners": ("vilager",)}, {"got": "vilager", "field": "situations.learners"}),
        (["honest"], {"learners": ("ally",)}, {"got": "ally", "field": "situations.learners"}),
    ],
)
def test_a_seat_that_no_task_has_is_named_before_anything_is_read(partners, more, error):
    with raises(UnknownNameError, **error):
        check(multi_turn_settings(situations=mafia(partners, **more)))


def test_a_seat_without_a_partner_is_named_with_what_it_is_called():
    with raises(InvalidValueError, field="partners", hint="'other' is for all seats that are not named") as caught:
        situations(mafia({"ally": ["honest"]}))
    assert "hidden, opponent, other" in str(caught.value)


# --- shared episodes ----------------------------------------------------------------------------------------------


def player(tokenizer, prompt=PROMPT):
    return TokenPlayer(tokenizer, prompt, make_evaluator("verified"), "share")


def test_each_seat_of_an_episode_has_its_own_row_and_trains_only_what_was_sampled_for_it(tokenizer):
    asked = []

    def sample(prompts):
        asked.extend(map(tuple, prompts))
        answers = [WORDS.replace("not me", f"number {len(asked) - len(prompts) + n}") for n in range(len(prompts))]
        return [answer_ids(tokenizer, answer) for answer in answers], None

    items = situations(mafia(["self"]))
    rows = player(tokenizer).play([item for item in items for _ in range(2)], sample)
    tables = {id(row.table) for row in rows}
    assert len(tables) == 2, "two episodes of three seats for six rows"
    assert [id(row.table) for row in rows[:2]] == [id(row.table) for row in rows[2:4]]
    assert [row.agent for row in rows] == [item.seat for item in items for _ in range(2)]
    assert len(asked) == sum(len(row.focal) for row in rows) == 18
    for row in rows:
        own = {item.turn.index for item in row.table.turns if item.turn.actor == row.agent}
        assert {turn.turn for turn in row.focal} == own
        trained = tokenizer.decode([t for t, one in zip(row.completion, row.mask, strict=True) if one])
        texts = [row.table.turns[index].generation.text for index in sorted(own)]
        assert trained == "".join(f"{text}<|im_end|>" for text in texts)
        # What the policy was asked is a prefix of what is trained on.
        assert all((*row.prompt, *row.completion[: turn.start]) in asked for turn in row.focal)
        assert [info.name for info in row.record.policies] == ["focal"] * 3


def test_a_seat_whose_row_is_not_in_the_batch_is_played_and_left_out(tokenizer):
    (item, *_) = situations(mafia(["self"]))
    ids = answer_ids(tokenizer, WORDS)
    rows = player(tokenizer).play([item] * 2, lambda prompts: ([ids] * len(prompts), None))
    assert len({id(row.table) for row in rows}) == 2
    assert all(row.reward is not None and len(row.focal) == 3 for row in rows)


def test_a_seat_without_room_leaves_and_the_others_go_on(tokenizer):
    long = answer_ids(tokenizer, WORDS.replace("not me", "not me, I swear by all that I have, and that is not little"))

    def sample(prompts):
        return [long if len(prompt) < 400 else answer_ids(tokenizer, WORDS) for prompt in prompts], None

    tight = PromptSettings(format="brief", max_length=560, max_answer=40)
    rows = player(tokenizer, tight).play(situations(mafia(["self"])), sample)
    assert any(row.too_long for row in rows)
    for row in rows:
        assert len(row.sequence) <= 560
        assert not row.failure


def test_continuations_of_one_seat_are_played_by_all_seats_of_the_policy(tokenizer):
    ids = answer_ids(tokenizer, WORDS)
    play = player(tokenizer)
    row, *_ = play.play(situations(mafia(["self"])), lambda prompts: ([ids] * len(prompts), None))
    for number, turn in enumerate(row.focal):
        state = row.before(number)
        assert state.sequence == [*row.prompt, *row.completion[: turn.start]]
        assert state.acting
        play.play_on([state], lambda prompts: ([ids] * len(prompts), None))
        assert [item.turn.action for item in state.table.turns] == [item.turn.action for item in row.table.turns]
        assert all(
            (copy.completion, copy.mask) == (row.fellows[agent].completion, row.fellows[agent].mask)
            for agent, copy in state.fellows.items()
        )


def test_rows_of_one_episode_follow_each_other_in_every_epoch():
    from trl.trainer.utils import RepeatSampler

    rows = prompt_rows(situations(mafia(["self"], count=6)))
    episodes = [row["episode"] for row in rows]
    assert Counter(episodes) == dict.fromkeys(range(6), 3)

    def make():
        return RepeatSampler(rows, mini_repeat_count=2, batch_size=6, repeat_count=2, seed=3)

    orders = [list(EpochSampler(make, lambda epoch=epoch: epoch, episodes)) for epoch in (0, 1)]
    for order in orders:
        assert len(order) == len(make())
        assert Counter(order) == dict.fromkeys(range(18), 4)
        batches = [order[start : start + 12] for start in range(0, len(order), 12)]
        assert all(len({episodes[row] for row in batch}) == 2 for batch in batches)
    assert orders[0] != orders[1]
    alone = [*range(18)]
    assert list(EpochSampler(make, lambda: 0, alone)) == list(make()), "TRL's order where nothing is shared"


# --- for real -----------------------------------------------------------------------------------------------------


def test_all_seats_learn_with_baselines_by_role_and_a_killed_run_continues_as_an_unbroken_one(
    tiny_model, tmp_path, monkeypatch
):
    shutil.copytree(tiny_model, tmp_path / "start/model")
    write_prompt_settings(tmp_path / "start/model", PROMPT.model_copy(update={"max_length": 1900, "max_answer": 64}))
    batches = []

    def note(self, prompts, trainer):
        output = call(self, prompts, trainer)
        batches.append((prompts, output))
        return output

    call = EpisodeRollout.__call__
    monkeypatch.setattr(EpisodeRollout, "__call__", note)
    advantages = []
    score = multi_turn.trainer_class

    def trainer_class():
        class Noting(score()):
            def _generate_and_score_completions(self, inputs):
                output = super()._generate_and_score_completions(inputs)
                advantages.append(output["advantages"])
                return output

        return Noting

    monkeypatch.setattr(grpo, "trainer_class", trainer_class)
    (code, _) = (block.code for block in blocks(PAGES["training-self-play.md"], "yaml"))
    page = parse_yaml(code, "page")
    page["situations"] |= {"count": 4, "level": "easy"}
    page |= {"start_from": str(tmp_path / "start"), "output": str(tmp_path / "whole"), "constrained": True}
    page["trainer"] |= {**TRAINER, "num_generations": 2, "per_device_train_batch_size": 12}
    whole = settings_of({**page, "lora": None}, GRPOSettings, "page")
    grpo.run(whole)
    assert len(batches) == 2
    for (_, output), given in zip(batches, advantages, strict=True):
        rewards = torch.tensor(output["episode_reward"]).view(-1, 2)
        assert torch.allclose(given.view(-1, 2), rewards - rewards.mean(1, keepdim=True), atol=1e-6)
        trained = zip(output["role"], output["env_mask"], strict=True)
        assert {role for role, mask in trained if any(mask)} == {*ROLES}
        assert Counter(output["role"]) == dict.fromkeys(ROLES, 4), "whole episodes: every role of both tasks, twice"
    log = json.loads((tmp_path / "whole/done.json").read_text())["log"]
    assert all({f"roles/{role}" for role in ROLES} <= entry.keys() for entry in log)
    broken = whole.model_copy(update={"output": str(tmp_path / "broken")})
    with monkeypatch.context() as patched:
        killed_after(patched, 2)
        with pytest.raises(StoppedError):
            grpo.run(broken)
    grpo.run(broken)
    again = json.loads((tmp_path / "broken/done.json").read_text())["log"]
    assert [entry["loss"] for entry in log] == [entry["loss"] for entry in again]
    assert any(entry["grad_norm"] > 0 for entry in log)
