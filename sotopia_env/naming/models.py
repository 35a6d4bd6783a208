"""Factory of chat models by name: models on a server, in a directory, or of another package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sotopia_env.chat_model.protocol import ChatModel
from sotopia_env.naming.plugins import Plugins
from sotopia_env.naming.unbuilt import Unbuilt

MODEL_PLUGINS: Plugins[ChatModel] = Plugins("model", "sotopia.models", ChatModel, Unbuilt)
"""The chat models of other packages, including models in directories."""


def with_directories(make: Callable[..., ChatModel]) -> Callable[..., ChatModel]:
    """Returns a model factory that also opens directories and calls factories of other packages.

    Args:
        make: the factory for all other names, such as ``local/my-model``.
    """

    def model(spec: str, **options: Any) -> ChatModel:
        return MODEL_PLUGINS.make(spec, options) or make(spec, **options)

    return model
