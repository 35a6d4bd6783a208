"""Constraints of answers: masks of a schema, and answers that go on without one where the engine gives up."""

import asyncio
import json

import pytest
from sotopia_training.models import constraints
from sotopia_training.models.constraints import Grammars
from sotopia_training.models.generation import BatchedGenerator, Sampling
from sotopia_training.models.loading import load_causal_lm
from sotopia_training.stage.settings import ModelSettings

from sotopia_env import Table, tasks
from sotopia_env.naming import make_policy
from sotopia_env.policies.answer_schema import action_schema
from sotopia_env.world import Rules
from sotopia_env.world.action import to_json
from sotopia_env.writing.simulation import SimulationDraft

pytestmark = pytest.mark.skipif(not constraints.is_available(), reason="llguidance is not installed")
CHOICE = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
WORDS = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
BROKEN = {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}


@pytest.fixture(scope="module")
def model(tiny_model):
    return load_causal_lm(ModelSettings(base=str(tiny_model), lora=None)).eval()


def answers(model, tokenizer, schemas, limit=40):
    generator = BatchedGenerator(model, tokenizer, Sampling(limit))
    return generator.generate([[7, 8, 9]] * len(schemas), range(len(schemas)), schemas)


def test_rows_of_one_batch_follow_their_own_schemas(model, tokenizer):
    schemas = [CHOICE, None, CHOICE, None]
    results = answers(model, tokenizer, schemas)
    assert [answer.ids for answer in results[1::2]] == [a.ids for a in answers(model, tokenizer, [None] * 4)[1::2]]
    for answer in results[::2]:
        assert json.loads(tokenizer.decode(answer.ids[:-1])) in ({"n": 1}, {"n": 2})
        assert answer.ids[-1] == tokenizer.eos_token_id
    assert not any(answer.unconstrained for answer in results)


def test_a_keyword_that_the_engine_lacks_leaves_the_rest_of_a_schema_in_force(model, tokenizer, caplog):
    named = {"type": "object", "propertyNames": {"maxLength": 9}, "additionalProperties": {"type": "integer"}}
    schema = {**CHOICE, "properties": {**CHOICE["properties"], "m": named}}
    (answer,) = answers(model, tokenizer, [schema])
    assert not answer.unconstrained
    assert not caplog.records
    assert tokenizer.decode(answer.ids).startswith('{"n": ')


def test_the_form_of_a_draft_can_be_compiled(tokenizer, model):
    grammars = Grammars(tokenizer, model.config.vocab_size, tokenizer.eos_token_id)
    assert not grammars.constraint(SimulationDraft.model_json_schema()).failure


def test_an_uncompilable_schema_leaves_answers_unconstrained_and_marked(model, tokenizer, caplog):
    results = answers(model, tokenizer, [BROKEN, CHOICE, BROKEN])
    assert [bool(answer.unconstrained) for answer in results] == [True, False, True]
    free = answers(model, tokenizer, [None] * 3)
    assert [results[row].ids for row in (0, 2)] == [free[row].ids for row in (0, 2)]
    assert len(caplog.records) == 1


def test_an_engine_failure_leaves_the_rest_of_an_answer_unconstrained_and_marked(model, tokenizer, monkeypatch, caplog):
    """The engine's own limit on the work of a step, set so low that it is met: the answers do not end there."""
    import llguidance

    limits = llguidance.LLParserLimits(step_lexer_fuel=1)

    def limited(tokens, grammar):
        return llguidance.LLMatcher(tokens, grammar, log_level=0, limits=limits)

    monkeypatch.setattr(constraints, "_new_matcher", limited)
    results = answers(model, tokenizer, [WORDS, WORDS, None])
    assert [bool(answer.unconstrained) for answer in results] == [True, True, False]
    assert all(len(answer.ids) == 40 or answer.finished for answer in results)
    assert max(len(answer.ids) for answer in results[:2]) > 1
    assert len(caplog.records) == 1


def test_a_constraint_allows_valid_tokens_and_then_only_the_end_token(tokenizer):
    constraint = Grammars(tokenizer, len(tokenizer), tokenizer.eos_token_id).constraint(CHOICE)
    for token in tokenizer('{"n": 1}', add_special_tokens=False)["input_ids"]:  # in the form of json.dumps
        allowed = constraint.allowed()
        assert allowed[token]
        assert not allowed[tokenizer.eos_token_id]
        constraint.take(token)
    assert constraint.allowed().nonzero()[0].tolist() == [tokenizer.eos_token_id]
    assert not constraint.failure


@pytest.mark.parametrize("family", tasks.FAMILIES)
def test_the_form_of_training_data_is_admitted_token_by_token(tokenizer, family):
    """A clone writes what the scripts' records hold; another order of keys or other spaces would be foreign to it."""
    task = tasks.generate(family, 1, seed=5)[0]
    table = Table(task, Rules(max_turns=8), seed=3)
    grammars = Grammars(tokenizer, len(tokenizer), tokenizer.eos_token_id)
    policy = make_policy("linear")
    while table.state.stop is None:
        observation = table.observe(table.state.waiting[0])
        decision = asyncio.run(policy.act(observation, 1))
        constraint = grammars.constraint(action_schema(observation))
        for token in tokenizer(to_json(decision.action), add_special_tokens=False)["input_ids"]:
            assert constraint.allowed()[token], to_json(decision.action)
            constraint.take(token)
        table.answer(observation.agent, decision.action)
