"""Judges by name: ``judge:MODEL?option=value&…``, and goals from three sides: ``views:MODEL?interviewee=MODEL&…``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from sotopia_env.chat_model.protocol import ChatModel
from sotopia_env.errors import InvalidValueError, UnknownNameError, name_hint
from sotopia_env.evaluators.judge.goal_answer import View
from sotopia_env.evaluators.judge.llm_judge import LLMJudge
from sotopia_env.evaluators.judge.views import ALL_VIEWS, Views

PREFIX = "judge:"
VIEWS = "views:"
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
    options = _options(spec, query, _JUDGE_OPTIONS)
    make = _maker(model_factory, options)
    return LLMJudge(make(model), **options)


def make_views(spec: str, model_factory: ModelFactory | None = None) -> Views:
    """Returns the evaluator by views that ``spec`` names.

    Args:
        spec: ``views:MODEL``, or several models with commas between: the judges from outside, none of them being
            possible too. After a ``?`` any of ``interviewee=MODEL`` (who answers for all participants; or, for each,
            ``interviewee=agent_0=MODEL,agent_1=MODEL``), ``views=self,other,external``, ``deciding=all`` (the default
            where nobody is asked from outside), ``temperature=0.5``, ``reasks=3``, ``max_tokens=2000`` and
            ``api_base=URL``, joined by ``&``.
        model_factory: makes the models; ``None`` takes :func:`sotopia_env.chat_model.make_model`.

    Raises:
        UnknownNameError: an option or a view is not known; names the nearest.
        InvalidValueError: an option's value cannot be read, or a view has no model to ask.
    """
    external, _, query = spec.removeprefix(VIEWS).partition("?")
    options = _options(spec, query, _VIEWS_OPTIONS)
    make = _maker(model_factory, options)
    people = options.pop("interviewee", None)
    interviewee = {agent: make(name) for agent, name in people.items()} if isinstance(people, dict) else people
    if isinstance(people, str):
        interviewee = make(people)
    judges = [make(name) for name in _words(external)]
    if not judges or View.EXTERNAL not in options.get("views", (View.EXTERNAL,)):
        options.setdefault("deciding", ALL_VIEWS)
    return Views(judges, interviewee=interviewee, **options)


def _maker(model_factory: ModelFactory | None, options: dict[str, Any]) -> Callable[[str], ChatModel]:
    """Makes models at the address in ``options``, which is taken out of them."""
    place = {"api_base": options.pop("api_base")} if "api_base" in options else {}
    if model_factory is None:
        from sotopia_env.chat_model import make_model

        model_factory = make_model
    return partial(model_factory, **place)


def _options(spec: str, query: str, readers: Mapping[str, Callable[[str], Any]]) -> dict[str, Any]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        raise InvalidValueError(
            f"evaluator {spec!r}: expected option=value pairs joined by '&', got {query!r}"
        ) from None
    found: dict[str, Any] = {}
    for key, text in pairs:
        if key not in readers:
            raise UnknownNameError(f"evaluator {spec!r}: option: {name_hint(key, readers)}")
        if key in found:
            raise InvalidValueError(f"evaluator {spec!r}: option {key!r} is given twice")
        try:
            found[key] = readers[key](text)
        except (ValueError, KeyError) as error:
            if isinstance(error, InvalidValueError):
                raise
            raise InvalidValueError(f"evaluator {spec!r}: option {key!r}: cannot be {text!r}") from None
    return found


def _custom(path: str) -> Any:
    from sotopia_env.evaluators.judge.dimensions_file import load_dimensions

    return load_dimensions(path)


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _people(text: str) -> str | dict[str, str]:
    """A model for all, or one for each agent."""
    if "=" not in text:
        return text
    pairs = [word.partition("=") for word in _words(text)]
    found = {agent.strip(): model.strip() for agent, _, model in pairs}
    if len(found) < len(pairs) or not all(found.values()):
        raise ValueError(text)
    return found


_COMMON: Mapping[str, Callable[[str], Any]] = {"temperature": float, "reasks": int, "max_tokens": int, "api_base": str}
_JUDGE_OPTIONS: Mapping[str, Callable[[str], Any]] = {
    "dimensions": _words,
    "custom": _custom,
    "bands": _BOOLEANS.__getitem__,
    "per": str,
    **_COMMON,
    "replicate": int,
}
_VIEWS_OPTIONS: Mapping[str, Callable[[str], Any]] = {
    "interviewee": _people,
    "views": _words,
    "deciding": str,
    **_COMMON,
}
