"""Function calls in process: shown by the chat template, read from the sampled text, refused where neither can be."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest
import trl
from sotopia_training.models.chat_model import load_model
from sotopia_training.models.function_calls import calls_in, check_calls, render
from sotopia_training.models.tokenizers import CHATML
from sotopia_training.stage.settings import PromptSettings

from sotopia_env import Table, naming
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.policies.agent_prompt import AgentPrompt
from sotopia_env.policies.function_calls import functions_of, with_calls
from sotopia_env.world import Rules
from sotopia_env.world.observation import FunctionCall
from tests.errors import raises
from tests.sotopia_env.outcome_tasks import contract

TEMPLATES = Path(trl.__file__).parent / "chat_templates"
HERMES = (
    "{%- if tools %}{{- '<|im_start|>system\n' + (tools | tojson) + '<|im_end|>\n' }}{%- endif %}"
    "{%- for m in messages %}{{- '<|im_start|>' + m['role'] + '\n' + m['content'] }}"
    "{%- for call in m['tool_calls'] or [] %}{{- '<tool_call>\n' + (call['function'] | tojson) + '\n</tool_call>' }}"
    "{%- endfor %}{{- '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
SAY = FunctionCall("say", '{"words": "Hello."}')


@pytest.fixture
def with_template(tiny_model, tmp_path):
    """Makes a copy of the tiny model with another chat template."""

    def make(template):
        own = shutil.copytree(tiny_model, tmp_path / "model")
        (own / "chat_template.jinja").write_text(template)
        # The tiny tokenizer spends a token on nearly every letter, and definitions of functions are long.
        config = json.loads((own / "config.json").read_text())
        (own / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 8192}))
        return own

    return make


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ('<tool_call>\n{"name": "say", "arguments": {"words": "Hello."}}\n</tool_call>', [SAY]),
        ('{"name": "say", "parameters": {"words": "Hello."}}', [SAY]),
        ('[{"name": "say", "arguments": {"words": "Hello."}}]', [SAY]),
        ('<think>Shall I?</think>\nWell. {"name": "say", "arguments": {"words": "Hello."}}', [SAY]),
        ('{"name": "say", "arguments": {}} {"name": "leave", "arguments": {}}', 2),
        ('{"name": "say", "argu', []),
        ("Hello.", []),
        ('{"action_type": "leave", "argument": ""}', []),
    ],
)
def test_calls_are_the_objects_with_a_name_and_arguments(text, calls):
    objects = calls_in(text)
    assert len(objects) == calls if isinstance(calls, int) else list(objects) == calls


@pytest.mark.parametrize("name", ["qwen2_5", "qwen3", "llama3_1", "llama3_2"])
def test_templates_of_real_models_are_read_back(tokenizer, name, monkeypatch):
    monkeypatch.setattr(tokenizer, "chat_template", (TEMPLATES / f"{name}.jinja").read_text())
    check_calls(tokenizer, name)


@pytest.mark.parametrize("name", ["llama3", "phi3", "gemma", "gemma4", "gptoss", "deepseekv3"])
def test_other_templates_are_refused_with_another_format(tokenizer, name, monkeypatch):
    monkeypatch.setattr(tokenizer, "chat_template", (TEMPLATES / f"{name}.jinja").read_text())
    with raises(InvalidValueError, field="chat_template", file=name) as caught:
        check_calls(tokenizer, name)
    assert "'chat'" in caught.value.hint


def test_a_directory_without_functions_in_its_template_is_refused_before_it_plays(with_template):
    own = with_template(CHATML)
    naming.make_policy(f"{own}/")
    with raises(InvalidValueError, field="chat_template"):
        naming.make_policy(f"{own}/:format=tools")


def test_a_directory_plays_with_functions(with_template):
    """The tiny model calls nothing that means anything; its prompts and its record are those of the format."""
    own = with_template(HERMES)
    policy = naming.make_policy(f"{own}/:format=tools,max_length=4000,max_tokens=24")
    table = Table(contract(), Rules(max_turns=2), seed=1)
    asyncio.run(table.play(dict.fromkeys(table.task.agents, policy)))
    assert len(table.episode().turns) == 2
    assert all(item.generation.usage.prompt_tokens > 300 for item in table.episode().turns)


def test_own_calls_are_in_the_words_of_the_template(with_template):
    model = load_model(with_template(HERMES), prompt=PromptSettings(max_length=4000))
    observation = Table(contract(), Rules(max_turns=2), seed=1).observe("agent_0")
    first = AgentPrompt("tools").messages(observation)
    own = {"role": "assistant", "content": '{"action_type": "speak", "argument": "Hello."}'}
    messages = with_calls([*first, own, {"role": "user", "content": "Turn #3 is yours."}])
    text = render(model.tokenizer, messages, functions_of(observation))
    called = text[text.index("<tool_call>") :]
    assert json.loads(called.removeprefix("<tool_call>").partition("</tool_call>")[0]) == {
        "name": "say",
        "arguments": {"words": "Hello."},
    }
    assert '"withdraw"' in text
    tools = functions_of(observation)
    assert model.prompt_tokens(messages, tools) > model.prompt_tokens(first, tools) > model.prompt_tokens(first)
