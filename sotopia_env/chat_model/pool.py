"""The language models of one run: each made once, with a shared ledger, and checked before the first episode."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from sotopia_env.chat_model.cache import ResponseCache
from sotopia_env.chat_model.factory import make_model
from sotopia_env.chat_model.limits import Limits
from sotopia_env.chat_model.options import EVERY, ModelOptions, of_model
from sotopia_env.chat_model.protocol import ChatModel, Role
from sotopia_env.chat_model.remote import RemoteModel, check
from sotopia_env.chat_model.spending.ledger import Ledger
from sotopia_env.foundation.errors import InvalidValueError

_T = TypeVar("_T")
_OWN_SERVERS = ("local/", "openai-compatible/")


def _provider(model: str) -> str:
    return _OWN_SERVERS[0] if model.startswith(_OWN_SERVERS) else model.partition("/")[0]


class ModelPool:
    """The models of one run, made by name, and opened, checked and closed together.

    An instance is a ``ModelMaker`` for policies, and :meth:`judge` is a model factory for judges. Agents and judges
    that name the same model share its connections and its limits.

    Attributes:
        options: the connection options and limits of the models.
        ledger: counts every call of every model, in memory until :meth:`open`.
        longest: the largest ``max_tokens`` of an answer in the settings passed to :meth:`check_answers`.
    """

    def __init__(self, options: ModelOptions | None = None) -> None:
        """Creates an empty pool, without connecting to anything.

        Raises:
            InvalidValueError: a limit is not a positive number.
        """
        self.options = options = options or ModelOptions()
        self.ledger = Ledger(max_cost=options.max_cost, max_tokens=options.max_tokens)
        self.longest = 0
        self._sharing: dict[str, dict[bool, str]] = {}
        self._models: dict[tuple[str, str | None], RemoteModel] = {}
        self._judges: dict[tuple[str, str | None], RemoteModel] = {}

    def check_answers(self, *settings: Mapping[str, Any]) -> None:
        """Checks that no answer may be longer than the limits of a minute or of the whole run.

        Args:
            settings: the parameters of the policies and evaluators that call the models.

        Raises:
            InvalidValueError: ``max_tokens`` of one answer exceeds the limit per minute or that of the whole run.
        """
        limits = Limits(tpm=self.options.tpm)
        for longest in _answers(settings):
            self.longest = max(self.longest, longest)
            limits.check_answer(longest)
            if self.options.max_tokens is not None and longest > self.options.max_tokens:
                raise InvalidValueError(
                    field="max_tokens",
                    expected=f"an answer of no more than the whole run's max_tokens {self.options.max_tokens}",
                    got=longest,
                )

    def __call__(self, spec: str, role: Role = "agent", *, api_base: str | None = None) -> ChatModel:
        """Returns the model that ``spec`` names, the same one every time.

        Raises:
            UnknownNameError: the provider is unknown.
            InvalidValueError: an option is invalid, options contradict each other, or a key is missing.
        """
        key = (spec, api_base)
        model = self._models.get(key) or self._models.setdefault(
            key, self._make(spec, api_base, self.options.fallbacks)
        )
        if role == "agent" or self.options.cache_dir is None:
            return model
        return self._judges.get(key) or self._judges.setdefault(key, self._with_cache(model))

    def judge(self, spec: str, *, api_base: str | None = None) -> ChatModel:
        """Returns the model that ``spec`` names for a judge, whose answers may be cached."""
        return self(spec, "judge", api_base=api_base)

    def _make(self, spec: str, api_base: str | None, fallbacks: tuple[str, ...], key: str | None = None) -> RemoteModel:
        """Makes a model; ``key`` is the environment variable with the key for ``api_base``, if there is one."""
        options = self.options
        # A key for every model is not sent to a model's own ``api_base``: that server may belong to a third party.
        if not api_base:
            self._check_shared_values(spec)
            key = of_model(options.api_key_env, spec)
        else:
            key = options.api_key_env.get(spec) or key
        base = api_base or of_model(options.api_base, spec)
        own: dict[str, Any] = {"api_base": {EVERY: base} if base else {}, "api_key_env": {EVERY: key} if key else {}}
        if api_base:
            own["header_env"] = {}  # headers may be secret, as keys are
        return make_model(
            spec,
            options=options.model_copy(update=own),
            fallbacks=[self._spare(name, spec, api_base, key) for name in fallbacks if name != spec],
            ledger=self.ledger,
        )

    def _spare(self, name: str, spec: str, api_base: str | None, key: str | None) -> RemoteModel:
        # A fallback of the same provider is assumed to be on the judge's server, unless it has its own address.
        same_server = _provider(name) == _provider(spec) and self.options.api_base.get(name) is None
        return self._make(name, api_base, (), key) if api_base and same_server else self._make(name, None, ())

    def _check_shared_values(self, spec: str) -> None:
        """Refuses one address or key for both self-hosted models and a provider's models.

        Each server would otherwise receive the key or the prompts that are meant for the other.
        """
        for field, value in (("api_base", self.options.api_base), ("api_key_env", self.options.api_key_env)):
            if EVERY in value and spec not in value:
                self._sharing.setdefault(field, {})[spec.startswith(_OWN_SERVERS)] = spec
            if len(self._sharing.get(field, {})) == 2:
                own, hosted = self._sharing[field][True], self._sharing[field][False]
                raise InvalidValueError(
                    f"{own!r} and {hosted!r} are not on one server", field=field, hint="give MODEL=VALUE for each"
                )

    def _with_cache(self, model: RemoteModel) -> RemoteModel:
        assert self.options.cache_dir is not None
        cache = ResponseCache(self.options.cache_dir)
        return RemoteModel(model.routes, structured=self.options.structured, ledger=self.ledger, cache=cache)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the models made so far, as the user wrote them."""
        return tuple(dict.fromkeys(name for name, _ in self._models))

    async def check(self) -> None:
        """Checks that every model is available.

        Raises:
            InvalidValueError: no server responds at a base URL, or a server does not accept the key.
            UnknownNameError: a server does not have a model.
        """
        await asyncio.gather(*(check(model) for model in self._models.values()))

    def open(self, directory: Path) -> None:
        """Opens the ledger in ``directory`` for writing, and adds the sums of earlier calls of the run.

        Raises:
            InvalidValueError: another process writes this ledger.
            DamagedRecordError: a line of the ledger cannot be read.
        """
        if self._models:
            self.ledger.open(directory)

    async def close(self) -> None:
        """Closes models and ledger."""
        for model in (*self._judges.values(), *self._models.values()):
            await model.close()
        self.ledger.close()


def _answers(settings: object) -> Iterator[int]:
    """Yields every ``max_tokens`` in parameters, also in those of nested policies or judges."""
    if isinstance(settings, Mapping):
        longest = settings.get("max_tokens")
        if isinstance(longest, int):
            yield longest
    if isinstance(settings, Mapping | list | tuple):
        for part in settings.values() if isinstance(settings, Mapping) else settings:
            yield from _answers(part)
