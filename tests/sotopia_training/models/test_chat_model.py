"""A directory as a chat model: the same request the same answer, whatever asks; constrained answers are legal."""

import asyncio
import json
import shutil
from dataclasses import replace

import pytest
from sotopia_training.models import chat_model, constraints
from sotopia_training.models.chat_model import LocalChatModel, load_model
from sotopia_training.models.generation import BatchedGenerator
from sotopia_training.models.loading import load_causal_lm, write_prompt_settings
from sotopia_training.models.policy import load
from sotopia_training.models.tokenizers import load_tokenizer, prompt_ids
from sotopia_training.stage.settings import ModelSettings, PromptSettings

from sotopia_env import Table, naming, tasks
from sotopia_env.chat_model import ChatRequest
from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.evaluators.judge.llm_judge import LLMJudge
from sotopia_env.foundation.errors import ContextLengthError, EvaluationError, InvalidValueError
from sotopia_env.policies.answer_schema import action_schema
from sotopia_env.runs import plan_episodes
from sotopia_env.runs.forecast import CallCounter, StandInModels
from sotopia_env.world import Rules
from sotopia_env.world.answers import InterviewQuestion
from tests.errors import raises

SETTINGS = PromptSettings(format="brief", max_length=700, max_answer=24)
MESSAGES = ({"role": "system", "content": "You are Ada."}, {"role": "user", "content": "Say something."})
ASKED = ChatRequest(MESSAGES, max_tokens=8, logprobs=True)


@pytest.fixture(scope="module")
def directory(tiny_model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stages") / "bc"
    shutil.copytree(tiny_model, folder / "model")
    write_prompt_settings(folder / "model", SETTINGS)
    return folder


def complete(model, *requests):
    async def all_of():
        return await asyncio.gather(*(model.complete(request) for request in requests))

    return asyncio.run(all_of())


def test_the_same_request_gets_the_same_answer_and_a_replicate_another(directory):
    model = load_model(directory, constrained="off", dtype="float32")
    first, again, other, reasked = complete(model, ASKED, ASKED, replace(ASKED, replicate=1), replace(ASKED, reask=1))
    assert first == again
    assert len({first.token_ids, other.token_ids, reasked.token_ids}) == 3
    assert (first.prompt_tokens, first.cost) == (model.prompt_tokens(MESSAGES), 0.0)
    assert len(first.token_ids) == len(first.logprobs) == first.completion_tokens <= 8
    (longer, greedy) = complete(model, replace(ASKED, max_tokens=12), replace(ASKED, temperature=0.0))
    assert longer.completion_tokens > 8 or longer.finish_reason == "stop"
    assert greedy == complete(model, replace(ASKED, temperature=0.0, replicate=5))[0]


@pytest.mark.skipif(not constraints.is_available(), reason="needs llguidance")
def test_probabilities_of_answers_are_the_shares_of_constrained_ones(directory):
    model = load_model(directory, constrained="on", dtype="float32", max_tokens=24)
    schema = {
        "type": "object",
        "properties": {"answer": {"type": "string", "enum": ["A", "B"]}},
        "required": ["answer"],
        "additionalProperties": False,
    }
    asked = replace(ASKED, schema=schema, max_tokens=20)
    answers = ['{"answer": "A"}', '{"answer": "B"}']
    ((first, second),) = asyncio.run(model.shares(asked, [answers]))
    assert first + second == pytest.approx(1)
    drawn = [reply.text for reply in complete(model, *(replace(asked, replicate=n) for n in range(100)))]
    assert set(drawn) <= set(answers)
    assert abs(drawn.count(answers[0]) / 100 - first) < 3 * (first * second / 100) ** 0.5
    with pytest.raises(ContextLengthError):
        asyncio.run(load_model(directory, max_length=60).shares(asked, [["word " * 60, "A"]]))


def test_overlong_input_is_an_error_and_not_truncated(directory):
    model = load_model(directory, max_length=60)
    with pytest.raises(ContextLengthError, match="leaves no room for an answer of 8 tokens in 60"):
        complete(model, replace(ASKED, messages=(*MESSAGES, {"role": "user", "content": "word " * 60})))
    with raises(InvalidValueError, field="max_tokens"):
        load_model(directory, max_length=24)


def test_a_directory_can_judge_and_be_interviewed_like_a_model_name(directory):
    def remote(spec, **options):
        pytest.fail(f"{spec} is not a model on a server")

    judge = naming.make_evaluator(f"judge:{directory}:max_tokens=8,reasks=1", model_factory=remote)
    assert isinstance(judge, LLMJudge)
    task = tasks.generate("bargaining", 1, seed=5)[0]
    policy = load(directory)
    table = Table(task, Rules(max_turns=2), seed=3)
    asyncio.run(table.play(dict.fromkeys(task.agents, policy)))
    with pytest.raises(EvaluationError, match="bc: the episode does not fit the model"):  # the tiny one's context
        asyncio.run(judge.evaluate(table.episode()))
    question = InterviewQuestion(task.agents[0], "Did you agree on a price?")
    reply = asyncio.run(policy.answer(table.observe(task.agents[0]), question, seed=1))
    assert reply.asked
    assert (reply.choice is None) == bool(reply.reason)
    if constraints.is_available():
        assert reply.choice in (0, 1)  # constrained, even an untrained model answers


def test_options_of_a_directory_override_those_of_training(directory):
    policy = naming.make_policy(f"{directory}:format=chat,max_length=5000,max_tokens=100,temperature=0.5")
    context = load_model(directory).max_length
    assert (policy.format, policy.max_tokens, policy.temperature) == ("chat", 100, 0.5)
    assert policy.context_limit == min(5000, context)
    assert load(directory).context_limit == 700


needs_llguidance = pytest.mark.skipif(not constraints.is_available(), reason="llguidance is not installed")


@needs_llguidance
def test_an_untrained_models_constrained_answers_are_legal_in_every_family(directory):
    """Random weights write noise; held to the schema of its observation, every answer is an action that counts."""
    model = replace(load_model(directory, max_tokens=400, max_length=100_000), constrained=True)
    seats = []
    for family in tasks.FAMILIES:
        task = tasks.generate(family, 1, seed=5)[0]
        table = Table(task, seed=3)
        seats.append(table.observe(table.state.waiting[0]))
    requests = [
        ChatRequest(MESSAGES, schema=action_schema(observation, 60), max_tokens=400, replicate=n)
        for n, observation in enumerate(seats)
    ]
    for observation, reply in zip(seats, complete(model, *requests), strict=True):
        assert reply.finish_reason == "stop", reply.text
        action = observation.parse(reply.text)
        assert observation.move_problem(action) is None, reply.text


@needs_llguidance
def test_recorded_log_probabilities_are_those_of_the_constrained_distribution(directory):
    import torch

    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    model = load_model(directory, constrained="on", dtype="float32")
    (reply,) = complete(model, replace(ASKED, schema=schema, max_tokens=40))
    assert json.loads(reply.text) in ({"n": 1}, {"n": 2})
    tokenizer = load_tokenizer(directory / "model", SETTINGS)
    causal = load_causal_lm(ModelSettings(base=str(directory / "model"))).eval()
    prompt = prompt_ids(tokenizer, MESSAGES)
    with torch.no_grad():
        logits = causal(torch.tensor([[*prompt, *reply.token_ids]])).logits[0]
    constraint = constraints.Grammars(tokenizer, logits.shape[1], tokenizer.eos_token_id).constraint(schema)
    for step, (token, logprob) in enumerate(zip(reply.token_ids, reply.logprobs, strict=True)):
        row = constraints.masked(logits[len(prompt) + step - 1][None], [constraint])
        assert row.log_softmax(-1)[0, token].item() == pytest.approx(logprob, abs=1e-4)
        constraint.take(token)


@needs_llguidance
def test_an_uncompilable_schema_warns_once_and_answers_are_unconstrained(directory, caplog):
    model = load_model(directory, constrained="on")
    odd = replace(ASKED, schema={"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}})
    replies = complete(model, odd, replace(odd, replicate=1), ASKED)
    assert [kind for reply in replies for kind, _ in reply.failures] == ["unconstrained", "unconstrained"]
    assert sum("schema cannot be compiled" in record.message for record in caplog.records) == 1


def test_missing_constrained_decoding_is_reported_before_loading(directory, monkeypatch):
    monkeypatch.setattr(chat_model, "is_available", lambda: False)
    with raises(InvalidValueError, field="constrained"):
        load_model(directory, constrained="on")
    assert isinstance(load_model(directory), LocalChatModel)
    assert not load_model(directory).constrained


def test_a_forecast_samples_nothing(directory, monkeypatch):
    """A model in this process is counted like one on a server, in a seat and as a judge."""
    monkeypatch.setattr(BatchedGenerator, "generate", None)
    models = StandInModels(ModelOptions())
    policy = naming.make_policy(f"{directory}:max_length=4000")
    judge = naming.make_evaluator(f"judge:{directory}", model_factory=models.judge)
    plans = plan_episodes(tasks.generate("bargaining", 1, seed=1), [(policy, "conceder")])
    rows = asyncio.run(CallCounter(models).of_plans(plans, judge))
    assert {row.role for row in rows} == {"agent", "judge"}
    assert all(row.calls and row.first_prompt for row in rows)
