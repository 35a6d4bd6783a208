"""Loading and checking of tokenizers, and conversion of conversations to token ids.

Loading fails early if the chat template of a trained model is missing, or a template is not prefix-preserving. Tokens
are never added to a vocabulary, so embeddings are never resized.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sotopia_env.foundation.errors import InvalidValueError, Verbatim, first_line
from sotopia_env.policies.agent_prompt import Format
from sotopia_env.world.observation import ChatMessage
from sotopia_training.models.loading import POLICY_FILE
from sotopia_training.stage.settings import PromptSettings

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

PLAIN = (
    "{%- if bos_token %}{{- bos_token }}{%- endif %}"
    "{%- for m in messages %}{{- '### ' + m['role'] + ':\n' }}"
    "{%- if m['role'] == 'assistant' %}{% generation %}{{- m['content'] + eos_token }}{% endgeneration %}{{- '\n\n' }}"
    "{%- else %}{{- m['content'] + '\n\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '### assistant:\n' }}{%- endif %}"
)
"""The form of conversations with a model without a chat template: a heading for each message, the end token after each
answer. It is saved with what is trained from such a model."""

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

    A template that is not prefix-preserving is replaced by TRL's training template of that model, if one exists. The
    arguments of the template are written into it, so that they are saved with the trained model. If the template would
    add a default system message ("You are Qwen, …") to a conversation without one, an empty system message is written
    into it, too. A model without a template, as base models are, gets :data:`PLAIN`.

    Args:
        path: the directory or hub name of the model.
        prompt: the format of the prompts, see :func:`check_tokenizer`, and the arguments of the chat template.

    Raises:
        InvalidValueError: the model has no tokenizer, or the template lacks an argument, is not prefix-preserving, or
            was left behind when a trained model was copied.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(str(path))
    except (OSError, ValueError) as error:
        raise InvalidValueError(
            f"no tokenizer could be loaded ({first_line(error)})",
            hint="copy the base model's files to the directory of the weights (tokenizer.json, tokenizer_config.json, "
            "chat_template.jinja)",
            where=path,
        ) from None
    # Beside prompt settings of a stage, a template is missing because it was not copied.
    if tokenizer.chat_template is None and prompt.chat_template is None and not (Path(path) / POLICY_FILE).is_file():
        logger.warning("%s has no chat template, so it is prompted in a plain form, as base models are", path)
        tokenizer.chat_template = PLAIN
    set_template(tokenizer, str(path), prompt)
    check_tokenizer(tokenizer, str(path), prompt.format)
    return tokenizer


def set_template(tokenizer: PreTrainedTokenizerBase, name: str, prompt: PromptSettings) -> None:
    """Sets the settings' template with its arguments, or TRL's training template if it is not prefix-preserving.

    Raises:
        InvalidValueError: the template does not have one of the arguments.
    """
    template = tokenizer.chat_template if prompt.chat_template is None else prompt.chat_template
    if not isinstance(template, str) or tokenizer.eos_token_id is None:
        return  # check_tokenizer reports it
    for argument in prompt.chat_template_kwargs:
        if not re.search(rf"\b{re.escape(argument)}\b", template):
            raise InvalidValueError(
                field="prompt.chat_template_kwargs", expected=f"arguments of the chat template of {name}", got=argument
            )
    # JSON's true, false, numbers and strings are valid Jinja.
    head = "".join(f"{{%- set {key} = {json.dumps(value)} %}}" for key, value in prompt.chat_template_kwargs.items())
    if _writes_system(tokenizer, template):
        logger.info("%s: the chat template's own system message is left out", name)
        head += _EMPTY_SYSTEM
    # A trained model's template already begins with them.
    tokenizer.chat_template = template if template.startswith(head) else head + template
    if not _preserves_prefix(tokenizer, prompt.format):
        training = _training_template(tokenizer, template)
        tokenizer.chat_template = head + training if training else tokenizer.chat_template


def _writes_system(tokenizer: PreTrainedTokenizerBase, template: str) -> bool:
    """Whether a template adds a default system message to a conversation without one."""
    tokenizer.chat_template = template
    mark, user = "<a system message>", _PROBE[1]
    try:
        texts = [
            str(tokenizer.apply_chat_template([dict(message) for message in messages], tokenize=False))
            for messages in ([user], [{"role": "system", "content": mark}, user])
        ]
    except Exception as error:  # the template refuses system messages, or is not valid
        if not _is_of_jinja(error):
            raise
        return False
    alone, (before, _, after) = texts[0], texts[1].partition(mark)
    # The markup of a system message with text in it: longer than the markup around an empty one.
    return alone.startswith(before) and alone.endswith(after) and len(alone) > len(before) + len(after)


def _is_of_jinja(error: Exception) -> bool:
    """Whether Jinja raised an error; templates are third-party code and may raise any kind of it."""
    return type(error).__module__.split(".")[0] == "jinja2"


def _preserves_prefix(tokenizer: PreTrainedTokenizerBase, format: Format) -> bool:
    try:
        return not _first_break(tokenizer, format)
    except Exception as error:
        if not _is_of_jinja(error):
            raise
        return False


def _training_template(tokenizer: PreTrainedTokenizerBase, template: str) -> str | None:
    """Returns TRL's training template of the model with this template, which TRL identifies by its exact text."""
    from trl.chat_template_utils import get_training_chat_template

    current, tokenizer.chat_template = tokenizer.chat_template, template
    try:
        return get_training_chat_template(tokenizer)
    except ValueError:  # TRL does not know the model
        return None
    finally:
        tokenizer.chat_template = current


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, name: str, format: Format = "chat") -> None:
    """Checks template, end and padding tokens; a missing padding token becomes the end token, so none is added.

    In the ``single`` format every prompt is one user message, so the template need not preserve prefixes. Some
    instruction-tuned models (Mistral's) can be trained only with that format.

    Raises:
        InvalidValueError: a token or the template is missing, or the template is not prefix-preserving.
    """
    if not tokenizer.chat_template:
        raise InvalidValueError(
            field="chat_template",
            expected="a template",
            got=None,
            where=name,
            hint="add one (chat_template.jinja), or choose an instruction-tuned model",
        )
    if tokenizer.eos_token_id is None:
        raise InvalidValueError(field="eos_token", expected="an end-of-sequence token", got=None, where=name)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.unk_token or tokenizer.eos_token
    try:
        broken = _first_break(tokenizer, format)
    except Exception as error:
        if not _is_of_jinja(error):
            raise
        raise InvalidValueError(
            f"it refuses a conversation of the format {format!r} ({first_line(error)})",
            field="chat_template",
            where=name,
            hint="choose another template (chat_template.jinja) or, in a seat and in training, the format 'single', "
            "which is one user message",
        ) from None
    if broken:
        raise InvalidValueError(
            field="chat_template",
            expected="a prefix-preserving template: a conversation begins with the shorter one before it",
            got=Verbatim(f"one that differs {broken}"),
            where=name,
            hint="sampled and trained tokens would differ. Choose another model, the format 'single', "
            "another template (chat_template.jinja), or, if it can think, prompt.chat_template_kwargs: "
            "{enable_thinking: false}",
        )


def _first_break(tokenizer: PreTrainedTokenizerBase, format: Format) -> str:
    """Returns the place where a prompt and its completion are not a prefix of the next prompt; empty without one."""
    if format == "single":
        return "" if prompt_ids(tokenizer, _PROBE[1:2]) else "it renders nothing"
    # Two answers: some templates treat only the latest one differently, for example by removing its reasoning.
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
    """Returns the token ids of a conversation up to the beginning of the assistant's answer."""
    return _render(tokenizer, messages, True)


def answer_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Returns the token ids of an answer as the policy would sample it: its text, then the end token."""
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return [*ids, tokenizer.eos_token_id]


def answer_text(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    """Returns the text of a sampled answer without control tokens, in the same way in training and in play."""
    return str(tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))


def glue_ids(tokenizer: PreTrainedTokenizerBase, messages: Sequence[ChatMessage]) -> list[int]:
    """Returns the token ids between an answer's end token and the next answer: template text and new messages.

    ``messages`` are the answer (the assistant's message) and the messages after it. The glue is cut out of one
    rendering, so the sampled tokens of the answer need not be reproduced.
    """
    # A fixed beginning instead of the real one, because the glue does not depend on it.
    ids = _render(tokenizer, [*_PROBE[:2], *messages], True)
    prefix = _render(tokenizer, _PROBE[:2], True)
    start = len(prefix) + len(answer_ids(tokenizer, messages[0]["content"]))
    return ids[start:]


class TokenCounter:
    """Counts the tokens of a prompt and its completion, including template and end token."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Counts with ``tokenizer``."""
        self._tokenizer = tokenizer

    def __call__(self, prompt: Sequence[ChatMessage], completion: str) -> int:
        """Returns the number of tokens."""
        return len(prompt_ids(self._tokenizer, prompt)) + len(answer_ids(self._tokenizer, completion)) + 1
