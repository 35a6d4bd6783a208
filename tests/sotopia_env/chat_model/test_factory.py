import asyncio
import contextlib
import subprocess
import sys
from dataclasses import replace

import pytest

from sotopia_env.chat_model import make_model
from sotopia_env.chat_model.remote import check
from sotopia_env.chat_model.spending.budget import Price
from sotopia_env.foundation.errors import InvalidValueError, UnknownNameError
from sotopia_env.foundation.extras import install_command
from sotopia_env.foundation.versions import package_versions
from tests.errors import raises
from tests.sotopia_env.chat_model.conftest import ASK, KEY, WAYS
from tests.sotopia_env.chat_model.test_contract import ask

BASE = "http://127.0.0.1:9/v1"
MISUSE = [
    ("local/tiny", {}, {"field": "api_base"}),
    ("local/", {"api_base": BASE}, {"field": "model"}),
    ("local", {"api_base": BASE}, {"field": "model"}),
    ("local/tiny", {"api_base": "localhost:8000/v1"}, {"field": "api_base"}),
    ("local/tiny", {"api_base": "ftp://host/v1"}, {"field": "api_base", "got": "ftp://host/v1"}),
    ("local/tiny", {"api_base": "http:///v1"}, {"field": "api_base"}),
    ("local/tiny", {"api_base": "http://host:port/v1"}, {"field": "api_base"}),
    ("local/tiny", {"api_base": "http://host:8000/v1/chat/completions"}, {"field": "api_base"}),
    ("local/tiny", {"api_base": "http://user:hunter22@host/v1"}, {"field": "api_base"}),
    ("local/tiny", {"api_base": "http://host/v1?key=hunter22"}, {"field": "api_base"}),
    ("local/tiny", {"api_base": BASE, "api_key_env": "NO_SUCH_KEY"}, {"field": "NO_SUCH_KEY"}),
    ("local/tiny", {"api_base": BASE, "timeout": 0}, {"field": "timeout"}),
    ("local/tiny", {"api_base": BASE, "retries": -1}, {"field": "retries"}),
    ("local/tiny", {"api_base": BASE, "max_tokens": 0}, {"field": "max_tokens"}),
    ("local/tiny", {"api_base": BASE, "tpm": 500, "max_tokens": 501}, {"field": "max_tokens", "got": 501}),
    ("local/tiny", {"api_base": BASE, "rpm": 10, "tpm": 5}, {"field": "tpm", "got": 5}),
    ("local/tiny", {"api_base": BASE, "structured": "yes"}, {"field": "structured", "got": "yes"}),
    ("local/tiny", {"api_base": BASE, "fallbacks": ("openai/gpt-4o",)}, {"field": "fallbacks"}),
    ("opnai/gpt-4o", {}, {"field": "model", "nearest": "openai"}),
    ("loca/tiny", {"api_base": BASE}, {"field": "model", "nearest": "local"}),
    ("no-such-model", {}, {"field": "model"}),
    ("anthropic/claude-x", {}, {"field": "model"}),
    ("openai/gpt-4o", {"api_key_env": "NO_SUCH_KEY"}, {"field": "NO_SUCH_KEY"}),
]


@pytest.mark.parametrize(("spec", "options", "fields"), MISUSE)
def test_misuse_is_answered_with_one_sentence(spec, options, fields, monkeypatch, capfd):
    for variable in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "NO_SUCH_KEY", "OPENAI_COMPATIBLE_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    with raises(InvalidValueError, **fields) as caught:
        make_model(spec, **options)
    assert "hunter22" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_a_key_that_is_invalid_in_a_header(monkeypatch):
    monkeypatch.setenv("OPENAI_COMPATIBLE_API_KEY", "hunter22\nX: y")
    with raises(InvalidValueError, field="OPENAI_COMPATIBLE_API_KEY") as caught:
        make_model("local/tiny", api_base=BASE)
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize("name", WAYS)
def test_the_key_comes_from_the_variable_that_is_named(name, serve, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-of-my-own")
    monkeypatch.setenv(WAYS[name].variable, KEY)
    server = serve(key="sk-of-my-own")
    [reply] = ask(WAYS[name].make(server, api_key_env="MY_KEY"))
    assert reply.attempts == 1
    [error] = ask(WAYS[name].make(server))
    assert (error.kind, error.status) == ("auth", 401)


def test_a_server_of_ones_own_needs_no_key(direct, serve):
    server = serve()
    ask(direct.make(server))
    assert "Authorization" not in server.requests[0].headers


def test_both_prefixes_name_the_same_path(serve, direct):
    server = serve()
    ask(make_model("openai-compatible/org/name", api_base=server.api_base + "/"))
    assert server.requests[0].body["model"] == "org/name"


def test_fallbacks_by_name_are_on_the_same_server(direct, serve):
    server = serve(script=["not_found"])
    [reply] = ask(direct.make(server, fallbacks=("local/other",)))
    assert (reply.fallback, reply.model) == (True, "other-2026")
    assert [request.body["model"] for request in server.requests] == ["tiny", "other"]


def test_a_limit_on_answers_is_sent_unless_the_request_has_its_own(direct, serve):
    server = serve()
    ask(direct.make(server, max_tokens=77))
    assert server.requests[0].body["max_tokens"] == 77


def test_prices_are_known_declared_or_unknown(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert make_model("local/tiny", api_base=BASE).price is None
    assert make_model("local/tiny", api_base=BASE, price=Price(0, 0)).price == Price(0, 0)
    price = make_model("openai/gpt-4o-mini").price
    assert price is not None
    assert (round(price.prompt, 6), round(price.completion, 6)) == (0.15, 0.6)
    assert make_model("openai/no-model-of-that-name").price is None


def run_check(model):
    async def run():
        try:
            await check(model)
        finally:
            await model.close()

    asyncio.run(run())


def test_a_model_the_server_does_not_have(serve, direct):
    model = make_model("local/tinny", api_base=serve().api_base)
    with raises(UnknownNameError, field="model", nearest="tiny"):
        run_check(model)


def test_a_fallback_is_checked_too(serve, direct):
    with raises(UnknownNameError, field="model", got="absent"):
        run_check(direct.make(serve(), fallbacks=("local/absent",)))


def test_a_server_that_does_not_exist(serve, direct):
    server = serve()
    server.__exit__()
    with raises(InvalidValueError, field="model", expected=f"a server at {server.api_base}"):
        run_check(direct.make(server))


def test_a_host_that_does_not_exist(direct):
    with raises(InvalidValueError, field="model", record="model 'local/tiny'"):
        run_check(make_model("local/tiny", api_base="http://no-such-host.invalid:8000/v1"))


def test_a_key_that_is_not_accepted(serve, direct, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-of-my-own")
    with raises(InvalidValueError, field="MY_KEY", got="HTTP 401") as caught:
        run_check(direct.make(serve(key=KEY), api_key_env="MY_KEY"))
    assert "sk-of" not in str(caught.value)


def test_a_server_without_a_list_of_models_is_left_to_the_first_call(serve, direct):
    run_check(make_model("local/tiny", api_base=serve().api_base.removesuffix("/v1") + "/other/v1"))


def test_a_base_url_without_v1_gets_the_right_one_as_a_hint(serve, direct):
    server = serve()
    with raises(InvalidValueError, field="model", expected=f"the base URL {server.api_base}"):
        run_check(make_model("local/tiny", api_base=server.api_base.removesuffix("/v1")))


@pytest.mark.parametrize(
    ("spec", "variable", "warning"),
    [
        ("openai/gpt-4o-mini", "OPENAI_API_KEY", ""),
        ("openai/ft:gpt-4o-mini:me::x1", "OPENAI_API_KEY", ""),
        ("openai/gpt-4o-mimi", "OPENAI_API_KEY", "did you mean 'openai/gpt-4o-mini'?"),
        ("anthropic/claude-of-next-year", "ANTHROPIC_API_KEY", "unknown to litellm"),
        ("huggingface/me/whatever-i-call-it", "HUGGINGFACE_API_KEY", ""),
    ],
)
def test_a_providers_model_is_checked_without_the_network(spec, variable, warning, monkeypatch, caplog):
    """A name that litellm does not list may be newer than its list: it is warned about, not refused."""
    monkeypatch.setenv(variable, KEY)
    model = make_model(spec)
    monkeypatch.setattr("socket.socket.connect", None)
    run_check(model)
    assert warning in caplog.text
    assert bool(caplog.text) == bool(warning)


HOSTED = [
    ("openai/gpt-4o-mini", {}, None),
    ("openai/gpt-4o-mimi", {}, {"field": "model", "nearest": "gpt-4o-mini"}),
    ("openai/gpt-5-of-tomorrow", {"models": ("openai/*",)}, None),
    ("openai/gpt-4o-mini", {"models": ("gpt-4o-mini:latest",)}, None),
    ("hosted_vllm/tinny", {}, {"field": "model", "nearest": "tiny"}),
    ("ollama/tinny", {}, None),
    ("anthropic/claude-x", {}, None),  # no such list there; it is there, and the first call will tell
    ("openai/gpt-4o-mini", {"key": "another"}, {"field": "OPENAI_API_KEY", "got": "HTTP 401"}),
    ("hosted_vllm/tiny", {"key": "another"}, None),  # no key was sent: perhaps litellm finds one
]


@pytest.mark.parametrize(("spec", "options", "fields"), HOSTED)
def test_a_providers_model_at_an_address_of_ones_own_is_asked_for_there(serve, monkeypatch, spec, options, fields):
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(variable, KEY)
    monkeypatch.delenv("HOSTED_VLLM_API_KEY", raising=False)
    server = serve(**options)
    model = make_model(spec, api_base=server.api_base)
    with raises(InvalidValueError, **fields) if fields else contextlib.nullcontext():
        run_check(model)
    assert server.total == 0


@pytest.mark.parametrize("spec", ["openai/gpt-4o-mini", "anthropic/claude-x"])
def test_a_providers_address_that_cannot_be_reached(monkeypatch, spec):
    for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(variable, KEY)
    with raises(InvalidValueError, field="model", record=f"model {spec!r}"):
        run_check(make_model(spec, api_base=BASE))


def test_the_direct_path_does_without_litellm(serve):
    code = (
        "import asyncio, sys\n"
        "from sotopia_env.chat_model import ChatRequest, make_model\n"
        "assert 'aiohttp' not in sys.modules\n"
        "model = make_model('local/tiny', api_base=sys.argv[1])\n"
        "async def main():\n"
        "    await model.complete(ChatRequest(messages=({'role': 'user', 'content': 'hi'},)))\n"
        "    await model.close()\n"
        "asyncio.run(main())\n"
        "assert 'litellm' not in sys.modules\n"
    )
    run = subprocess.run([sys.executable, "-W", "error", "-c", code, serve().api_base], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")


WITHOUT_LITELLM = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("litellm", "openai", "httpx"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from sotopia_env.cli.app import main
main()
"""


@pytest.mark.parametrize(
    ("model", "code", "sentence"),
    [
        ("local/tiny", 0, ""),
        ("openai/gpt-4o", 2, install_command("hosted")),
    ],
)
def test_a_run_without_litellm(serve, tmp_path, model, code, sentence):
    command = [sys.executable, "-c", WITHOUT_LITELLM, "rollout", "--policy", f"silent,{model}", "--tasks", "starter"]
    command += ["-n", "1", "--evaluator", "none", "--api-base", serve().api_base, "--out", str(tmp_path / "run")]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == code, run.stderr
    assert sentence in run.stderr
    assert run.stderr.count("\n") == (code == 2)


def test_a_package_that_is_not_installed_has_no_version():
    versions = package_versions(("aiohttp", "no-such-package-of-ours"))
    assert versions["no-such-package-of-ours"] is None
    assert versions["aiohttp"]


def test_token_ids_of_a_server_that_gives_them(direct, serve):
    [reply] = ask(direct.make(serve()), replace(ASK, logprobs=True))
    assert reply.token_ids == tuple(range(100, 108))
    assert reply.prompt_token_ids == (0, 1, 2, 3)
    assert len(reply.logprobs or ()) == 8
