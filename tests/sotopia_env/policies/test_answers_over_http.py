"""What is taken from a server's answers, over a socket: one table of messages and ends of texts, for three readers."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from sotopia_env.chat_model import make_model
from sotopia_env.evaluators.judge.llm_judge import LLMJudge
from sotopia_env.foundation.errors import EvaluationError, PolicyError
from sotopia_env.policies import LLMPolicy
from sotopia_env.policies.function_calls import action_text
from sotopia_env.world.action import ParseFailure, parse
from sotopia_env.world.answers import InterviewQuestion
from sotopia_env.world.observation import FunctionCall
from studies.judge_attacks.attacks import best_verdict
from tests.sotopia_env.chat_model.conftest import QUICK
from tests.sotopia_env.chat_model.server import LoopbackServer
from tests.sotopia_env.evaluators.doubles import transcript
from tests.sotopia_env.evaluators.judge_doubles import verdict
from tests.sotopia_env.factories import task
from tests.sotopia_env.policies.doubles import observed

MISTRAL = [{"type": "thinking", "thinking": [{"type": "text", "text": "I could answer DRAFT"}]}]
# (the message's content or the message, why it ended, whether ANSWER is taken)
ANSWERS = [
    ("ANSWER", "stop", True),
    ("```json\nANSWER\n```", "stop", True),
    ("Well, I think: ANSWER", "stop", True),
    ("ANSWER", "length", True),
    ("Well, I think: ANSWER", "length", False),
    ("ANSWER But", "length", False),
    ("ANSWER But no.", "stop", False),
    ("I could say DRAFT but that is wrong. ANSWER", "stop", False),
    ("[THINK]I could answer DRAFT No, that is wrong, and", "length", False),
    ("[THINK]I could answer DRAFT", "stop", False),
    ("[THINK]I could answer DRAFT No.[/THINK]ANSWER", "stop", True),
    ("<seed:think>DRAFT</seed:think>\nANSWER", "stop", True),
    ("<think>It wrote </think>DRAFT how odd</think>ANSWER", "stop", False),
    ("They do not know.</think>\n\nANSWER", "stop", True),
    ("I could answer DRAFT No.</think>ANSWER", "stop", False),
    ("ANSWER</think>", "stop", False),
    ("<|channel|>analysis<|message|>DRAFT?<|end|><|start|>assistant<|channel|>final<|message|>ANSWER", "stop", True),
    ("<|channel|>analysis<|message|>DRAFT", "length", False),
    ("<|channel>thought\nDRAFT<channel|>ANSWER", "stop", True),
    ({"content": "ANSWER", "reasoning_content": "DRAFT"}, "stop", True),
    ({"content": "", "reasoning_content": "DRAFT"}, "length", False),
    ({"content": [*MISTRAL, {"type": "text", "text": "ANSWER"}]}, "stop", True),
    ({"content": MISTRAL}, "length", False),
    ({"content": [{"type": "reasoning", "text": "DRAFT"}, {"type": "text", "text": "ANSWER"}]}, "stop", True),
    ({"content": [{"type": "output_text", "text": "ANSWER"}]}, "stop", True),
    ({"content": {"type": "text", "text": "ANSWER"}}, "stop", True),
    ({"content": None, "refusal": "I will not write DRAFT"}, "stop", False),
    ({"content": None, "refusal": "DRAFT"}, "stop", False),
    ({"content": "ANSWER", "refusal": None}, "stop", True),
    ("Well, I think: DRAFT", "insufficient_system_resource", False),
    ("Well, I think: DRAFT", "RECITATION", False),
    ("Well, I think: ANSWER", None, True),
    ("I could say DRAFT but then DRA", None, False),
]
SPEECH = {kind: json.dumps({"action_type": "speak", "argument": kind}) for kind in ("DRAFT", "ANSWER")}
CHOICE = {"DRAFT": '{"answer": "no"}', "ANSWER": '{"answer": "yes"}'}
VERDICT = {"DRAFT": best_verdict(), "ANSWER": verdict()}


@pytest.fixture(scope="module")
def desk():
    """A server that answers as it is told, and three readers of its answers, each asked once."""
    with LoopbackServer(raw_type="application/json") as server:
        model = make_model("local/tiny", api_base=server.api_base, retries=QUICK, structured="off")
        policy = LLMPolicy(model, reasks=0)

        async def taken():
            observation, question = observed(task()), InterviewQuestion("agent_0", "Did you agree?")
            judge = LLMJudge(model, reasks=0)
            calls = {
                "player": (SPEECH, policy.act(observation, 0)),
                "interview": (CHOICE, policy.answer(observation, question, 0)),
                "judge": (VERDICT, judge.evaluate(transcript("Hello.", "Good day."))),
            }
            results = {}
            for name, (texts, call) in calls.items():
                server.raw = server.body(texts)
                try:
                    results[name] = await call
                except (PolicyError, EvaluationError) as error:
                    results[name] = error
            await model.close()  # its connections belong to this event loop
            return results

        yield SimpleNamespace(server=server, taken=lambda: asyncio.run(taken()))


def chosen(results):
    """Which of the two objects each reader took; ``None`` for none."""
    player, interview, judge = results["player"], results["interview"], results["judge"]
    action = getattr(player, "action", None)
    scores = {score.value for score in getattr(judge, "scores", ())}
    return (
        action.argument or None if action else None,
        {0: "ANSWER", 1: "DRAFT"}.get(getattr(interview, "choice", None)),
        None if not scores else "DRAFT" if 10 in scores else "ANSWER",
    )


@pytest.mark.parametrize(("message", "finish_reason", "is_taken"), ANSWERS)
def test_one_rule_for_players_interviews_and_judges(desk, message, finish_reason, is_taken):
    def body(texts):
        whole = {"role": "assistant", **(message if isinstance(message, dict) else {"content": message})}
        text = json.dumps({"model": "tiny", "choices": [{"message": whole, "finish_reason": finish_reason}]})
        for word, value in texts.items():
            text = text.replace(word, json.dumps(value)[1:-1])
        return text.encode()

    desk.server.body = body
    results = desk.taken()
    assert chosen(results) == (("ANSWER" if is_taken else None),) * 3
    if finish_reason == "length" and not is_taken:
        reason = getattr(getattr(results["player"], "generation", None), "parse_failure", None) or str(
            results["player"]
        )
        assert "max_tokens" in reason


THOUGHTS = [
    ({"content": "<think>I could answer DRAFT"}, "length", "max_tokens"),
    ({"content": "<think>Hm."}, "stop", "reasoning parser"),
    ({"content": None, "reasoning_content": "Hm."}, "stop", "reasoning parser"),
    ({"content": ""}, "length", "max_tokens"),
    ({"content": ""}, "SAFETY", "filter"),
]


@pytest.mark.parametrize(("message", "finish_reason", "setting"), THOUGHTS)
def test_thoughts_alone_are_an_unusable_turn_and_no_failure(desk, message, finish_reason, setting):
    """The model works: the turn, the interview and the verdict say what is wrong, and the episode goes on."""
    choice = {"message": {"role": "assistant", **message}, "finish_reason": finish_reason}
    desk.server.body = lambda _: json.dumps({"model": "tiny", "choices": [choice]}).encode()
    before = desk.server.total
    results = desk.taken()
    assert desk.server.total == before + 3, "nothing is sent again"
    reasons = results["player"].generation.parse_failure, results["interview"].reason, results["judge"].unscored
    assert all(setting in reason for reason in reasons), reasons


@pytest.mark.parametrize(
    ("content", "finish_reason"), [("", "stop"), ("", None), ("", "error"), ("Well", "network_error")]
)
def test_an_answer_with_nothing_at_all_may_be_an_outage(desk, content, finish_reason):
    choice = {"message": {"role": "assistant", "content": content}, "finish_reason": finish_reason}
    desk.server.body = lambda _: json.dumps({"model": "tiny", "choices": [choice]}).encode()
    before = desk.server.total
    assert isinstance(desk.taken()["player"], PolicyError)
    assert desk.server.total > before + 3, "it is asked for again"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("say", '{"words": "Hm.", "action_type": "leave"}'),
        ("say", '{"words": "Hm.", "argument": "Yes."}'),
        ("propose", '{"terms": {"price": 5}, "words": "", "move": {"accept": 1}}'),
        ("wait", '"or rather" {"action_type": "leave"}'),
        ("wait", '[{"action_type": "leave"}]'),
        ("say", '{"words": "Hm.", "words": "Yes."}'),
        ("say", '{"words": "Hm'),
        ("leave", '{"words": null, "really": false}'),
    ],
)
def test_a_call_that_contradicts_itself_or_hides_an_object_is_not_an_action(name, arguments):
    text = action_text([FunctionCall(name, arguments)])
    assert isinstance(parse(text), ParseFailure), text


EVENT = "data: " + json.dumps({"choices": [{"delta": {"content": "I could say DRAFT"}}]})
FAILED = {"message": {"content": "I could say DRAFT"}, "finish_reason": "stop", "error": {"code": 502}}


@pytest.mark.parametrize(
    "body",
    [
        f'{EVENT}\n\ndata: {{"error": {{"message": "overloaded", "code": 503}}}}\n\ndata: [DONE]\n\n',
        json.dumps({"choices": [FAILED]}),
    ],
    ids=["event", "choice"],
)
def test_nothing_is_taken_from_an_answer_that_an_error_ended(desk, body):
    desk.server.body = lambda texts: body.replace("DRAFT", json.dumps(texts["DRAFT"])[1:-1]).encode()
    assert chosen(desk.taken()) == (None,) * 3
