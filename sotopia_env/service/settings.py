"""The settings of the service, of its processes and of everything that runs in them."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.settings import Settings


class ServiceSettings(Settings):
    """What a server and its workers need to know; every process of one service has the same.

    Attributes:
        database: ``sqlite:///FILE`` or ``postgresql://USER:PASSWORD@HOST/NAME``.
        data: the directory of run directories and of caches.
        models: how language models are reached, and what a run may spend at most.
        model_names: language models that pages offer, such as ``local/my-model``; any other name can be typed.
        evaluator: what scores an episode where nothing else was chosen.
        design_model: the language model that drafts scenarios; the first of ``model_names`` by default.
        concurrency: jobs that one worker process carries out at once.
        turn_seconds: how long a person may take for a turn where a study does not say so.
        live_episodes: how many live episodes one person may have at once.
        accounts: whether people must log in; without accounts whoever has the one-time address is the administrator.
        origin: the address under which browsers reach the service, such as ``https://lab.example.org``; by default
            that of the request.
        hosts: names under which requests may reach the service; by default that of ``origin``, or this machine alone.
    """

    database: str = "sqlite:///studio/studio.db"
    data: Path = Path("studio")
    models: ModelOptions = ModelOptions()
    model_names: tuple[str, ...] = ()
    evaluator: str = "verified+rules"
    design_model: str = ""
    concurrency: int = Field(default=16, ge=1)
    turn_seconds: float = Field(default=900.0, gt=0, allow_inf_nan=False)
    live_episodes: int = Field(default=50, ge=1)
    accounts: bool = False
    origin: str = ""
    hosts: tuple[str, ...] = ()
