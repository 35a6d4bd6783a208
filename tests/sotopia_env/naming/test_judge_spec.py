"""Judges by name, alone and joined."""

import asyncio

import pytest

from sotopia_env.evaluators import Composite, Ensemble
from sotopia_env.evaluators.evaluator import custom_dimensions
from sotopia_env.evaluators.judge.dimensions_file import load_dimensions
from sotopia_env.evaluators.judge.llm_judge import LLMJudge
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.naming import make_evaluator as make
from sotopia_env.testing import ScriptedChatModel
from sotopia_env.world.reward import CustomDimension, Dimension
from tests.errors import raises
from tests.sotopia_env.evaluators.doubles import transcript
from tests.sotopia_env.evaluators.judge_doubles import honest

HELLO = transcript("Hello.", "Good evening.")


def judged(judge):
    return asyncio.run(judge.evaluate(HELLO))


def factory(calls):
    def make_model(name, **options):
        calls.append((name, options))
        return ScriptedChatModel(honest, name=name)

    return make_model


def test_make_reads_a_judge_with_options(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text("- {name: salary, low: 1, high: 5, instruction: How close}\n")
    calls = []
    options = (
        f"per=agent,bands=true,temperature=0.5,reasks=1,max_tokens=99,dimensions=(goal,SEC),custom={path},replicate=2"
    )
    judge = make(f"judge:local/m:{options},api_base=http://localhost:1/v1", model_factory=factory(calls))
    assert calls == [("local/m", {"api_base": "http://localhost:1/v1"})]
    reference = LLMJudge(
        ScriptedChatModel([], name="local/m"),
        per="agent",
        bands=True,
        temperature=0.5,
        reasks=1,
        max_tokens=99,
        dimensions=["goal", "secret"],
        custom=load_dimensions(path),
        replicate=2,
    )
    assert judge.name == reference.name


CUSTOM = CustomDimension(name="salary", low=1, high=5, instruction="How close?")
OTHER = "- {name: charm, low: 1, high: 5, instruction: Charming}\n"


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ("judge:m", ["salary"]),
        ("judge:m:custom={path}", ["charm"]),
        ("verified+judge:m", ["salary"]),
        ("mean(judge:m+judge:n)", ["salary", "salary"]),
        ("verified+diligence", []),
    ],
)
def test_the_dimensions_of_a_task_file_are_for_judges_without_their_own(tmp_path, spec, names):
    path = tmp_path / "own.yaml"
    path.write_text(OTHER)
    judge = make(spec.format(path=path), model_factory=factory([]))
    scenario = HELLO.task.scenario.model_copy(update={"dimensions": (CUSTOM,)})
    task = HELLO.task.model_copy(update={"scenario": scenario})
    assert [dimension.name for dimension in custom_dimensions(judge, task)] == names


@pytest.mark.parametrize("spec", ["judge:m", " judge:m ", "judge:m:bands=false"])
def test_make_needs_no_options(spec):
    assert make(spec, model_factory=factory([])).name == LLMJudge(ScriptedChatModel([], name="m")).name


@pytest.mark.parametrize("aggregate", ["mean", "median", "majority"])
def test_make_joins_judges_to_an_ensemble(aggregate):
    ensemble = make(f"{aggregate}(judge:a+judge:b)", model_factory=factory([]))
    assert isinstance(ensemble, Ensemble)
    assert ensemble.aggregate == aggregate
    assert judged(ensemble).vector("agent_1").shape == (7,)


@pytest.mark.parametrize(
    ("spec", "quorum"),
    [
        ("mean(judge:a+judge:b+judge:c)", 3),
        ("mean(judge:a+judge:b+judge:c):quorum=2", 2),
        (" median( judge:a:dimensions=(goal,secret)+judge:b ) : quorum = 1", 1),
    ],
)
def test_an_ensemble_may_have_a_quorum(spec, quorum):
    assert make(spec, model_factory=factory([])).quorum == quorum


@pytest.mark.parametrize(
    ("spec", "error", "fields"),
    [
        ("mean(judge:a+judge:b):quorum=3", InvalidValueError, {"field": "quorum"}),
        ("mean(judge:a+judge:b):quorum=two", InvalidValueError, {"field": "quorum"}),
        ("mean(judge:a+judge:b):qorum=1", UnknownNameError, {"field": "qorum", "nearest": "quorum"}),
        ("mean(judge:a+verified):quorum=1", InvalidValueError, {"field": "quorum"}),
        ("judge:", InvalidValueError, {"field": "evaluator"}),
        ("judge", UnknownNameError, {"field": "evaluator", "nearest": "judge:MODEL"}),
        ("judge:m:pre=agent", UnknownNameError, {"field": "pre", "nearest": "per"}),
        ("judge:m:per=agents", UnknownNameError, {"field": "per", "nearest": "agent"}),
        ("judge:m:bands=yes", InvalidValueError, {"field": "bands"}),
        ("judge:m:reasks=two", InvalidValueError, {"field": "reasks"}),
        ("judge:m:per=agent,bands", InvalidValueError, {"field": ""}),
        ("judge:m:reasks=1,reasks=2", InvalidValueError, {"field": "reasks"}),
        ("judge:m:custom=nowhere.yaml", InvalidValueError, {"field": ""}),
        ("majority(judge:a+verified)", UnknownNameError, {"field": "aggregate"}),
        ("judge:a+judge:a", InvalidValueError, {"field": "evaluators"}),
        ("mean(judge:a+judge:a)", InvalidValueError, {"field": "judges"}),
        ("mean(judge:a:reasks=1+judge:a:reasks=3)", InvalidValueError, {"field": "judges"}),
        ("mode(judge:a+judge:b)", UnknownNameError, {"field": "aggregate", "nearest": "mean"}),
    ],
)
def test_make_refuses(spec, error, fields):
    with raises(error, **fields):
        make(spec, model_factory=factory([]))


def test_make_takes_the_real_models_by_default():
    judge = make("judge:local/m:api_base=http://127.0.0.1:9/v1")
    assert judge.model.name == "local/m"
    with raises(InvalidValueError, field="api_base"):
        make("judge:local/m")


def test_a_judge_composes_with_the_other_evaluators():
    model = ScriptedChatModel(honest)
    both = make("judge:m:dimensions=goal+sotopia_env.testing:FixedEvaluator", model_factory=lambda name: model)
    assert isinstance(both, Composite)
    sources = {score.dimension: score.source for score in judged(both).scores}
    assert sources[Dimension.GOAL].startswith("judge(scripted/model)#")
    assert sources[Dimension.SECRET] == ""
