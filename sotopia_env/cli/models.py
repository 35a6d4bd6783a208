"""What commands that ask language models have in common: their options, and how a run is started and stopped."""

from __future__ import annotations

import asyncio
import functools
import inspect
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar, get_type_hints

import typer

from sotopia_env.cli.options import path_argument, path_option
from sotopia_env.errors import InvalidValueError, ModelRefusedError, UnknownNameError, name_hint

if TYPE_CHECKING:
    from sotopia_env.chat_model.pool import RunModels
    from sotopia_env.runs.stopping import Stop

_T = TypeVar("_T")
STRUCTURED = ("auto", "on", "off")
_REQUEST_SECONDS = 60.0


def _options(
    api_base: Annotated[
        list[str], typer.Option(help="Base URL of the server; or MODEL=URL for one model. Repeats.", metavar="URL")
    ] = [],  # noqa: B006
    api_key_env: Annotated[
        list[str], typer.Option(help="Environment variable with the key; or MODEL=VARIABLE.", metavar="VARIABLE")
    ] = [],  # noqa: B006
    fallback: Annotated[list[str], typer.Option(help="Model to ask when one fails for good, in this order.")] = [],  # noqa: B006
    model_concurrency: Annotated[int, typer.Option(min=1, help="Requests in flight at once, per model.")] = 128,
    rpm: Annotated[int | None, typer.Option(min=1, help="Requests per minute, per model.")] = None,
    tpm: Annotated[int | None, typer.Option(min=1, help="Tokens per minute, per model.")] = None,
    model_timeout: Annotated[
        float | None, typer.Option(help="Seconds one request may take; 60, or --timeout where that is less.")
    ] = None,
    retries: Annotated[int, typer.Option(min=0, help="How often a failed request is sent again.")] = 6,
    structured: Annotated[str, typer.Option(help="Servers enforce the form of answers: auto, on or off.")] = "auto",
    judge_cache: Annotated[Path | None, path_option("Directory that keeps judges' answers.", "--judge-cache")] = None,
    max_cost: Annotated[float | None, typer.Option(help="US dollars the whole run may spend.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Tokens the whole run may use.")] = None,
    price: Annotated[
        list[str],
        typer.Option(help="'PROMPT,COMPLETION' in dollars per million tokens; or MODEL=…. Repeats.", metavar="PRICE"),
    ] = [],  # noqa: B006
) -> Any:  # a ModelOptions; what typer reads must be there at run time
    from sotopia_env.chat_model.pool import ModelOptions, parse_per_model, parse_prices

    if structured not in STRUCTURED:
        raise UnknownNameError(f"--structured: {name_hint(structured, STRUCTURED)}")
    return ModelOptions(
        api_base=parse_per_model(api_base, "--api-base"),
        api_key_env=parse_per_model(api_key_env, "--api-key-env"),
        concurrency=model_concurrency,
        rpm=rpm,
        tpm=tpm,
        timeout=_REQUEST_SECONDS if model_timeout is None else model_timeout,
        retries=retries,
        fallbacks=tuple(fallback),
        structured=structured,  # type: ignore[arg-type]  # checked above
        cache_dir=judge_cache,
        max_cost=max_cost,
        max_tokens=max_tokens,
        price=parse_prices(price),
    )


def takes_model_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of models to a command, which gets them as its keyword argument ``models``."""
    shared = inspect.signature(_options, eval_str=True).parameters
    own = inspect.signature(command, eval_str=True).parameters.values()

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        asked = {name: given.pop(name) for name in shared if name in given}
        asked["model_timeout"] = _request_seconds(asked.get("model_timeout"), given.get("timeout"))
        command(**given, models=_options(**asked))

    parameters = [p for p in own if p.name != "models"] + list(shared.values())
    keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    wrapper.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]  # what typer reads
    hints = {**get_type_hints(command, include_extras=True), **get_type_hints(_options, include_extras=True)}
    wrapper.__annotations__ = {name: hint for name, hint in hints.items() if name not in ("models", "return")}
    return wrapper


def _request_seconds(request: float | None, episode: float | None) -> float | None:
    """How long one request may take, of those of an episode; checks both."""
    for option, seconds in (("--timeout", episode), ("--model-timeout", request)):
        if seconds is not None and not 0 < seconds < float("inf"):
            raise InvalidValueError(f"{option}: expected seconds above 0, got {seconds:g}")
    if request is None:
        return None if episode is None else min(_REQUEST_SECONDS, episode)
    if episode is not None and episode < request:
        raise InvalidValueError(
            f"limits contradict each other: --timeout {episode:g} ends an episode before one request may end "
            f"(--model-timeout {request:g})"
        )
    return request


def run_with_models(models: RunModels, directory: Path, work: Callable[[Stop], Awaitable[_T]], again: str) -> _T:
    """Checks and opens the models, does the work, closes them; ends on signals with what to do next.

    Args:
        models: of the run.
        directory: of the run; the ledger goes there.
        work: is given what asks it to come to an end.
        again: what to do to go on, for people who stopped it.
    """
    from sotopia_env.runs.stopping import GRACE, Stop, stop_on_signals

    stop = Stop(GRACE if models.names else 0.0)  # without models there are no answers to wait for

    async def all_of_it() -> _T:
        try:
            await models.check()
            models.open(directory)
            return await work(stop)
        finally:
            await models.close()

    try:
        with stop_on_signals(stop, lambda text: typer.echo(f"\nsotopia: {text}", err=True)):
            return asyncio.run(all_of_it())
    except ModelRefusedError as error:
        for line in spending(models):
            typer.echo(line)
        exit_refused(error, again)
    except KeyboardInterrupt:
        typer.echo(f"\nsotopia: interrupted; {again}", err=True)
        raise typer.Exit(128 + (stop.signal or signal.SIGINT)) from None


def exit_refused(error: ModelRefusedError, again: str) -> NoReturn:
    """Leaves with what the model's server said and what to do next."""
    typer.echo(f"sotopia: {error}; when that is put right, {again}", err=True)
    raise typer.Exit(2) from None


def exit_if_stopped(stopped: str, number: int | None, advice: str) -> None:
    """Leaves with the reason and what to do next: 128 + the signal's number, or 1 for a spent budget."""
    if stopped:
        typer.echo(f"sotopia: {stopped}; {advice}", err=True)
        raise typer.Exit(128 + number if number else 1)


def spending(models: RunModels) -> list[str]:
    """Returns what the run has spent so far, agents apart from judges, in lines; none without calls."""
    lines = []
    for role in ("agent", "judge"):
        totals = models.ledger.totals(role)
        if totals.answered or totals.failed or totals.interrupted:
            said = f"{role}s: {totals.answered} answers, {totals.failed} failed calls"
            said += f", {totals.interrupted} interrupted (at a cost nobody knows)" if totals.interrupted else ""
            said += f", {totals.cached} from the cache" if totals.cached else ""
            said += f", {totals.fallbacks} by a fallback" if totals.fallbacks else ""
            lines.append(
                f"{said}; {totals.prompt_tokens} prompt and {totals.completion_tokens} answer tokens, "
                f"cost {totals.cost_text}"
            )
    return lines


cache_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Show and clear what judges' answers are kept."
)


def register(app: typer.Typer) -> None:
    """Adds the command to ``app``."""
    app.add_typer(cache_app, name="cache")


@cache_app.command("show")
def cache_show(directory: Annotated[Path, path_argument("Directory of the cache.", "DIRECTORY")]) -> None:
    """Show how many answers a cache holds.

    \b
    Example:
      sotopia cache show judge-cache
    """
    from sotopia_env.chat_model import cache_info

    found = cache_info(directory)
    typer.echo(f"{directory}: {found.answers} answers, {found.size} bytes")


@cache_app.command("clear")
def cache_clear(directory: Annotated[Path, path_argument("Directory of the cache.", "DIRECTORY")]) -> None:
    """Remove every answer from a cache.

    \b
    Example:
      sotopia cache clear judge-cache
    """
    from sotopia_env.chat_model import clear_cache

    typer.echo(f"{directory}: {clear_cache(directory)} answers removed")
