"""Tokenizers, base models, adapters and 4-bit loading.

Loading fails early on what cannot work: a tokenizer without a chat template or with one that is not prefix-preserving,
an adapter of another base, 4 bit without support. No token is ever added to a vocabulary, so no embedding is resized.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sotopia_env.errors import InvalidValueError, first_line
from sotopia_env.json_text import read_json
from sotopia_env.policies import Format
from sotopia_env.settings import settings_of
from sotopia_env.world import ChatMessage
from training.models.gguf_files import converted, gguf_file, smol_directory
from training.models.quantization import quantization_config
from training.stage.settings import LoraSettings, ModelSettings, PromptSettings

if TYPE_CHECKING:
    from peft import LoraConfig
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.getLogger(__name__)
POLICY_FILE = "sotopia_policy.json"
"""File beside the weights with the model's prompt settings; see :func:`read_prompt_settings`."""

CHATML = (
    "{%- for m in messages %}{{- '<|im_start|>' + m['role'] + '\n' }}"
    "{%- if m['role'] == 'assistant' %}{% generation %}{{- m['content'] + '<|im_end|>' }}{% endgeneration %}{{- '\n' }}"
    "{%- else %}{{- m['content'] + '<|im_end|>\n' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"
)
"""The chat template of tiny models: prefix-preserving, with TRL's markers of the assistant's text."""

LOADING = threading.RLock()
"""Held while weights are loaded: transformers changes how modules are made, for all threads of the process."""
_SMOL = "smol"  # as on a command line, where it is a policy's or a model's name
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


# --- tokenizers ---------------------------------------------------------------------------------------------------


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
            f"{path}: no tokenizer could be loaded ({first_line(error)}); put the files of its base model's beside the "
            "weights (tokenizer.json, tokenizer_config.json, chat_template.jinja)"
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
                f"prompt.chat_template_kwargs: expected arguments of the chat template of {name}, got {argument!r}"
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
            f"{name}: the tokenizer has no chat template; put one beside it (chat_template.jinja), or choose an "
            "instruction-tuned model"
        )
    if tokenizer.eos_token_id is None:
        raise InvalidValueError(f"{name}: the tokenizer has no end-of-sequence token")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.unk_token or tokenizer.eos_token
    try:
        broken = _first_break(tokenizer, format)
    except Exception as error:
        if not _is_of_jinja(error):
            raise
        raise InvalidValueError(
            f"{name}: the chat template refuses a conversation of the format {format!r} ({first_line(error)}); choose "
            "the format 'single', which is one user message, or another template (chat_template.jinja)"
        ) from None
    if broken:
        raise InvalidValueError(
            f"{name}: the chat template is not prefix-preserving for a partner who is the user ({broken}); what was "
            "sampled would not be what is trained on. Choose another model, the format 'single', another template "
            "(chat_template.jinja), or, if it can think, prompt.chat_template_kwargs: {enable_thinking: false}"
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


# --- models -------------------------------------------------------------------------------------------------------


def lora_config(settings: LoraSettings, task: str = "CAUSAL_LM") -> LoraConfig:
    """Returns PEFT's configuration; for ``task="SEQ_CLS"`` the score head is trained and saved as well."""
    from peft import LoraConfig

    targets = settings.target_modules
    return LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
        task_type=task,
        modules_to_save=["score"] if task == "SEQ_CLS" else None,
    )


def load_arguments(settings: ModelSettings) -> dict[str, Any]:
    """Keyword arguments of ``from_pretrained`` for a base model: type, quantisation, attention, device."""
    import torch

    arguments: dict[str, Any] = {"dtype": getattr(torch, settings.dtype)}
    quantization = quantization_config(settings)
    if quantization is not None:
        arguments["quantization_config"] = quantization
        arguments["device_map"] = {"": local_device()}
    if settings.attention is not None:
        arguments["attn_implementation"] = settings.attention
    return arguments


def local_device() -> str:
    """Returns the device of this process: its own GPU if there is one."""
    import torch

    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"


def load_causal_lm(settings: ModelSettings) -> PreTrainedModel:
    """Loads the base and, if there is one, the adapter; adds no new adapter.

    Raises:
        InvalidValueError: the base cannot be loaded, the adapter is of another base, or 4 bit is not supported.
    """
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    if settings.adapter is not None:
        check_adapter(settings.adapter, settings.base)
    quiet_bars()
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            located(settings.base), output_loading_info=True, **load_arguments(settings)
        )
    except (OSError, ValueError, SafetensorError) as error:
        raise InvalidValueError(f"{settings.base}: no model could be loaded ({first_line(error)})") from None
    check_whole_model(settings.base, report)
    if settings.adapter is None:
        return model
    from peft import PeftModel

    return PeftModel.from_pretrained(model, settings.adapter)


def check_whole_model(name: str, report: Mapping[str, Any]) -> None:
    """Raises :class:`InvalidValueError` if weights are missing, which transformers then draws at random.

    Args:
        name: of the model.
        report: what transformers says of loading it.
    """
    if missing := sorted(report["missing_keys"]):
        raise InvalidValueError(
            f"{name}: expected all weights of a causal language model, {len(missing)} are missing, such as "
            f"{missing[0]!r}; it is another kind of model, or damaged"
        )


def located(base: str) -> str:
    """Returns a directory's absolute path, which an adapter can store as its base; a hub name unchanged.

    ``smol`` and a directory with a GGUF file become the directory of the converted model.

    Raises:
        InvalidValueError: a GGUF file cannot be converted, or the package of ``smol`` is missing.
    """
    if base == _SMOL or gguf_file(Path(base)) is not None:
        return str(find_model(base).resolve())
    return str(Path(base).resolve()) if Path(base).is_dir() else base


def quiet_bars() -> None:
    """Silences transformers' progress bars where stderr is no terminal."""
    import transformers

    if not sys.stderr.isatty():
        transformers.utils.logging.disable_progress_bar()


def check_adapter(adapter: str | Path, base: str) -> None:
    """Checks that an adapter belongs to a base model, before either is loaded.

    Raises:
        InvalidValueError: there is no adapter, or it belongs to another base.
    """
    own_base = adapter_base(adapter)
    if own_base is None:
        raise InvalidValueError(f"{adapter}: expected an adapter (adapter_config.json), found none")
    if not same_model(own_base, base):
        raise InvalidValueError(f"{adapter}: an adapter of {own_base!r}, which is not the base {base!r}")


def adapter_base(directory: str | Path) -> str | None:
    """Returns the base that an adapter directory names; ``None`` when the directory holds no adapter.

    Raises:
        InvalidValueError: the adapter's configuration is damaged, or names no base.
    """
    file = Path(directory) / "adapter_config.json"
    if not file.is_file():
        return None
    try:
        base = read_json(file, finite=False)["base_model_name_or_path"]
    except (ValueError, KeyError, TypeError):
        base = None
    if not isinstance(base, str):
        raise InvalidValueError(f"{file}: expected JSON with base_model_name_or_path; it is damaged, or no adapter's")
    return base


def same_model(one: str, other: str) -> bool:
    """Whether two names are equal, or paths of the same directory."""
    return one == other or (
        Path(one).is_dir() and Path(other).is_dir() and Path(one).resolve() == Path(other).resolve()
    )


def find_model(directory: str | Path) -> Path:
    """Returns the directory of the model in a stage's output: ``model/`` in it, or the directory itself.

    A GGUF file in a directory is converted first, and ``smol`` is SmolLM2-135M-Instruct
    (:mod:`training.models.gguf_files`).

    Raises:
        InvalidValueError: neither holds an adapter or a model, or a GGUF file cannot be converted.
    """
    if str(directory) == _SMOL:
        directory = smol_directory()
    for path in (Path(directory) / "model", Path(directory)):
        if _has_config(path):
            return path
    file = gguf_file(Path(directory))
    if file is not None:
        return converted(file)
    raise InvalidValueError(
        f"{directory}: expected an adapter or a model (adapter_config.json, config.json or one .gguf file)"
    )


def is_model_directory(directory: str | Path) -> bool:
    """Whether a directory, or ``model/`` in it, has the configuration of an adapter or a model."""
    return any(_has_config(path) for path in (Path(directory) / "model", Path(directory)))


def _has_config(path: Path) -> bool:
    return any((path / name).is_file() for name in ("adapter_config.json", "config.json"))


def start_from(directory: str | Path, settings: ModelSettings) -> ModelSettings:
    """Returns ``settings`` starting from an earlier stage's output: its adapter, or its full model as the base."""
    path = find_model(directory)
    base = adapter_base(path)
    if base is None:
        return settings.model_copy(update={"base": str(path), "adapter": None})
    return settings.model_copy(update={"base": base, "adapter": str(path)})


def write_prompt_settings(directory: str | Path, prompt: PromptSettings) -> None:
    """Writes the prompt settings beside a model."""
    text = json.dumps({"prompt": prompt.model_dump(mode="json")}, indent=2)
    (Path(directory) / POLICY_FILE).write_text(text + "\n", encoding="utf-8")


def read_prompt_settings(directory: str | Path) -> PromptSettings:
    """Returns the prompt settings of a trained model; the defaults for a base model, which has none."""
    file = Path(directory) / POLICY_FILE
    if not file.is_file():
        return PromptSettings()
    return settings_of(read_json(file)["prompt"], PromptSettings, f"{file}: prompt")
