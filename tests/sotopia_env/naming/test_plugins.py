"""Policies and scorers of other packages: by entry point, import path and directory."""

from __future__ import annotations

import asyncio
import hashlib
import sys
import types
from pathlib import Path

import pytest

from sotopia_env.foundation.errors import InvalidValueError, SotopiaError, UnknownNameError
from sotopia_env.naming import make_policy as make
from sotopia_env.naming.scorers import make_scorer
from sotopia_env.policies import BestOfNPolicy, LLMPolicy
from sotopia_env.policies.combined.best_of_n import OfferWorth
from sotopia_env.runs import plan_episodes, run_episodes
from sotopia_env.runs.rollout import open_run
from sotopia_env.storage.manifest import read_manifest
from sotopia_env.testing import ScriptedChatModel, check_policy
from tests.errors import raises
from tests.sotopia_env.factories import task
from tests.sotopia_env.policies.doubles import act, observed
from tests.sotopia_env.runs.rollout_doubles import make_task

SOURCE = '''
from dataclasses import dataclass, field
from os import system as run
from pathlib import Path
from sotopia_env.world.action import Action, ActionType
from sotopia_env.policies import Decision, LLMPolicy

@dataclass(frozen=True)
class Echo:
    """Says what it was made with."""
    text: str = "hello"
    times: int = 1
    path: Path | None = None
    temperature: float = 1.0
    name: str = "echo"
    @property
    def parameters(self):
        return {"text": self.text, "times": self.times, "temperature": self.temperature, "path": str(self.path)}
    async def act(self, observation, seed):
        return Decision(Action(ActionType.SPEAK, " ".join([self.text] * self.times)))
    @staticmethod
    def opens(path):
        return (path / "echo.txt").is_file()

class Longest:
    name, parameters = "longest", {}
    def __init__(self, sign: int = 1):
        self.sign = sign
    async def score(self, observation, decisions):
        return [float(self.sign * len(decision.action.argument)) for decision in decisions]

def opened_scorer(path):
    return Longest(int((path / "sign.txt").read_text()))
opened_scorer.opens = lambda path: (path / "sign.txt").is_file()

def with_model(chat_model, model):
    return LLMPolicy(chat_model(model), name="wrapped")
def needy(wanted): return Echo(wanted)
def anything(**settings): return Echo(text=repr(sorted(settings.items())))
def not_a_policy(): return 7
def picky(text="x"): return Echo(text + 1 - "a")
class Ill:
    @staticmethod
    def opens(path):
        raise LookupError("ill")
constant = 7
'''
ENTRY_POINTS = """
[sotopia.policies]
a-bad-one = bad_name:Echo
an-ill-one = plugged_in:Ill
echo = plugged_in:Echo
broken = plugged_in:no_such_name
[sotopia.scorers]
longest = plugged_in:Longest
from-directory = plugged_in:opened_scorer
"""


@pytest.fixture(autouse=True)
def _package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package that declares entry points, as a wheel would."""
    site = tmp_path / "site"
    info = site / "plugged_in-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "plugged_in.py").write_text(SOURCE)
    (site / "bad_syntax.py").write_text("x = = 1")
    (site / "bad_value.py").write_text("raise ValueError('no\\ngood')")
    (site / "bad_file.py").write_text("open('/no/such/file')")
    (site / "bad_name.py").write_text("no_such_name")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged-in\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "plugged_in", raising=False)
    monkeypatch.chdir(tmp_path)


def words_of(policy: object) -> str:
    return act(policy, observed(task())).argument


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("echo", "hello"),
        ("echo:text=hi,times=3", "hi hi hi"),
        (" echo : text = hi ", "hi"),
        ("plugged_in:Echo", "hello"),
        ("plugged_in:Echo:text=hi, times=2", "hi hi"),
        ("plugged_in:anything:a=1,b=x,c=true,d=a:b", "[('a', 1), ('b', 'x'), ('c', True), ('d', 'a:b')]"),
    ],
)
def test_names_and_import_paths(spec: str, expected: str) -> None:
    assert words_of(make(spec)) == expected


@pytest.mark.parametrize("spec", ["./run/adapter", "run/adapter/", "run/adapter", "ABSOLUTE", "../HERE/run/adapter"])
def test_a_directory_is_opened_by_the_plugin_that_claims_it(tmp_path: Path, spec: str) -> None:
    (tmp_path / "run" / "adapter").mkdir(parents=True)
    (tmp_path / "run" / "adapter" / "echo.txt").touch()
    spec = spec.replace("ABSOLUTE", str(tmp_path / "run/adapter")).replace("HERE", tmp_path.name)
    policy = make(f"{spec}:text=hi", manner={"temperature": 0.25, "max_tokens": 9})
    assert words_of(policy) == "hi"
    assert policy.parameters["path"].endswith("run/adapter")
    assert policy.parameters["temperature"] == 0.25  # what it takes of the command line's settings, and no more
    assert make(f"{spec}:temperature=0.5", manner={"temperature": 0.25}).parameters["temperature"] == 0.5


def test_a_directory_that_no_plugin_opens_is_a_model_unless_it_is_marked_as_one(tmp_path: Path) -> None:
    (tmp_path / "local" / "tiny").mkdir(parents=True)
    (tmp_path / "local" / "echo").mkdir()
    (tmp_path / "local" / "echo" / "echo.txt").touch()

    def models(name: str) -> ScriptedChatModel:
        return ScriptedChatModel([], name=name)

    assert isinstance(make("local/tiny", models), LLMPolicy)
    assert isinstance(make("local/echo", models), LLMPolicy)
    assert make("./local/echo", models).name == "echo"
    assert make("local/llama3:8b:temperature=0", models).name == "local/llama3:8b"
    for marked in ("local/tiny/", "./local/tiny"):
        with raises(InvalidValueError, field="policy"):
            make(marked, models)


def test_a_factory_gets_the_maker_of_models_when_it_asks_for_it() -> None:
    names = []

    def models(name: str) -> ScriptedChatModel:
        names.append(name)
        return ScriptedChatModel([], name=name)

    assert make("plugged_in:with_model:model=local/tiny", models).name == "wrapped"
    assert names == ["local/tiny"]


MISUSE: list[tuple[str, type[SotopiaError], dict[str, object]]] = [
    ("ecko", UnknownNameError, {"field": "policy", "nearest": "echo"}),
    ("echo:txt=1", UnknownNameError, {"field": "txt", "nearest": "text", "record": "policy 'echo'"}),
    ("echo:text=1,text=2", InvalidValueError, {"field": "text", "record": "policy 'echo'"}),
    ("echo:times=often", InvalidValueError, {"field": "times", "got": "often", "record": "policy 'echo'"}),
    ("echo:/some/folder", InvalidValueError, {"got": "/some/folder", "record": "policy 'echo'"}),
    ("echo:text=1,times", InvalidValueError, {"got": "times", "record": "policy 'echo'"}),
    ("broken", UnknownNameError, {"got": "no_such_name", "record": "policy plugged_in:no_such_name"}),
    ("plugged_in:Ecko", UnknownNameError, {"got": "Ecko", "nearest": "Echo"}),
    ("plugged_in:needy", InvalidValueError, {"field": "wanted", "record": "policy 'plugged_in:needy'"}),
    ("plugged_in:not_a_policy", InvalidValueError, {"field": "policy 'plugged_in:not_a_policy'", "got": 7}),
    ("plugged_in:Longest", InvalidValueError, {"field": "policy 'plugged_in:Longest'", "hint": "it lacks act"}),
    ("plugged_in:constant", InvalidValueError, {"got": 7, "record": "policy 'plugged_in:constant'"}),
    ("plugged_in:not_a_policy:x=1", UnknownNameError, {"field": "x", "record": "policy 'plugged_in:not_a_policy'"}),
    ("./nowhere", InvalidValueError, {"field": "policy", "got": "./nowhere"}),
    ("best-of-2(echo by lonkest)", UnknownNameError, {"field": "scorer", "nearest": "longest"}),
    ("best-of-2(echo by plugged_in:Echo)", InvalidValueError, {"field": "scorer 'plugged_in:Echo'"}),
    ("best-of-2(ecko by longest)", UnknownNameError, {"field": "policy", "nearest": "echo"}),
    ("plugged_in:run", InvalidValueError, {"record": "policy 'plugged_in:run'"}),
    ("plugged_in:Path", InvalidValueError, {"record": "policy 'plugged_in:Path'"}),
    ("plugged_in:picky", InvalidValueError, {"record": "policy 'plugged_in:picky'"}),
    *(
        (spec, InvalidValueError, {"field": "policy", "got": spec})
        for spec in (
            "no_such_module:x",
            "bad_syntax:x",
            "bad_value:x",
            "bad_file:x",
            "os:system",
            "best-of-0(echo by longest)",
            "best-of-two(echo by longest)",
            "best-of-1025(echo by longest)",
            f"best-of-{'9' * 5000}(echo by longest)",
            "best-of-2(echo)",
            "best-of-2",
            "best-of-2(human by longest)",
        )
    ),
]


@pytest.mark.parametrize(("spec", "error", "fields"), MISUSE)
def test_misuse_is_a_sentence(spec: str, error: type[SotopiaError], fields: dict[str, object]) -> None:
    with raises(error, **fields) as caught:
        make(spec)
    assert "\n" not in str(caught.value)


def test_modules_in_the_working_directory_can_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_policies.py").write_text(SOURCE)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    assert words_of(make("my_own_policies:Echo:text=mine")) == "mine"
    sys.modules.pop("my_own_policies")


def test_the_code_that_names_import_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "code_of_mine.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    plans = plan_episodes([make_task("s0")], [(make("code_of_mine:Echo"), make("echo"))])
    assert asyncio.run(run_episodes(plans, run_dir=tmp_path / "run", progress=False)).played == 1
    code = read_manifest(tmp_path / "run").code
    digest = hashlib.sha256(SOURCE.encode()).hexdigest()[:16]
    assert code["code_of_mine"] == [{"file": "code_of_mine.py", "sha256": digest}]
    assert code["plugged_in"][0]["sha256"] == digest
    assert str(tmp_path) not in (tmp_path / "run" / "run.json").read_text()


def test_a_run_that_is_resumed_with_other_code_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    code = [{"mine": {"file": "mine.py", "sha256": digest}} for digest in ("aa", "aa", "bb")]
    plans = plan_episodes([make_task("s0")], [(make("echo"),)])
    for item in code:
        with open_run(plans, None, tmp_path / "run") as directory:
            directory.note_code(item)
    assert [source["sha256"] for source in read_manifest(tmp_path / "run").code["mine"]] == ["aa", "bb"]
    assert caplog.text.count("the code of mine has changed") == 1


def test_a_module_that_is_already_imported_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("made_by_hand")  # without a spec, such as the script that runs
    monkeypatch.setitem(sys.modules, "made_by_hand", module)
    exec(SOURCE, module.__dict__)
    assert words_of(make("made_by_hand:Echo:text=here")) == "here"


@pytest.mark.parametrize(("scorer", "sign"), [("longest", 1), ("plugged_in:Longest:sign=-1", -1), ("rm/", -1)])
def test_best_of_n_takes_any_scorer(tmp_path: Path, scorer: str, sign: int) -> None:
    (tmp_path / "rm").mkdir()
    (tmp_path / "rm" / "sign.txt").write_text("-1")
    replies = [f'{{"action_type": "speak", "argument": "{"x" * length}"}}' for length in (3, 5, 2)]

    def models(name: str) -> ScriptedChatModel:
        return ScriptedChatModel(replies, name=name)

    policy = make(f"best-of-3(local/tiny:temperature=0.7,reasks=0 by {scorer})", models)
    assert isinstance(policy, BestOfNPolicy)
    assert policy.name == "best-of-3(local/tiny by longest)"
    assert policy.parameters["policy"]["parameters"]["temperature"] == 0.7
    assert len(words_of(policy)) == {1: 5, -1: 2}[sign]


def test_specifications_nest_and_settings_of_the_command_line_reach_the_inner_policy() -> None:
    def models(name: str) -> ScriptedChatModel:
        return ScriptedChatModel(lambda request: '{"action_type": "speak", "argument": "a"}', name=name)

    policy = make("best-of-2(best-of-3(local/m by longest) by offer-worth)", models, {"temperature": 0.5})
    assert (policy.n, policy.policy.n, policy.scorer) == (2, 3, OfferWorth())
    assert policy.policy.policy.temperature == 0.5
    assert make("best-of-1(echo by offer-worth)").name == "best-of-1(echo by offer-worth)"


def test_a_scorer_is_made_of_its_name_or_is_one() -> None:
    assert make_scorer("offer-worth") == make_scorer(OfferWorth()) == OfferWorth()
    for wrong in (OfferWorth, 7):
        with raises(InvalidValueError, field="scorer"):
            make_scorer(wrong)  # type: ignore[arg-type]


def test_a_policy_of_another_package_keeps_the_same_promises() -> None:
    check_policy(make("echo"))
    assert asyncio.run(make("echo").act(observed(task()), 0)).errors == ()
