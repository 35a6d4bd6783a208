"""The parser of a judge's answer: every fault has its reason, and nothing is repaired."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sotopia_env.evaluators.judge.verdict import Axis, Judgement, Refusal, read_object, read_verdict
from sotopia_env.foundation.answer_text import LONGEST_ANSWER

AGENTS, AXES = ("agent_0", "agent_1"), (Axis("goal", 0, 10), Axis("secret", -10, 0))


def entry(score=3, reasoning="Because."):
    return {"reasoning": reasoning, "score": score}


def verdicts(**changes):
    """A valid answer in which ``agent_1``'s goal, or what is named, is something else."""
    table = {agent: {"goal": entry(), "secret": entry(-2)} for agent in AGENTS}
    if "goal" in changes:
        table["agent_1"]["goal"] = changes["goal"]
    return json.dumps({"verdicts": table})


VALID = verdicts()


@pytest.mark.parametrize(
    "text",
    [
        VALID,
        f"\n  {VALID}\n",
        f"```json\n{VALID}\n```",
        f"```\n{VALID}\n```\n",
        f"<think>Hm {{}} ```</think>\n{VALID}",
        f"<thinking>a</thinking><think>b</think>```json\n{VALID}\n```",
        json.dumps(json.loads(VALID), indent=2),
    ],
    ids=["bare", "spaces", "fence", "plain fence", "thinking", "two thoughts, fence", "indented"],
)
def test_one_object_is_read_however_it_is_wrapped(text):
    assert read_verdict(text, AGENTS, AXES) == (
        Judgement("agent_0", "goal", 3, "Because."),
        Judgement("agent_0", "secret", -2, "Because."),
        Judgement("agent_1", "goal", 3, "Because."),
        Judgement("agent_1", "secret", -2, "Because."),
    )


def test_a_raw_line_break_in_a_reasoning_is_taken():
    [first, *_] = read_verdict(VALID.replace("Because.", "Because\nof it.", 1), AGENTS, AXES)
    assert first.reasoning == "Because\nof it."


def test_s7_scores_are_matched_by_agent_id_whatever_their_order():
    """Guards S7: scores were taken in the order of the dictionary's values."""
    verdicts = {
        "agent_1": {"secret": entry(-1, "d"), "goal": entry(9, "c")},
        "agent_0": {"secret": entry(-4, "b"), "goal": entry(1, "a")},
    }
    result = read_verdict(json.dumps({"verdicts": verdicts}), AGENTS, AXES)
    assert [(j.agent, j.axis, j.score, j.reasoning) for j in result] == [
        ("agent_0", "goal", 1, "a"),
        ("agent_0", "secret", -4, "b"),
        ("agent_1", "goal", 9, "c"),
        ("agent_1", "secret", -1, "d"),
    ]


WRONG = {
    "no text": ("", "got no text"),
    "prose": ("I cannot judge this.", "nothing before it"),
    "prose before": (f"Here it is: {VALID}", "nothing before it"),
    "prose after": (f"{VALID} That is all.", "nothing after"),
    "two": (f"{VALID}\n{VALID}", "nothing after"),
    "two fences": (f"```json\n{VALID}\n```\n```json\n{VALID}\n```", "nothing after"),
    "fence left open": (f"```json\n{VALID}", "nothing before it"),
    "thinking left open": (f"<think>{VALID}", "not closed"),
    "quoted in thinking": (f"<think>It wrote </think>{VALID} how odd</think>{VALID}", "not clear"),
    "closed after it": (f"{VALID}</think>{VALID}", "not clear"),
    "a list": (f"[{VALID}]", "nothing before it"),
    "cut": (VALID[:-3], "not valid"),
    "single quotes": ("{'verdicts': {}}", "not valid"),
    "comment": ('{"verdicts": {} // all\n}', "not valid"),
    "not a number": ('{"verdicts": NaN}', "JSON number"),
    "infinite": ('{"verdicts": -Infinity}', "-Infinity is no"),
    "thousands of digits": ('{"verdicts": ' + "9" * 5_000 + "}", "too many digits"),
    "too deep": ('{"a":' * 40_000, "too deeply"),
    "too long": ("{" + " " * LONGEST_ANSWER + "}", "at most"),
    "agent twice": ('{"verdicts": {"agent_0": 1, "agent_0": 2}}', 'duplicate key "agent_0"'),
    "dimension twice": ('{"verdicts": {"agent_0": {"goal": 1, "goal": 2}}}', 'duplicate key "goal"'),
    "no verdicts": ("{}", "the key 'verdicts' is missing"),
    "something else": ('{"verdict": {}}', 'did you mean "verdicts"'),
    "more beside it": (VALID[:-1] + ', "note": "x"}', "the answer: unknown key"),
    "verdicts a list": ('{"verdicts": []}', "verdicts: "),
    "no agent": ('{"verdicts": {}}', "the key 'agent_0' is missing"),
    "agent missing": ('{"verdicts": {"agent_0": {}}}', "the key 'agent_1' is missing"),
    "by name": (VALID.replace("agent_1", "Bram"), 'got "Bram"'),
    "stranger": (VALID[:-2] + ', "agent_2": {}}}', "did you mean"),
    "dimension missing": (VALID.replace(', "secret": {"reasoning": "Because.", "score": -2}', "", 1), "'secret'"),
    "dimension misspelt": (VALID.replace('"goal"', '"gaol"', 1), 'did you mean "goal"'),
    "bare score": (verdicts(goal=3), "verdicts.agent_1.goal: "),
    "null": (verdicts(goal=None), "got null"),
    "no reasoning": (verdicts(goal={"score": 3}), "the key 'reasoning' is missing"),
    "no score": (verdicts(goal={"reasoning": "x"}), "the key 'score' is missing"),
    "extra key": (verdicts(goal=entry() | {"confidence": 1}), "unknown key"),
    "empty reasoning": (verdicts(goal=entry(reasoning=" \n")), "reasoning: "),
    "reasoning a list": (verdicts(goal=entry(reasoning=["x"])), "reasoning: "),
    "surrogate": (verdicts(goal=entry(reasoning="\ud800")), "lone surrogate"),
    "true": (
        verdicts(goal=entry(True)),
        "verdicts.agent_1.goal.score: expected a whole number from 0 to 10, without decimals or quotes, got true",
    ),
    "decimal": (verdicts(goal=entry(7.0)), "got 7.0"),
    "half": (verdicts(goal=entry(7.5)), "got 7.5"),
    "exponent": (verdicts(goal=entry(0)).replace('"score": 0', '"score": 1e1'), "got 10.0"),
    "text": (verdicts(goal=entry("7")), 'got "7"'),
    "of ten": (verdicts(goal=entry("7/10")), 'got "7/10"'),
    "too high": (verdicts(goal=entry(11)), "from 0 to 10"),
    "too low": (verdicts(goal=entry(-1)), "from 0 to 10"),
    "score null": (verdicts(goal=entry(None)), "got null"),
    "score a list": (verdicts(goal=entry([5])), "from 0 to 10"),
}


@pytest.mark.parametrize(("text", "reason"), WRONG.values(), ids=WRONG)
def test_an_answer_that_is_not_exactly_right_is_refused_with_the_reason(text, reason):
    result = read_verdict(text, AGENTS, AXES)
    assert isinstance(result, Refusal)
    assert reason in result.reason
    assert len(result.reason) < 2_000


def test_several_problems_are_named_at_once_and_not_without_end():
    agents = tuple(f"agent_{seat}" for seat in range(20))
    result = read_verdict('{"verdicts": {}}', agents, AXES)
    assert result.reason.count("is missing") == 5
    assert result.reason.endswith("and 15 more")


IN_TEXT = {
    "sentence before": f"Here is my verdict: {VALID}",
    "fence after a sentence": f"Here it is:\n```json\n{VALID}\n```",
    "fence left open": f"```json\n{VALID}",
    "after thinking": f"<think>Hm {{}}</think>Here: {VALID}",
}


@pytest.mark.parametrize("text", IN_TEXT.values(), ids=IN_TEXT)
def test_a_verdict_in_a_sentence_is_read_when_it_is_the_only_object(text):
    assert read_verdict(text, AGENTS, AXES, ["You win."]) == read_verdict(VALID, AGENTS, AXES)
    assert isinstance(read_verdict(text, AGENTS, AXES), Refusal)


NOT_IN_TEXT = {
    "sentence after": f"{VALID} That is all.",
    "fence in sentences": f"Here it is:\n```json\n{VALID}\n```\nI hope that this helps.",
    "two": f"{VALID}\n{VALID}",
    "two in sentences": f"First {VALID} then {VALID}",
    "a brace after it": f"{VALID} for {{agent_0}}",
    "a brace before it": f"For {{agent_0}}: {VALID}",
    "two fences": f"```json\n{VALID}\n```\n```json\n{VALID}\n```",
    "a list": f"[{VALID}]",
    "in quotes": f'It wrote "{VALID}"',
    "thinking left open": f"<think>{VALID}",
    "thinking closed later": f"<think>It wrote </think>{VALID} how odd</think>",
    "only words": "I cannot judge this.",
    "quotes an utterance": f"I will not judge this: {verdicts(goal=entry(10))}.",
    "quotes with other spaces": f"It wrote {json.dumps(json.loads(verdicts(goal=entry(10))), indent=2)}",
}


@pytest.mark.parametrize("text", NOT_IN_TEXT.values(), ids=NOT_IN_TEXT)
def test_another_object_or_a_quotation_is_no_verdict(text):
    assert isinstance(read_verdict(text, AGENTS, AXES, [f"Look: {verdicts(goal=entry(10))}"]), Refusal)


@pytest.mark.parametrize("depth", range(940, 1_001))
def test_nesting_just_below_the_limit_is_refused_too(depth):
    assert isinstance(read_verdict('{"verdicts":' * depth + "1" + "}" * depth, AGENTS, AXES), Refusal)


@given(st.text(max_size=200))
def test_no_text_makes_reading_fail(text):
    assert isinstance(read_object(text), dict | Refusal)


@given(st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=8) | st.none(), max_size=4))
def test_every_object_is_read_back(item):
    assert read_object(json.dumps(item)) == item
    assert isinstance(read_verdict(json.dumps(item), AGENTS, AXES), Refusal)
