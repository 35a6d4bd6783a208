import json

import pytest

from sotopia_env.chat_model.transports.attempt import FailedAttempt
from sotopia_env.chat_model.transports.completion import decode_answer, read_completion, split_reasoning
from sotopia_env.chat_model.transports.keys import read_key


def body(**choice):
    return {"model": "m", "choices": [{"message": {"content": "hi"}, "finish_reason": "stop", **choice}]}


def entries(*items):
    return {"content": [{"logprob": -1.0, **item} for item in items]}


@pytest.mark.parametrize(
    ("choice", "ids"),
    [
        ({"token_ids": [5, 6]}, (5, 6)),  # vLLM, return_token_ids
        ({"logprobs": entries({"token": "token_id:5"}, {"token": "token_id:6"})}, (5, 6)),  # vLLM, older
        ({"logprobs": entries({"token": "h", "id": 5}, {"token": "i", "id": 6})}, (5, 6)),  # llama.cpp
        ({"logprobs": entries({"token": "h"}, {"token": "i", "id": 6})}, None),
        ({"logprobs": None}, None),
        ({"logprobs": {"content": None}}, None),
        ({}, None),
    ],
)
def test_token_ids_are_read_from_every_servers_field(choice, ids):
    assert read_completion(body(**choice), 0.0).token_ids == ids


@pytest.mark.parametrize("answer", [{**body(), "prompt_token_ids": [1, 2]}, body(prompt_token_ids=[1, 2])])
def test_token_ids_of_the_prompt_are_read_from_every_servers_field(answer):
    assert read_completion(answer, 0.0).prompt_token_ids == (1, 2)


MISTRAL = [{"type": "thinking", "thinking": [{"type": "text", "text": "s"}, {"type": "text", "text": "o"}]}]


@pytest.mark.parametrize(
    ("message", "text", "reasoning"),
    [
        ({"content": "hi"}, "hi", ""),
        ({"content": None}, "", ""),
        ({"content": [{"type": "text", "text": "h"}, {"type": "image"}, {"type": "text", "text": "i"}]}, "hi", ""),
        ({"content": None, "refusal": "I would rather not."}, "I would rather not.", ""),
        ({"content": "\n\nhi", "reasoning_content": "\nso\n"}, "hi", "so"),
        ({"content": "hi", "reasoning": "so"}, "hi", "so"),
        ({"content": "hi", "reasoning_content": None, "reasoning": None}, "hi", ""),
        ({"content": "<think>so</think>hi"}, "hi", "so"),
        ({"content": "hi", "reasoning_details": [{"type": "reasoning.text", "text": "so"}]}, "hi", "so"),
        ({"content": "hi", "thinking_blocks": [{"type": "thinking", "thinking": "so", "signature": "x"}]}, "hi", "so"),
        ({"content": [*MISTRAL, {"type": "text", "text": "hi"}]}, "hi", "so"),
        ({"content": [{"type": "thinking", "thinking": "so"}, {"type": "text", "text": "hi"}]}, "hi", "so"),
        ({"content": [{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "hi"}]}, "hi", ""),
        ({"content": [{"type": "reasoning", "text": "so"}, {"type": "text", "text": "hi"}]}, "hi", "so"),
        ({"content": MISTRAL}, "", "so"),
    ],
)
def test_text_and_reasoning(message, text, reasoning):
    reply = read_completion(body(message=message), 0.0)
    assert (reply.text, reply.reasoning) == (text, reasoning)


UNCOUNTED = [
    (None, (None, None)),
    ({}, (None, None)),
    ({"prompt_tokens": 0, "completion_tokens": 0}, (None, None)),
    ({"prompt_tokens": 7}, (7, None)),
    ({"prompt_tokens": 7, "completion_tokens": 0}, (7, None)),  # and yet there is a text
]


@pytest.mark.parametrize(("usage", "tokens"), UNCOUNTED)
def test_what_a_server_does_not_count_is_unknown(usage, tokens):
    reply = read_completion({**body(), "usage": usage}, 0.5)
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cost, reply.latency) == (*tokens, None, 0.5)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        "hello",
        {},
        {"choices": []},
        {"choices": None},
        {"choices": [{}]},
        {"choices": [{"message": None}]},
        {"choices": [{"message": {"content": 5}}]},
        {"choices": [{"message": {"content": [{"type": "text"}]}}]},
        body(logprobs={"content": [{"token": "h"}]}),
        body(token_ids=["x"]),
    ],
)
def test_an_answer_that_is_not_a_completion_is_malformed(answer):
    with pytest.raises(FailedAttempt) as caught:
        read_completion(answer, 0.0)
    assert caught.value.kind == "malformed"


@pytest.mark.parametrize(
    ("content", "text", "reasoning"),
    [
        ("plain", "plain", ""),
        ("a < b", "a < b", ""),
        ("<think>a</think>b", "b", "a"),
        ("  <THINK>\na\n</THINK>\n\nb\n", "b\n", "a"),
        ("<reasoning>a</reasoning><think>b</think>c", "c", "a\nb"),
        ("<think></think>b", "b", ""),
        ("<think>a", "", "a"),
        ("<think>", "", ""),
        ("a\n</think>\nb", "b", "a"),  # the template opened the block in the prompt
        ('{"argument": "</think> he said"}', '{"argument": "</think> he said"}', ""),
        ('```json\n{"argument": "</think>"}\n```', '```json\n{"argument": "</think>"}\n```', ""),
        ("I <think>so</think> too", "I  too", "so"),
        ('{"x": 1}</think>{"x": 2}', '{"x": 1}</think>{"x": 2}', ""),
        ('<think>a</think>{"x": "<think>b</think>"}', '{"x": "<think>b</think>"}', "a"),
        ("a <thinking", "a <thinking", ""),
    ],
)
def test_thinking_is_split_off(content, text, reasoning):
    assert split_reasoning(content) == (text, reasoning)


@pytest.mark.parametrize("tokens", [-1, float("inf"), float("nan"), "many", [1], True, {}, 10**30])
@pytest.mark.parametrize("whole", [False, True])
def test_a_good_answer_with_an_impossible_usage_is_kept(tokens, whole):
    usage = tokens if whole else {"prompt_tokens": tokens, "completion_tokens": tokens}
    reply = read_completion({**body(), "usage": usage}, 0.1)
    assert (reply.text, reply.prompt_tokens, reply.completion_tokens, reply.cost) == ("hi", None, None, None)


@pytest.mark.parametrize("name", ["tiny\ud800", "m" * 10_000_000, "\x1b]0;owned\x07tiny", "a\nb", 5, ["x"], None])
def test_a_model_name_can_be_written_and_shown_whatever_the_server_says(name):
    reply = read_completion({**body(finish_reason=name), "model": name}, 0.1)
    for label in (reply.model, reply.finish_reason):
        assert len(label) <= 1200
        assert label.isprintable()


@pytest.mark.parametrize(
    ("answer", "kind", "status"),
    [
        ({"error": {"message": "Provider is down", "code": 502}}, "server", 502),
        ({"error": {"message": "Pay", "code": 402}}, "rate_limit", 402),
        ({"error": {"message": "no such thing", "code": "model_not_found"}}, "bad_request", 404),
        ({"error": "out of memory", "error_type": "generation"}, "server", 500),
    ],
)
def test_an_error_in_an_answer_of_status_200_is_that_error(answer, kind, status):
    with pytest.raises(FailedAttempt) as caught:
        read_completion(answer, 0.0)
    assert (caught.value.kind, caught.value.status) == (kind, status)


def events(*deltas, end='data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'):
    lines = [f"data: {json.dumps({'model': 'm', 'choices': [{'delta': delta}]})}\n\n" for delta in deltas]
    return ("".join(lines) + end).encode()


def test_an_unrequested_stream_is_put_together():
    usage = 'data: {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}\n\n'
    raw = usage.encode() + events(
        {"role": "assistant"}, {"content": "h"}, {"content": "i"}, {"reasoning_content": "so"}
    )
    reply = read_completion(decode_answer(raw), 0.0)
    assert (reply.text, reply.reasoning, reply.model) == ("hi", "so", "m")
    assert (reply.prompt_tokens, reply.completion_tokens, reply.finish_reason) == (7, 2, "stop")


def test_parts_in_a_stream_are_put_together():
    raw = events({"content": MISTRAL}, {"content": "h"}, {"content": [{"type": "text", "text": "i"}]})
    reply = read_completion(decode_answer(raw), 0.0)
    assert (reply.text, reply.reasoning) == ("hi", "so")


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (events({"content": "h"}, end=""), "without an end"),
        (b"data: {\n\n", "not a stream of JSON"),
        (b'data: {"error": {"message": "Provider is down"}}\n\n', "Provider is down"),
        (b"<!DOCTYPE html><html><title>Open\nWebUI</title>", r"web page, not an API \('Open WebUI'\)"),
        (b"", "but empty"),
        (b"OK", "the answer is not JSON .*'OK'"),
    ],
)
def test_an_answer_that_is_not_json_is_described_in_the_error(raw, reason):
    with pytest.raises(FailedAttempt, match=reason):
        decode_answer(raw)


def test_a_key_is_hidden_whatever_its_variable_is_called_and_wherever_a_message_is_cut(monkeypatch):
    monkeypatch.setenv("MYCRED", "topsecret123456")
    read_key("MYCRED")
    for before in (0, 250, 287, 295, 400):
        assert "topsec" not in str(FailedAttempt("auth", "x" * before + " topsecret123456"))
