import random
from datetime import UTC, datetime

import pytest

from sotopia_env.chat_model.retries import RetryPolicy, read_patience, retry_after
from sotopia_env.chat_model.transports.attempt import FailedAttempt, error_message, raise_for_status
from sotopia_env.foundation.errors import ContextLengthError, InvalidValueError
from tests.errors import raises

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after": "0"}, 0.0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"Retry-After": "-3"}, 0.0),
        ({"Retry-After": "Sun, 01 Mar 2026 12:00:30 GMT"}, 30.0),
        ({"Retry-After": "Sun, 01 Mar 2026 11:00:00 GMT"}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "inf"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "7", "retry-after-ms": "250"}, 0.25),
    ],
)
def test_what_a_server_asks_to_wait(headers, seconds):
    assert retry_after(headers, NOW) == seconds


def test_jitter_is_full_and_bounded():
    policy = RetryPolicy(base=1.0, cap=8.0)
    rng = random.Random(1)
    for retry, bound in [(0, 1), (1, 2), (2, 4), (3, 8), (4, 8), (5000, 8)]:
        delays = [policy.delay(retry, None, rng) for _ in range(400)]
        assert 0 <= min(delays) < 0.05 * bound
        assert 0.95 * bound < max(delays) <= bound


def test_the_servers_requested_wait_is_a_minimum():
    policy = RetryPolicy(base=1.0, cap=8.0)
    rng = random.Random(1)
    delays = [policy.delay(4, 10.0, rng) for _ in range(200)]
    assert min(delays) >= 10.0
    assert max(delays) <= 11.0
    assert len(set(delays)) > 100  # callers that failed together do not come back together


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(90, 90.0), ("90", 90.0), ("0", 0.0), ("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0), (" 2 m", 120.0)],
)
def test_patience_in_words(value, seconds):
    assert read_patience(value) == seconds


@pytest.mark.parametrize("value", ["", "m", "-1", "ten minutes", "inf", "nan", "1d", "10 m s"])
def test_invalid_patience_is_refused(value):
    with raises(InvalidValueError, got=value):
        read_patience(value)


@pytest.mark.parametrize("options", [{"retries": -1}, {"retries": 2.0}, {"empty_retries": True}, {"base": -1}])
@pytest.mark.parametrize("other", [{}, {"cap": float("nan")}])
def test_invalid_retry_policies_are_refused(options, other):
    with raises(InvalidValueError, field=next(iter(options))):
        RetryPolicy(**{**other, **options})


STATUSES = [
    (400, "bad_request", False),
    (401, "auth", False),
    (403, "auth", False),
    (404, "bad_request", False),
    (408, "timeout", True),
    (409, "server", True),
    (413, "bad_request", False),
    (422, "bad_request", False),
    (429, "rate_limit", True),
    (301, "bad_request", False),
    (500, "server", True),
    (502, "server", True),
    (503, "server", True),
    (504, "server", True),
    (529, "server", True),
]


@pytest.mark.parametrize(("status", "kind", "retryable"), STATUSES)
def test_what_a_status_means(status, kind, retryable):
    with pytest.raises(FailedAttempt) as caught:
        raise_for_status(status, "no", "", {"Retry-After": "3"})
    failure = caught.value
    assert (failure.kind, failure.status, failure.retryable, failure.wait) == (kind, status, retryable, 3.0)


def test_a_quota_that_is_used_up_is_not_waited_for():
    with pytest.raises(FailedAttempt) as caught:
        raise_for_status(429, "You exceeded your current quota", "insufficient_quota", {})
    assert not caught.value.retryable


# The servers' own sentences, with their numbers changed.
TOO_LONG = [
    ("openai", 400, "This model's maximum context length is 4096 tokens. However, your messages resulted in 9", 4096),
    ("vllm", 400, "This model's maximum context length is 4096 tokens. However, you requested 9000 tokens", 4096),
    (
        "vllm-newer",
        400,
        "The decoder prompt (length 9000) is longer than the maximum model length of 4096. Make sure",
        4096,
    ),
    (
        "vllm-answer",
        400,
        "'max_tokens' is too large: 9000. This model's maximum context length is 4096 tokens and your request",
        4096,
    ),
    ("sglang", 400, "The input (9000 tokens) is longer than the model's context length (4096 tokens).", 4096),
    ("tgi", 422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 9000", 4096),
    ("llama.cpp", 400, "the request exceeds the available context size, try increasing it", None),
    (
        "llama.cpp-newer",
        400,
        "request (9000 tokens) exceeds the available context size (4096 tokens), try increasing it",
        4096,
    ),
    ("lm-studio", 400, "the model is loaded with context length of only 4,096 tokens, which is not enough", 4096),
    ("anthropic", 400, "prompt is too long: 9000 tokens > 4096 maximum", 4096),
    ("gemini", 400, "The input token count (9000) exceeds the maximum number of tokens allowed (4096).", 4096),
    (
        "vllm-0.15",
        400,
        "You passed 9000 input tokens and requested 1 output tokens. However, the model's context length is only 4096",
        4096,
    ),
    ("vllm-0.7", 400, "The prompt (total length 9000) is too long to fit into the model (context length 4096)", 4096),
    ("openai-newer", 400, "Your input exceeds the context window of this model. Please adjust your input", None),
    ("openai-tpm", 429, "Request too large for gpt-4o in organization o on tokens per min (TPM): Limit 4096", None),
    ("openai-code", 400, "too much context_length_exceeded", None),
    ("bedrock", 400, "Input is too long for requested model.", None),
    ("xai", 400, "This model's maximum prompt length is 4096 but the request contains 9000 tokens.", 4096),
    ("groq", 400, "Please reduce the length of the messages or completion.", None),
    ("copilot", 400, "prompt token count of 9000 exceeds the limit of 4096", None),
    ("minimax", 400, "invalid params, context window exceeds limit", None),
    ("kimi", 400, "Your request exceeded model token limit: 4096 (requested: 9000)", 4096),
    ("qwen", 400, "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 4096]", None),
    ("glm", 400, "Prompt exceeds max length", None),
    (
        "lm-studio-keep",
        400,
        "The number of tokens to keep from the initial prompt is greater than the context length",
        None,
    ),
    ("anthropic-answer", 400, "input length and `max_tokens` exceed context limit: 4090 + 9 > 4096", 4096),
    ("letta", 400, "Input tokens exceed the configured limit of 4096 tokens", None),
    ("cohere", 400, "too many tokens: total number of tokens in the prompt cannot exceed 4096", None),
    ("mistral", 400, "Prompt contains 9000 tokens, too large for model with 4096 maximum context length", 4096),
]


@pytest.mark.parametrize(("message", "status", "limit"), [row[2:0:-1] + row[3:] for row in TOO_LONG])
def test_servers_say_too_long_in_many_ways(message, status, limit):
    with pytest.raises(ContextLengthError) as caught:
        raise_for_status(status, message, "", {})
    assert caught.value.limit == limit


@pytest.mark.parametrize(
    "message", ["max_tokens: expected a number", "the messages must alternate", "context: no such field", "bad length"]
)
def test_other_refusals_are_not_mistaken_for_too_long(message):
    with pytest.raises(FailedAttempt):
        raise_for_status(400, message, "", {})


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        ('{"error": {"message": "no", "code": "c", "type": "t"}}', "no", "c t"),
        ('{"object": "error", "message": "no", "type": "t", "code": 400}', "no", "400 t"),
        ('{"detail": "Not Found"}', "Not Found", " "),
        ('{"error": "no", "error_type": "validation"}', "no", ""),
        ("<html>502</html>", "this is a web page, not an API", ""),
        (
            "<!doctype html>\n<html><head><title> 502 Bad\nGateway </title>",
            "this is a web page, not an API ('502 Bad Gateway')",
            "",
        ),
        (
            '{"detail": [{"loc": ["body", "seed"], "msg": "Extra inputs are not permitted", "input": "a secret"}]}',
            "body.seed: Extra inputs are not permitted",
            " ",
        ),
        ("[1]", "[1]", ""),
        ("null", "None", ""),
        (" ", "empty body", ""),
    ],
)
def test_error_bodies(body, message, code):
    assert error_message(body) == (message, code)


def test_a_long_message_is_shown_short_and_on_one_line():
    line = str(FailedAttempt("server", "a\nb " + "x" * 10_000))
    assert len(line) == 300
    assert "\n" not in line


@pytest.mark.parametrize(
    ("status", "message", "code", "final"),
    [
        (400, "bad value: 'They told me: invalid api key, model gpt does not exist'", "invalid_value", False),
        (403, "not for you: 'model_not_found'", " ", False),
        (400, "no", "model_not_found invalid_request_error", True),
        (403, "no", "invalid_api_key", True),
        (422, "no", "model_not_found", False),
        (401, "", "", True),
        (404, "", "", True),
    ],
)
def test_only_the_servers_own_words_make_a_refusal_final(status, message, code, final):
    with pytest.raises(FailedAttempt) as caught:
        raise_for_status(status, message, code, {})
    assert caught.value.final is final


@pytest.mark.parametrize(("status", "doubtful"), [(408, True), (504, True), (503, False), (429, False), (400, False)])
def test_a_gateway_that_gave_up_may_bill_all_the_same(status, doubtful):
    with pytest.raises(FailedAttempt) as caught:
        raise_for_status(status, "no", "", {})
    assert caught.value.doubtful is doubtful
