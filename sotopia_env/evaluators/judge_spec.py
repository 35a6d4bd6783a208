"""A judge by name: ``judge:MODEL?option=value&…``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from sotopia_env.chat_model.protocol import ChatModel
from sotopia_env.errors import InvalidValueError, UnknownNameError, name_hint
from sotopia_env.evaluators.llm_judge import LLMJudge

PREFIX = "judge:"
_BOOLEANS = {"true": True, "false": False}
ModelFactory = Callable[..., ChatModel]
"""Makes a model of its name; also takes ``api_base`` where a specification names one."""


def make_judge(spec: str, model_factory: ModelFactory | None = None) -> LLMJudge:
    """Returns the judge that ``spec`` names.

    Args:
        spec: ``judge:MODEL``, and after a ``?`` any of ``dimensions=goal,relationship``, ``custom=FILE`` (YAML),
            ``bands=true``, ``per=agent``, ``temperature=0.5``, ``reasks=3``, ``max_tokens=2000``, ``replicate=1`` and
            ``api_base=URL``, joined by ``&``.
        model_factory: makes the model; ``None`` takes :func:`sotopia_env.chat_model.make_model`.

    Raises:
        UnknownNameError: an option is not known; names the nearest.
        InvalidValueError: the model's name is missing, or an option's value cannot be read.
    """
    model, _, query = spec.removeprefix(PREFIX).partition("?")
    if not model:
        raise InvalidValueError(f"evaluator {spec!r}: expected a model's name after {PREFIX!r}")
    options = _options(spec, query)
    place = {"api_base": options.pop("api_base")} if "api_base" in options else {}
    if model_factory is None:
        from sotopia_env.chat_model import make_model

        model_factory = make_model
    return LLMJudge(model_factory(model, **place), **options)


def _options(spec: str, query: str) -> dict[str, Any]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        raise InvalidValueError(
            f"evaluator {spec!r}: expected option=value pairs joined by '&', got {query!r}"
        ) from None
    found: dict[str, Any] = {}
    for key, text in pairs:
        if key not in _READERS:
            raise UnknownNameError(f"evaluator {spec!r}: option: {name_hint(key, _READERS)}")
        if key in found:
            raise InvalidValueError(f"evaluator {spec!r}: option {key!r} is given twice")
        try:
            found[key] = _READERS[key](text)
        except (ValueError, KeyError) as error:
            if isinstance(error, InvalidValueError):
                raise
            raise InvalidValueError(f"evaluator {spec!r}: option {key!r}: cannot be {text!r}") from None
    return found


def _custom(path: str) -> Any:
    from sotopia_env.evaluators.dimensions_file import load_dimensions

    return load_dimensions(path)


_READERS: Mapping[str, Callable[[str], Any]] = {
    "dimensions": lambda text: tuple(name.strip() for name in text.split(",") if name.strip()),
    "custom": _custom,
    "bands": _BOOLEANS.__getitem__,
    "per": str,
    "temperature": float,
    "reasks": int,
    "max_tokens": int,
    "replicate": int,
    "api_base": str,
}
