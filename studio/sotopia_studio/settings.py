"""The settings of the service, of its processes and of everything that runs in them."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path

from pydantic import Field, field_validator

from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.foundation.errors import InvalidValueError
from sotopia_env.foundation.settings import Settings


class ServiceSettings(Settings):
    """Settings of a service; its server and all its workers must use the same.

    Attributes:
        database: ``sqlite:///FILE`` or ``postgresql://USER:PASSWORD@HOST/NAME``.
        data: the directory of run directories and of caches.
        models: access to language models, and the spending limits of a run.
        model_names: language models that the pages list, such as ``local/my-model``; any other name can be typed.
        evaluator: the default evaluator of episodes.
        design_model: the language model that drafts scenarios; the first of ``model_names`` by default.
        concurrency: number of jobs that one worker process carries out at once: live episodes, batch runs (each with a
            concurrency of its own), evaluations and drafts. They wait for models most of the time, so 16 keep a model
            server busy; further jobs queue, and more workers take them.
        turn_seconds: the default time limit of a person's turn.
        live_episodes: the maximum number of live episodes of one user at once.
        accounts: whether users log in with a password; without accounts, the one-time address admits an administrator.
        origin: the address under which browsers reach the service, such as ``https://lab.example.org``; by default
            that of the request.
        hosts: names under which requests may reach the service; by default that of ``origin``, or this machine alone.
        proxies: addresses or networks of reverse proxies, such as ``127.0.0.1``; only their ``X-Forwarded-For`` and
            ``X-Forwarded-Proto`` are believed. Without them, all who come through a proxy count as one caller, who has
            ten logins in a minute.
    """

    database: str = "sqlite:///studio-data/studio.db"
    data: Path = Path("studio-data")
    models: ModelOptions = ModelOptions()
    model_names: tuple[str, ...] = ()
    evaluator: str = "verified"
    design_model: str = ""
    concurrency: int = Field(default=16, ge=1)
    turn_seconds: float = Field(default=900.0, gt=0, allow_inf_nan=False)
    live_episodes: int = Field(default=50, ge=1)
    accounts: bool = False
    origin: str = ""
    hosts: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()

    @field_validator("proxies")
    @classmethod
    def _check_proxies(cls, proxies: tuple[str, ...]) -> tuple[str, ...]:
        for text in proxies:
            try:
                ip_network(text, strict=False)
            except ValueError:
                expected = "an IP address or a network, such as 127.0.0.1 or 10.0.0.0/8"
                raise InvalidValueError(field="proxies", expected=expected, got=text) from None
        return proxies
