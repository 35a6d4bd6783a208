"""Tokenizers: loaded and checked before anything is trained or played, and conversations as token ids.

Loading fails early on what cannot work: no chat template, or one that is not prefix-preserving. No token is ever added
to a vocabulary, so no embedding is resized.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sotopia_env.errors import InvalidValueError, first_line
from sotopia_env.policies import Format
from sotopia_env.world import ChatMessage
from training.stage.settings import PromptSettings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)
CHATML = (
    "{%- for m in messages %}{{- '<|im_start|>' + m['role'] + '\n' }}"
    "{%- if m['role'] == 'assistant' %}{% generation %}{{- m['content'] + '<|im_end|>' }}{% endgeneration %}{{- '\n' }}"
    "{%- else %}{{- m['content'] + '<|im_end|>\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
"""The chat template of tiny models: prefix-preserving, with TRL's markers of the assistant's text."""

_PROMPT = PromptSettings()
_EMPTY_SYSTEM = (
    "{%- if messages and messages[0]['role'] != 'system' %}"
    "{%- set messages = [{'role': 'system', 'content': ''}] + messages %}{%- endif %}"
)
_PROBE: tuple[ChatMessage, ...] = (
    {"role": "system", "content": "You are Ada. Sell the lamp."},
    {"role": "user", "content": "(nobody has acted yet)\nTurn #1 is yours."},
    {"role": "assistant", "content": '{"action_type": "speak", "argument": "How about $45?"}'},
    {"role": "user", "content": 'Turn #2 | Bo said: "$40."\nTurn #3 is yours.'},
    {"role": "assistant", "content": '{"action_type": "leave", "argument": ""}'},
)


def load_tokenizer(path: str | Path, prompt: PromptSettings = _PROMPT) -> PreTrainedTokenizerBase:
    """Loads the tokenizer of a model directory or hub name and checks that it can be used in training.

    A template that is not prefix-preserving is replaced by TRL's training template of that model, if there is one. The
    arguments of the template become a part of it, so that they also stand beside the trained model; so does an empty
    system message where the template would write one of its own ("You are Qwen, …"), which nobody asked for.

    Args:
        path: of the model.
        prompt: format of the prompts, see :func:`check_tokenizer`, and arguments of the chat template.

    Raises:
        InvalidValueError: there is none, it has no chat template, the template does not have an argument, or it is not
            prefix-preserving.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(str(path))
    except (OSError, ValueError) as error:
        raise InvalidValueError(
            f"no tokenizer could be loaded ({first_line(error)})",
            hint="put the files of its base model's beside the weights (tokenizer.json, tokenizer_config.json, "
            "chat_template.jinja)",
            where=path,
        ) from None
    set_template(tokenizer, str(path), prompt)
    check_tokenizer(tokenizer, str(path), prompt.format)
    return tokenizer


def set_template(tokenizer: PreTrainedTokenizerBase, name: str, prompt: PromptSettings) -> None:
    """Sets the settings' template and its arguments, or TRL's training template if the own is not prefix-preserving.

    Raises:
        InvalidValueError: the template does not have one of the arguments.
    """
    own = tokenizer.chat_template if prompt.chat_template is None else prompt.chat_template
    if not isinstance(own, str) or tokenizer.eos_token_id is None:
        return
    for argument in prompt.chat_template_kwargs:
        if not re.search(rf"\b{re.escape(argument)}\b", own):
            raise InvalidValueError(
                field="prompt.chat_template_kwargs", expected=f"arguments of the chat template of {name}", got=argument
            )
    # Jinja reads JSON's true, false, numbers and texts.
    head = "".join(f"{{%- set {key} = {json.dumps(value)} %}}" for key, value in prompt.chat_template_kwargs.items())
    if _writes_system(tokenizer, own):
        logger.info("%s: the chat template's own system message is left out", name)
        head += _EMPTY_SYSTEM
    tokenizer.chat_template = own if own.startswith(head) else head + own
    if not _preserves_prefix(tokenizer, prompt.format):
        training = _training_template(tokenizer, own)
        tokenizer.chat_template = head + training if training else tokenizer.chat_template


def _writes_system(tokenizer: PreTrainedTokenizerBase, template: str) -> bool:
    """Whether a template writes a system message of its own before a conversation that has none."""
    tokenizer.chat_template = template
    mark, user = "<a system message>", _PROBE[1]
    try:
        texts = [
            str(tokenizer.apply_chat_template([dict(message) for message in messages], tokenize=False))
            for messages in ([user], [{"role": "system", "content": mark}, user])
        ]
    except Exception as error:  # one that takes no system message, or cannot be read at all
        if not _is_of_jinja(error):
            raise
        return False
    alone, (before, _, after) = texts[0], texts[1].partition(mark)
    # Both markups of a system message, with something between them.
    return alone.startswith(before) and alone.endswith(after) and len(alone) > len(before) + len(after)


def _is_of_jinja(error: Exception) -> bool:
    """Templates are third-party code and may raise anything, but through Jinja."""
    return type(error).__module__.split(".")[0] == "jinja2"


def _preserves_prefix(tokenizer: PreTrainedTokenizerBase, format: Format) -> bool:
    try:
        return not _first_break(tokenizer, format)
    except Exception as error:
        if not _is_of_jinja(error):
            raise
        return False


def _training_template(tokenizer: PreTrainedTokenizerBase, own: str) -> str | None:
    """TRL's training template of the model with this template; it is known by the template's exact text."""
    from trl.chat_template_utils import get_training_chat_template

    current, tokenizer.chat_template = tokenizer.chat_template, own
    try:
        return get_training_chat_template(tokenizer)
    except ValueError:  # TRL knows no such model
        return None
    finally:
        tokenizer.chat_template = current


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, name: str, format: Format = "chat") -> None:
    """Checks template, end and padding tokens; a missing padding token becomes the end token (nothing is added).

    Prompts of the ``single`` format are one user message each and need no preserved prefix. Some instruction-tuned
    models (Mistral's) can be trained with that format only.

    Raises:
        InvalidValueError: names what is missing or not preserved.
    """
    if not tokenizer.chat_template:
        raise InvalidValueError(
            "the tokenizer has no chat template",
            where=name,
            hint="put one beside it (chat_template.jinja), or choose an instruction-tuned model",
        )
    if tokenizer.eos_token_id is None:
        raise InvalidValueError("the tokenizer has no end-of-sequence token", where=name)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.unk_token or tokenizer.eos_token
    try:
        broken = _first_break(tokenizer, format)
    except Exception as error:
        if not _is_of_jinja(error):
            raise
        raise InvalidValueError(
            f"the chat template refuses a conversation of the format {format!r} ({first_line(error)})",
            where=name,
            hint="choose the format 'single', which is one user message, or another template (chat_template.jinja)",
        ) from None
    if broken:
        raise InvalidValueError(
            f"the chat template is not prefix-preserving for a partner who is the user ({broken})",
            where=name,
            hint="what was sampled would not be what is trained on. Choose another model, the format 'single', "
            "another template (chat_template.jinja), or, if it can think, prompt.chat_template_kwargs: "
            "{enable_thinking: false}",
        )


def _first_break(tokenizer: PreTrainedTokenizerBase, format: Format) -> str:
    """The place where prompt and completion of a turn are no prefix of the next prompt; empty if there is none."""
    if format == "single":
        return "" if prompt_ids(tokenizer, _PROBE[1:2]) else "it renders nothing"
    for end in (2, 4):
        prompt = prompt_ids(tokenizer, _PROBE[:end])
        answer = answer_ids(tokenizer, _PROBE[end]["content"])
        later = _render(tokenizer, _PROBE[: end + 1], False)
        if later[: len(prompt) + len(answer)] != [*prompt, *answer]:
            return f"after the answer in message {end + 1}"
        if end + 2 <= len(_PROBE):
            following = prompt_ids(tokenizer, _PROBE[: end + 2])
            if following[: len(later)] != later:
                return f"after message {end + 2}"
    return ""


def _render(tokenizer: PreTrainedTokenizerBase, messages: Sequence[ChatMessage], add_prompt: bool) -> list[int]:
    ids = tokenizer.apply_chat_template(
        [dict(message) for message in messages], add_generation_prompt=add_prompt, tokenize=True, return_dict=False
    )
    return list(ids)


def prompt_ids(tokenizer: PreTrainedTokenizerBase, messages: Sequence[ChatMessage]) -> list[int]:
    """Token ids of a conversation up to where the assistant's answer begins."""
    return _render(tokenizer, messages, True)


def answer_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Token ids of an answer as the policy would sample it: its text, then the end token."""
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return [*ids, tokenizer.eos_token_id]


def answer_text(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    """Text of a sampled answer, the same in training and in play; control tokens in it are left out."""
    return str(tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))


def glue_ids(tokenizer: PreTrainedTokenizerBase, messages: Sequence[ChatMessage]) -> list[int]:
    """Token ids between an answer's end token and the next answer: the rest of the template and the new messages.

    ``messages`` are the answer (the assistant's message) and the messages after it. The glue is cut out of one
    rendering, so the answer's own tokens need not be reproduced.
    """
    ids = _render(tokenizer, [*_PROBE[:2], *messages], True)
    prefix = _render(tokenizer, _PROBE[:2], True)
    start = len(prefix) + len(answer_ids(tokenizer, messages[0]["content"]))
    return ids[start:]


class TokenCounter:
    """Counts the tokens of a prompt and its completion, template and end token included."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Counts with ``tokenizer``."""
        self._tokenizer = tokenizer

    def __call__(self, prompt: Sequence[ChatMessage], completion: str) -> int:
        """Returns the number of tokens."""
        return len(prompt_ids(self._tokenizer, prompt)) + len(answer_ids(self._tokenizer, completion)) + 1
