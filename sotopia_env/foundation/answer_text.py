"""The reader of answers: one rule for the texts of players, judges, interviewed agents and writers.

1. Thoughts are what the server marks as such, in fields of their own (``chat_model`` reads these), and what stands
   between the marks of :data:`SPELLINGS`. A thought that is not closed is followed by no answer. A closing mark alone
   (templates may open the thought in the prompt) ends a thought as well.
2. No mark may follow a JSON object: the object may have been a draft or a quotation, so nothing is taken.
3. Only a close may follow the last object: the end of a fence, of an element, of a list or of a turn. Objects inside an
   element whose name is not that of an answer (:data:`ELEMENTS`) may be thoughts.
4. Nothing is taken from a text that the model did not end itself, unless it is one whole object and nothing else.

Marks inside an object are words. Nothing is repaired.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from sotopia_env.foundation.json_text import ANSWER_DECODER, RefusedError
from sotopia_env.foundation.quoting import quote

LONGEST_ANSWER = 262_144
"""The maximum length of an answer, in characters."""
# fmt: off
ENDED = frozenset({
    "", "stop", "eos", "eostoken", "endturn", "stopsequence", "complete", "completed", "endoftext", "toolcalls",
    "toolcall", "tooluse", "functioncall", "unknown",
})
"""The values of ``finish_reason``, as small letters alone, with which a model ended its text itself: OpenAI; Together;
TGI and watsonx; Anthropic; Cohere and the Responses API; AI21; the names for function calls. Servers and hosts that do
not say count as these (Inspect's ``unknown``). After every other value, the text might have gone on."""
CUT_OFF = frozenset({"length", "maxtokens", "modellength", "maxoutputtokens", "modelcontextwindowexceeded"})
"""The values for a limit of tokens: OpenAI; Anthropic and Google; Mistral; the Responses API; Anthropic and Zhipu."""
FILTERED = frozenset({
    "contentfilter", "contentfiltered", "guardrailintervened", "refusal", "sensitive", "errortoxic",
    "safety", "recitation", "blocklist", "prohibitedcontent", "spii",
})
"""The values for a content filter: OpenAI and Azure; Bedrock (2); Anthropic; Zhipu; Cohere; Gemini (5)."""
INTERRUPTED = frozenset({
    "error", "networkerror", "insufficientsystemresource", "abort", "cancelled", "timeout", "timelimit",
})
"""The values for a failure of the server: Mistral, OpenRouter and Cohere; Zhipu; DeepSeek; vLLM and SGLang; watsonx;
Cohere; watsonx."""
ELEMENTS = frozenset({
    "answer", "final", "finalanswer", "output", "response", "reply", "result", "json",
    "toolcall", "functioncall", "message", "assistant", "s", "bos", "eos", "pad", "startofturn",
    "endofturn", "endofutterance",
})
"""Names of elements and tokens, as small letters alone, that may enclose or end an answer; a reader may add one."""
# fmt: on
FILTERED_REASON = (
    "the provider's content filter withheld the answer, or the model refused; use another model, or change the filter"
)
CUT_OFF_REASON = "the answer was cut off at its limit of tokens; be brief (the setting is max_tokens)"
SPENT_REASON = (
    "all tokens up to the limit were spent before the answer; raise max_tokens, or lower the model's reasoning effort"
)
NO_TEXT_REASON = (
    "no JSON object was found, and no text outside thoughts; give the JSON object after them (or check the server's "
    "reasoning parser, or switch the reasoning off)"
)
QUOTATION = "the JSON object is a quotation; give one JSON object and nothing else"
# Runaway output must not take long: each opening brace may cost an attempt to decode all that follows it.
_MOST_OBJECTS = 256


@dataclass(frozen=True, slots=True)
class Spelling:
    """How some models mark thoughts in their text; none of them was run with it here.

    Attributes:
        models: the models or families that use it.
        opening: the marks that open a thought, compared without regard to case.
        closing: the marks that close it.
        source: where the spelling was read.
    """

    models: str
    opening: tuple[str, ...]
    closing: tuple[str, ...]
    source: str


SPELLINGS: tuple[Spelling, ...] = (
    Spelling(
        "DeepSeek R1, Qwen3, QwQ, GLM, MiniMax M1 and M2, Kimi K2, Nemotron, OLMo 3, Hunyuan, ERNIE and others",
        ("<think>",),
        ("</think>",),
        "docs.vllm.ai/en/stable/features/reasoning_outputs; sglang: python/sglang/srt/parser/reasoning_parser.py",
    ),
    Spelling("prompted thoughts", ("<thinking>",), ("</thinking>",), "docs.claude.com: let Claude think"),
    Spelling(
        "Reka Flash 3, prompted thoughts", ("<reasoning>",), ("</reasoning>",), "huggingface.co/RekaAI/reka-flash-3"
    ),
    Spelling("prompted thoughts", ("<thought>",), ("</thought>",), "tag lists of public chat clients"),
    Spelling("Mistral: Magistral", ("[THINK]",), ("[/THINK]",), "huggingface.co/mistralai/Magistral-Small-2507"),
    Spelling("Seed-OSS", ("<seed:think>",), ("</seed:think>",), "vllm: vllm/reasoning/seedoss_reasoning_parser.py"),
    Spelling("MiniMax M3", ("<mm:think>",), ("</mm:think>",), "vllm: minimax_m3_reasoning_parser.py, its users' code"),
    Spelling(
        "Kimi Thinking",
        ("◁think▷",),
        ("◁/think▷",),
        "sglang: python/sglang/srt/parser/reasoning_parser.py, KimiDetector",
    ),
    Spelling(
        "Kimi K3",
        ("<|open|>think<|sep|>",),
        ("<|close|>think<|sep|>",),
        "sglang: python/sglang/srt/function_call/kimik3_format.py",
    ),
    Spelling("Gemma 4", ("<|channel>",), ("<channel|>",), "vllm: vllm/reasoning/gemma4_reasoning_parser.py"),
    Spelling(
        "Cohere Command",
        ("<|START_THINKING|>",),
        ("<|END_THINKING|>",),
        "vllm: vllm/reasoning/cohere_command_reasoning_parser.py",
    ),
    Spelling(
        "gpt-oss (harmony)",
        ("<|channel|>analysis", "<|channel|>commentary"),
        ("<|channel|>final<|message|>", "<|channel|>final <|constrain|>json<|message|>"),
        "cookbook.openai.com/articles/openai-harmony",
    ),
    Spelling(
        "gpt-oss, special tokens removed by the server",
        (),
        ("assistantfinal",),
        "cookbook.openai.com/articles/openai-harmony without its tokens",
    ),
    Spelling(
        "Granite 3.2",
        ("Here is my thought process:", "Here's my thought process:"),
        ("Here is my response:", "Here's my response:"),
        "vllm: vllm/reasoning/granite_reasoning_parser.py",
    ),
    Spelling(
        "Apertus", ("<|inner_prefix|>",), ("<|inner_suffix|>",), "vllm: vllm/reasoning/apertus_reasoning_parser.py"
    ),
    Spelling("OpenThinker, Sky-T1", ("<|begin_of_thought|>",), ("<|end_of_thought|>",), "their data sets' prompts"),
)


def _pattern(marks: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, marks)) or r"(?!)", re.IGNORECASE)


_CLOSING = [_pattern(row.closing) for row in SPELLINGS]
_OPENED = {mark.casefold(): index for index, row in enumerate(SPELLINGS) for mark in row.opening}
_MARK = _pattern(mark for row in SPELLINGS for mark in (*row.opening, *row.closing))
# Ends of fences, lists, elements and turns, as models and templates write them. Kimi K3 names what its tokens close.
_CLOSE = re.compile(
    r"(?:\s|```|\]|</?[\w:-]+>|<\|close\|>\w+<\|sep\|>|<\|[\w-]+\|>|<[\w-]+\|>"
    r"|\[/?(?:INST|EOS|END|ANSWER|RESPONSE|TOOL_CALLS)\])*",
    re.IGNORECASE,
)
_ELEMENT = re.compile(r"<(/?)([A-Za-z][\w:-]*)(?:\s[^<>{}]*)?>")
_FENCE = re.compile(r"```(?:json)?", re.IGNORECASE)
_OBJECT_START = re.compile(r'\{\s*"')


_MARK_AFTER_OBJECT = (
    "a mark of thinking follows a JSON object, so it is not clear which object is the answer; give one JSON object and "
    "nothing after it (a reasoning parser of the server keeps thoughts apart)"
)


class UnclearError(ValueError):
    """A text from which nothing is taken; the message is the reason, for the model and for the record."""


class UnclosedError(UnclearError):
    """A thought that is opened and not closed.

    Attributes:
        before: the text outside thoughts.
        thinking: the thoughts, without the mark that opens the last one.
    """

    def __init__(self, before: str, thinking: str) -> None:
        """Stores the parts of the text."""
        super().__init__("the thinking block is not closed; close it, and give the JSON object after it")
        self.before, self.thinking = before, thinking


class Division(NamedTuple):
    """A text without its thoughts.

    Attributes:
        answer: the rest of the text, unaltered.
        thinking: the thoughts, without the marks around them.
        lone: whether a closing mark alone ended a thought.
    """

    answer: str
    thinking: str
    lone: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """The JSON objects of a text, without those in its thoughts.

    Attributes:
        objects: the objects, in order.
        source: the text of the last object; empty if there is none.
        before: the text between the thoughts and the first object; all of the text if there is no object.
        alone: whether the text is one object and a close, with nothing before it but thoughts that are opened and
            closed, and a fence.
    """

    objects: tuple[dict[str, Any], ...]
    source: str
    before: str
    alone: bool


def is_interrupted(finish_reason: str) -> bool:
    """Whether a server's reason for the end of a text is a failure of the server."""
    return _letters(finish_reason) in INTERRUPTED


def _letters(name: str) -> str:
    """Returns a name without what differs between spellings: ``max_tokens``, ``MAX_TOKENS``, ``max-tokens``."""
    return name.replace("_", "").replace("-", "").lower()


def is_cut_off(finish_reason: str) -> bool:
    """Whether a server's reason for the end of a text is a limit of tokens."""
    return _letters(finish_reason) in CUT_OFF


def is_filtered(finish_reason: str) -> bool:
    """Whether a server's reason for the end of a text is a content filter."""
    return _letters(finish_reason) in FILTERED


def is_incomplete(finish_reason: str) -> bool:
    """Whether the model did not end its text itself."""
    return _letters(finish_reason) not in ENDED


def ending_problem(text: str, finish_reason: str) -> str:
    """Returns why nothing is taken from a text because of its end.

    Empty if the model ended the text itself, or the text is one object.
    """
    if not text.strip():
        return _end_reason(finish_reason, SPENT_REASON) or NO_TEXT_REASON
    if not is_incomplete(finish_reason):
        return ""
    if _letters(finish_reason) == "refusal":  # whatever the text is: what was generated is to be discarded
        return FILTERED_REASON
    try:
        is_whole = _MARK.search(text.partition("{")[0]) is None and read_answer(text).alone
    except UnclearError:
        is_whole = False
    if is_whole:
        return ""
    return _end_reason(finish_reason, CUT_OFF_REASON)


def _end_reason(finish_reason: str, cut_off: str) -> str:
    if is_filtered(finish_reason):
        return FILTERED_REASON
    if is_cut_off(finish_reason):
        return cut_off
    if not is_incomplete(finish_reason):
        return ""
    return (
        f"the server ended the answer early ({quote(finish_reason[:40])}); give one JSON object and nothing before it"
    )


def divide(text: str) -> Division:
    """Returns the answer and the thoughts in a text.

    Raises:
        UnclosedError: a thought is not closed.
        UnclearError: a mark follows an object.
    """
    answer: list[str] = []
    thoughts: list[str] = []
    position, lone = 0, False
    while mark := _next_mark(text, position):
        opened = _OPENED.get(mark.group().casefold())
        # A thought is opaque: only its own mark closes it, since it may mention the others.
        closing = mark if opened is None else _CLOSING[opened].search(text, mark.end())
        if closing is None:
            before = "".join((*answer, text[position : mark.start()]))
            raise UnclosedError(before, _joined((*thoughts, text[mark.end() :])))
        if opened is None:
            thoughts.append("".join((*answer, text[position : mark.start()])))
            answer.clear()
            lone = True
        else:
            answer.append(text[position : mark.start()])
            thoughts.append(text[mark.end() : closing.start()])
        position = closing.end()
    return Division("".join((*answer, text[position:])), _joined(thoughts), lone)


def _joined(thoughts: Iterable[str]) -> str:
    return "\n".join(filter(None, map(str.strip, thoughts)))


def _next_mark(text: str, position: int) -> re.Match[str] | None:
    """Returns the first mark from ``position`` on that is not inside an object; ``None`` if there is none.

    Raises:
        UnclearError: an object, or the beginning of one, precedes the mark.
    """
    is_after_object = False
    while mark := _MARK.search(text, position):
        item = next(_scan(text, position, mark.start()), None)
        if item is None and not is_after_object:
            return mark
        if item is None or item.end <= mark.start():
            raise UnclearError(_MARK_AFTER_OBJECT)
        is_after_object, position = True, item.end
    return None


def read_answer(text: str, element: str = "") -> Answer:
    """Returns the JSON objects of a text outside its thoughts; the caller decides how many there may be.

    Args:
        text: the text.
        element: the name of an element that may enclose the answer, beside :data:`ELEMENTS`.

    Raises:
        UnclearError: the text is too long, what begins like an object cannot be read, or the text breaks a rule of
            this module.
    """
    if len(text) > LONGEST_ANSWER:
        raise UnclearError(f"the text has {len(text)} characters; at most {LONGEST_ANSWER} are read")
    answer, _, lone = divide(text)
    items = list(_scan(answer, 0, len(answer)))
    if not items:
        return Answer((), "", answer, alone=False)
    first, last = items[0], items[-1]
    if name := _enclosing(answer[: first.start], element):
        raise UnclearError(f"the JSON object is inside <{name}>, which may be a thought; give it outside elements")
    following = [_letters(name) for _, name in _ELEMENT.findall(answer, last.end)]
    if not _CLOSE.fullmatch(answer, last.end) or not ELEMENTS.union([element]).issuperset(following):
        raise UnclearError("words follow the JSON object; give one JSON object, and nothing after it")
    before = answer[: first.start].strip()
    is_fenced = _FENCE.fullmatch(before) is not None and "```" in answer[last.end :]
    alone = not lone and len(items) == 1 and (not before or is_fenced)
    return Answer(tuple(item.value for item in items), answer[last.start : last.end], before, alone)


def _enclosing(text: str, element: str) -> str:
    """Returns the outermost element of no answer that ``text`` opens and does not close; empty if there is none."""
    opened: list[str] = []
    for closing, name in _ELEMENT.findall(text):
        if closing and name in opened:
            del opened[opened.index(name) :]
        elif not closing and _letters(name) not in (*ELEMENTS, element):
            opened.append(name)
    return opened[0][:40] if opened else ""


def own_answer(text: str, finish_reason: str, others: Iterable[str], element: str = "") -> Answer:
    """Returns the objects of a text that its writer did not quote from the texts of ``others``.

    An object alone counts as the writer's own, unless the text was cut off: nobody forbids an answer by writing it
    first.

    Raises:
        UnclearError: as :func:`read_answer`, or the text was cut off, or its object is a quotation.
    """
    if problem := ending_problem(text, finish_reason):
        raise UnclearError(problem)
    answer = read_answer(text, element)
    is_own = answer.alone and not is_incomplete(finish_reason)
    if answer.objects and not is_own and is_quotation(answer, others):
        raise UnclearError(QUOTATION)
    return answer


def is_quotation(answer: Answer, texts: Iterable[str]) -> bool:
    """Whether one of the texts contains the last object of an answer, in this or another spelling."""
    # Without blanks, because a quotation may have other line breaks than the text.
    bare = "".join(answer.source.split())
    return any(
        "{" in text and (bare in "".join(text.split()) or answer.objects[-1] in _objects(text)) for text in texts
    )


def _objects(text: str) -> Iterator[Any]:
    """Yields every object in a text, also those inside what cannot be read."""
    position, attempts = text.find("{"), 0
    while position >= 0 and attempts < _MOST_OBJECTS:
        attempts += 1
        try:
            item, end = ANSWER_DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            position = text.find("{", position + 1)
            continue
        yield item
        position = text.find("{", end)


class _Item(NamedTuple):
    start: int
    end: int
    value: dict[str, Any]


def _scan(text: str, position: int, stop: int) -> Iterator[_Item]:
    """Yields the outermost objects that begin before ``stop``.

    Raises:
        UnclearError: what begins like an object, or contains another opening brace, cannot be read.
    """
    for _ in range(_MOST_OBJECTS):
        start = text.find("{", position, stop)
        if start < 0:
            return
        try:
            item, position = ANSWER_DECODER.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            # Prose may contain braces, but a broken object may contain a whole one: reading on inside it is a guess.
            closing, opening = text.find("}", start), text.find("{", start + 1)
            is_nested = 0 <= opening < (closing if closing >= 0 else len(text))
            if is_nested or _OBJECT_START.match(text, start) or isinstance(error, RefusedError):
                raise UnclearError(why_unreadable(error)) from None
            position = start + 1
            continue
        yield _Item(start, position, item)
    if text.find("{", position, stop) >= 0:
        raise UnclearError(f"there are more than {_MOST_OBJECTS} braces before the end")


def why_unreadable(error: ValueError | RecursionError) -> str:
    """Returns the problem of a JSON object in words."""
    if isinstance(error, RecursionError):
        return "the JSON object is nested too deeply"
    if isinstance(error, json.JSONDecodeError):
        return f"the JSON object is not valid: {error.msg} at character {error.pos}"
    reason = error if isinstance(error, RefusedError) else "it holds a number with too many digits"
    return f"the JSON object is not valid: {reason}"
