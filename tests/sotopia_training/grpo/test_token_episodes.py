"""Whole episodes as token sequences: what is masked, what is trained on, and that nothing is rendered twice."""

import random

import pytest
from sotopia_training.grpo.situations import Situation, SituationSettings, situations
from sotopia_training.grpo.token_episodes import TokenPlayer
from sotopia_training.models.tokenizers import answer_ids, prompt_ids
from sotopia_training.stage.settings import PromptSettings

from sotopia_env import tasks
from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.naming import make_evaluator as make_evaluator
from sotopia_env.naming import make_policy as make
from sotopia_env.policies.agent_prompt import AgentPrompt
from sotopia_env.policies.llm import LLMPolicy
from sotopia_env.testing import ScriptedChatModel
from sotopia_env.world.dynamics import Rules, StopReason
from sotopia_env.world.play.recorded import observations
from sotopia_env.world.reward import ABBREVIATIONS
from tests.errors import raises

PROMPT = PromptSettings(format="brief", max_length=900, max_answer=40)


def speech(text):
    return f'{{"action_type": "speak", "argument": "{text}"}}'


@pytest.fixture
def play(tokenizer):
    def with_answers(answers, *, seat=0, prompt=PROMPT, max_turns=6, cut=False):
        task = tasks.generate("bargaining", 1, 5, "easy")[0]
        partners = {task.agents[1 - seat]: make("linear:horizon=3")}
        situation = Situation(task, task.agents[seat], partners, 7, Rules(max_turns=max_turns))
        left = iter(answers)

        def sample(prompts):
            ids = answer_ids(tokenizer, next(left))
            return [ids[:-1] if cut else ids for _ in prompts], None

        return TokenPlayer(tokenizer, prompt, make_evaluator("verified")).play([situation], sample)[0]

    return with_answers


@pytest.mark.parametrize("seat", [0, 1])
@pytest.mark.parametrize("first", [speech("How about $300?"), '{"argument": "$300?",  "action_type": "speak"} Well?'])
def test_the_sequence_is_the_conversation_as_it_would_be_rendered(play, tokenizer, seat, first):
    """Of a record of what was written, however it was written."""
    episode = play([first, speech("Or $310?"), speech("Or $320?")], seat=seat)
    record = episode.record
    *_, (last, index) = observations(record, episode.agent)
    rendered = prompt_ids(tokenizer, AgentPrompt("brief").messages(last))
    end = next(turn.end for turn in episode.focal if turn.turn == index)
    start = next(turn.start for turn in episode.focal if turn.turn == index)
    assert [*episode.prompt, *episode.completion[:start]] == rendered
    assert end - start == len(answer_ids(tokenizer, speech("Or $320?")))


def test_only_sampled_tokens_train(play, tokenizer):
    """Invariant 8: partner's words, template and cues are masked; each answer with its end token is not."""
    answers = [speech("How about $300?"), speech("Or $310?"), speech("Or $320?")]
    episode = play(answers)
    trained = [token for token, one in zip(episode.completion, episode.mask, strict=True) if one]
    assert tokenizer.decode(trained) == "".join(f"{answer}<|im_end|>" for answer in answers[: len(episode.focal)])
    masked = tokenizer.decode([t for t, one in zip(episode.completion, episode.mask, strict=True) if not one])
    assert "said:" in masked
    assert "How about $300?" not in masked.split("said:")[0]
    assert len(episode.mask) == len(episode.completion)


def test_an_answer_that_was_cut_off_gets_its_end_token_from_the_glue(play, tokenizer):
    episode = play([speech("How about $300?")] * 3, cut=True)
    first, second = episode.focal[:2]
    assert episode.completion[first.end] == tokenizer.eos_token_id
    assert episode.mask[first.end] == 0
    assert second.start > first.end


@pytest.mark.parametrize(
    "answer",
    ["hm", '{"action_type": "dance", "argument": ""}', speech("hi")[:-1] + ', "to": ["Bo"]}'],
)
def test_an_impossible_answer_is_a_silent_turn_and_is_noted(play, answer):
    episode = play([answer, speech("How about $300?"), speech("Or $310?")])
    assert episode.table.state.turns[episode.focal[0].turn].action.action_type == "none"
    assert episode.focal[0].failure
    assert not episode.focal[1].failure
    assert episode.valid == pytest.approx(2 / 3)


def test_leaving_ends_the_episode_on_the_policys_own_token(play, tokenizer):
    episode = play(['{"action_type": "leave", "argument": ""}'])
    assert episode.table.state.stop is StopReason.LEFT
    assert episode.mask[-1] == 1
    assert episode.completion[-1] == tokenizer.eos_token_id


def test_an_episode_that_no_longer_fits_ends_with_the_focal_seat_leaving(play):
    short = PromptSettings(format="brief", max_length=330, max_answer=40)
    episode = play([speech("What a fine piece that is.")] * 10, prompt=short, max_turns=20)
    assert episode.too_long
    assert episode.table.state.stop is StopReason.LEFT
    assert len(episode.prompt) + len(episode.completion) <= 330
    assert episode.mask[-1] == 1


def test_scores_are_those_of_the_evaluator(play):
    episode = play([speech("I accept."), speech("Deal."), speech("Deal.")])
    own = episode.record.evaluation().by_agent[episode.agent]
    scores = {ABBREVIATIONS[name]: score.value for name, score in own.items()}
    assert scores.keys() == {"GOAL", "FIN"}
    assert episode.scores == scores


def test_a_format_that_re_renders_its_history_is_refused(tokenizer):
    with raises(InvalidValueError, field="format"):
        TokenPlayer(tokenizer, PromptSettings(format="single"), None)


def test_many_episodes_are_sampled_in_one_batch(tokenizer):
    batch_sizes = []

    def sample(prompts):
        batch_sizes.append(len(prompts))
        offers = [speech(f"How about ${random.Random(len(p)).randint(50, 400)}?") for p in prompts]
        return [answer_ids(tokenizer, offer) for offer in offers], None

    situation_list = situations(
        SituationSettings(families=("bargaining",), count=8, partners=("stubborn", "linear:horizon=3"), max_turns=6)
    )
    episodes = TokenPlayer(tokenizer, PROMPT, make_evaluator("verified")).play(situation_list, sample)
    assert [(e.table.task, e.agent, e.partners) for e in episodes] == [
        (s.task, s.seat, s.partners) for s in situation_list
    ]
    assert batch_sizes[0] == 16
    assert len(batch_sizes) <= 3


def test_situations_put_the_policy_in_every_seat_and_share_nothing_but_the_seed():
    situation_list = situations(
        SituationSettings(families=("bargaining",), count=4, partners=("linear", "stubborn"), seed=3)
    )
    assert [(item.task.id, item.seat) for item in situation_list] == [
        (task.id, seat) for task in tasks.generate(["bargaining"], 4, 0, "medium") for seat in task.agents
    ]
    assert [item.partner for item in situation_list] == ["linear", "linear", "stubborn", "stubborn"] * 2
    again = situations(SituationSettings(families=("bargaining",), count=4, partners=("linear", "stubborn"), seed=3))
    assert [item.seed for item in situation_list] == [item.seed for item in again]
    assert len({item.seed for item in situation_list}) == 8


@pytest.mark.parametrize("options", [{}, {"families": ("bargaining",), "tasks": "x.json"}])
def test_situations_need_exactly_one_source_of_tasks(options):
    with raises(InvalidValueError, field="situations"):
        situations(SituationSettings(partners=("linear",), **options))


def test_partners_may_be_past_selves_and_frozen_models(tiny_model, tokenizer):
    """A directory is a policy like any other; a model on a server needs an address, or is refused."""
    options = {"families": ("bargaining",), "count": 1, "max_turns": 2, "learners": ("agent_0",)}
    (itself,) = situations(SituationSettings(partners=(f"{tiny_model}:temperature=0,max_tokens=4",), **options))
    answers = [answer_ids(tokenizer, speech("How about $300?"))]
    (episode,) = TokenPlayer(tokenizer, PROMPT, make_evaluator("verified")).play(
        [itself], lambda prompts: (answers, None)
    )
    assert len(episode.table.state.turns) == 2, episode.failure
    with raises(InvalidValueError, field="partners.api_base"):
        situations(SituationSettings(partners=("local/frozen",), **options))
    access = ModelOptions(api_base="http://127.0.0.1:9/v1")
    (served,) = situations(SituationSettings(partners=("local/frozen",), **options), models=ModelPool(access))
    assert served.partner == "local/frozen"


def test_a_partner_that_is_a_model_gets_its_own_text_back(tokenizer):
    odd = '{"argument": "No.",  "action_type": "speak"}'
    task = tasks.generate("bargaining", 1, 5, "easy")[0]
    model = ScriptedChatModel(lambda _: odd)
    situation = Situation(
        task, task.agents[0], {task.agents[1]: LLMPolicy(model, format="brief")}, 7, Rules(max_turns=6)
    )
    ids = answer_ids(tokenizer, speech("How about $300?"))
    TokenPlayer(tokenizer, PROMPT, None).play([situation], lambda prompts: ([ids] * len(prompts), None))
    own = [message["content"] for message in model.requests[-1].messages if message["role"] == "assistant"]
    assert own == [odd] * 2


def test_an_episode_that_is_over_before_the_first_turn_is_a_row_that_trains_nothing(tokenizer):
    """TRL reads the last token of every completion; an empty one would end the training."""
    situation_list = situations(SituationSettings(families=("bargaining",), count=1, partners=("leaver",), max_turns=4))
    answers = answer_ids(tokenizer, speech("Hello?"))
    played = TokenPlayer(tokenizer, PROMPT, make_evaluator("verified")).play(
        situation_list, lambda prompts: ([answers] * len(prompts), None)
    )
    over = [episode for episode in played if not episode.focal]
    assert over
    for episode in over:
        assert episode.prompt
        assert (episode.completion, episode.mask) == ([tokenizer.eos_token_id], [0])
        assert episode.vector[-1] == 0


def test_an_overlong_first_prompt_is_a_row_without_loss(play, tokenizer):
    episode = play([speech("Hello?")], prompt=PromptSettings(format="brief", max_length=60, max_answer=40))
    assert episode.too_long
    assert (episode.completion, episode.mask) == ([tokenizer.eos_token_id], [0])
