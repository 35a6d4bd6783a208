"""Options, start and stop of commands that call language models; ``sotopia models`` and ``sotopia cache``."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from sotopia_env.cli.options import path_argument
from sotopia_env.cli.plain_help import MODELS
from sotopia_env.foundation.errors import InvalidValueError, ModelRefusedError, Verbatim

if TYPE_CHECKING:
    from sotopia_env.chat_model.pool import ModelPool
    from sotopia_env.chat_model.probing import FeatureResult
    from sotopia_env.concurrency.stopping import Stop

_T = TypeVar("_T")
_REQUEST_SECONDS = 60.0


def _option(*names: str, **settings: Any) -> Any:
    return typer.Option(*names, rich_help_panel=MODELS, **settings)


def _options(
    api_base: Annotated[
        list[str], _option(help="Base URL of the server; or MODEL=URL for one model. Repeatable.", metavar="URL")
    ] = [],  # noqa: B006
    api_key_env: Annotated[
        list[str], _option(help="Environment variable with the key; or MODEL=VARIABLE.", metavar="VARIABLE")
    ] = [],  # noqa: B006
    max_cost: Annotated[float | None, _option(help="US dollars the whole run may spend.", metavar="DOLLARS")] = None,
    settings: Annotated[
        list[str],
        _option(
            "--set", help="Any other setting, such as models.rpm=60 (docs/models.md). Repeatable.", metavar="KEY=VALUE"
        ),
    ] = [],  # noqa: B006
) -> dict[str, Any]:
    from sotopia_env.foundation.settings import merged, overridden

    models = {
        "api_base": per_model(api_base, "--api-base"),
        "api_key_env": per_model(api_key_env, "--api-key-env"),
        "max_cost": max_cost,
    }
    models = {name: value for name, value in models.items() if value is not None}
    return merged(overridden({}, settings, "--set"), {"models": models} if models else {})


def per_model(texts: Sequence[str], flag: str) -> dict[str, str] | None:
    """Reads ``VALUE`` (for every model) and ``PROVIDER/MODEL=VALUE`` (for one model); ``None`` for no texts.

    Raises:
        InvalidValueError: a model has two values.
    """
    from sotopia_env.chat_model.options import EVERY

    values: dict[str, str] = {}
    for text in texts:
        # A URL for every model may contain "=", but no "/" without "://" before it.
        model, equals, value = text.partition("=")
        for_one = bool(equals) and "/" in model and "://" not in model
        key = model if for_one else EVERY
        if key in values:
            raise InvalidValueError(f"two values for {key or 'every model'}", field=flag)
        values[key] = value if for_one else text
    return values or None


def takes_model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of models to a command, which receives them as a nested mapping in ``settings``."""
    common = inspect.signature(_options, eval_str=True).parameters
    own = inspect.signature(command, eval_str=True).parameters.values()

    @functools.wraps(command)
    def wrapper(**arguments: Any) -> None:
        options = {name: arguments.pop(name) for name in common if name in arguments}
        command(**arguments, settings=_options(**options))

    # typer makes the options from the signature and the annotations of a command, so both need those of the models.
    parameters = [p for p in own if p.name != "settings"] + list(common.values())
    keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    wrapper.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]  # what typer reads
    hints = {**get_type_hints(command, include_extras=True), **get_type_hints(_options, include_extras=True)}
    wrapper.__annotations__ = {name: hint for name, hint in hints.items() if name != "return"}
    return wrapper


def run_with_models(
    models: ModelPool, directory: Path | None, work: Callable[[Stop], Awaitable[_T]], advice: str
) -> tuple[_T, int | None]:
    """Checks and opens the models, does the work, closes the models, and prints their usage and cost.

    Args:
        models: the models of the run.
        directory: the directory of the run, for the ledger; ``None`` for no ledger file.
        work: receives the :class:`Stop` that a signal requests.
        advice: how to continue, for a user who has stopped the work.

    Returns:
        The result of ``work``, and the signal that stopped it, if any.
    """
    from sotopia_env.concurrency.stopping import GRACE, Stop

    # Without models, there are no calls to wait for.
    stop = Stop(GRACE if models.names else 0.0)

    async def open_work_close() -> _T:
        try:
            await models.check()
            if directory is not None:
                models.open(directory)
            return await work(stop)
        finally:
            await models.close()

    with exit_on_signals(stop, advice):
        try:
            result = asyncio.run(open_work_close())
        except ModelRefusedError:
            # Calls before the refusal are billed, so their cost is printed, too.
            _print_spending(models)
            raise
    _print_spending(models)
    return result, stop.signal


@contextmanager
def exit_on_signals(stop: Stop, advice: str) -> Iterator[None]:
    """Makes signals request ``stop``; a second signal, or a model that refuses every request, ends the command."""
    from sotopia_env.concurrency.stopping import stop_on_signals

    try:
        with stop_on_signals(stop, lambda text: typer.echo(f"\nsotopia: {text}", err=True)):
            yield
    except ModelRefusedError as error:
        typer.echo(f"sotopia: {error}; after the problem is fixed, {advice}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo(f"\nsotopia: interrupted; {advice}", err=True)
        raise typer.Exit(128 + (stop.signal or signal.SIGINT)) from None


def exit_if_stopped(stopped: str, number: int | None, advice: str) -> None:
    """Exits with the reason and the next step: code 128 + the signal's number, or 1 for a spent budget."""
    if stopped:
        typer.echo(f"sotopia: {stopped}; {advice}", err=True)
        raise typer.Exit(128 + number if number else 1)


def _print_spending(models: ModelPool) -> None:
    """Prints the usage of the run so far, separately for agents and judges; nothing if there were no calls."""
    for role in ("agent", "judge"):
        totals = models.ledger.totals(role)
        if not (totals.answered or totals.failed or totals.interrupted or totals.too_long):
            continue
        calls = f"{role}s: {totals.answered} answers, {totals.failed} failed calls"
        calls += f", {totals.interrupted} interrupted (unknown cost)" if totals.interrupted else ""
        calls += f", {totals.too_long} too long for the model" if totals.too_long else ""
        calls += f", {totals.cached} from the cache" if totals.cached else ""
        calls += f", {totals.fallbacks} by a fallback" if totals.fallbacks else ""
        typer.echo(f"{calls}; {totals.tokens_text}, cost {totals.cost_text}")


cache_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Show and clear the cache of judges' answers."
)


models_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Show the features of models and servers.")


def register(app: typer.Typer) -> None:
    """Adds the commands to ``app``."""
    app.add_typer(models_app, name="models")
    app.add_typer(cache_app, name="cache")


@models_app.callback()
def _group() -> None:
    """Keeps ``check`` a subcommand: typer would make a single command the group itself."""


@models_app.command("check")
def models_check(
    address: Annotated[
        str,
        typer.Argument(metavar="URL|NAME", help="Base URL of a server, or the name of a model in this process."),
    ],
    model: Annotated[str, typer.Option(help="Name of the model on the server.")] = "",
    api_key_env: Annotated[str | None, typer.Option(help="Environment variable with the key.")] = None,
    model_timeout: Annotated[float, typer.Option(help="Seconds one request may take.")] = _REQUEST_SECONDS,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the features of a server (schemas, log-probabilities, token ids, tools) or of a model in this process.

    A server gets about ten short requests. A model in this process plays a turn in every task family.

    \b
    Examples:
      sotopia models check http://localhost:8000/v1 --model my-model
      sotopia models check smol
      sotopia models check "./qwen2.5-0.5b.gguf:format=brief"
    """
    rows = asyncio.run(_features(address, model, api_key_env, model_timeout))
    if as_json:
        findings = {row.name: {"result": row.result, "detail": row.detail} for row in rows}
        typer.echo(json.dumps({"address": address, "model": model, "findings": findings}, ensure_ascii=False, indent=2))
    else:
        for row in rows:
            typer.echo(f"{row.name:<12} {row.result:<8} {row.detail}".rstrip())
    if rows[0].result != "yes":
        raise typer.Exit(1)


async def _features(address: str, model: str, api_key_env: str | None, timeout: float) -> Sequence[FeatureResult]:
    from sotopia_env.chat_model.probing import probe_server

    if model or address.startswith(("http://", "https://")):
        if not model:
            raise InvalidValueError(
                field="--model", expected="the name of the model on the server", got=Verbatim("nothing")
            )
        return await probe_server(address, model, api_key_env=api_key_env, timeout=timeout)
    from sotopia_env.naming import make_policy
    from sotopia_env.runs.model_check import check_model

    return await check_model(make_policy(address))


@cache_app.command("show")
def cache_show(directory: Annotated[Path, path_argument("Directory of the cache.", "DIRECTORY")]) -> None:
    """Show the number of answers in a cache, and its size.

    \b
    Example:
      sotopia cache show judge-cache
    """
    from sotopia_env.chat_model.cache import cache_info

    info = cache_info(directory)
    typer.echo(f"{directory}: {info.answers} answers, {info.size} bytes")


@cache_app.command("clear")
def cache_clear(directory: Annotated[Path, path_argument("Directory of the cache.", "DIRECTORY")]) -> None:
    """Remove all answers from a cache.

    \b
    Example:
      sotopia cache clear judge-cache
    """
    from sotopia_env.chat_model.cache import clear_cache

    typer.echo(f"{directory}: {clear_cache(directory)} answers removed")
