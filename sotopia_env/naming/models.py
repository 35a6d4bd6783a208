"""Chat models by name: on a server, or in this process from a directory or of another package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sotopia_env.chat_model.protocol import ChatModel
from sotopia_env.naming.plugins import Plugins

MODEL_PLUGINS: Plugins[ChatModel] = Plugins("model", "sotopia.models", ChatModel)
"""The chat models of other packages, and those of directories."""


def with_directories(make: Callable[..., ChatModel]) -> Callable[..., ChatModel]:
    """Returns a maker of models that also opens directories and calls factories of other packages.

    Args:
        make: makes the model that a name such as ``local/my-model`` means; gets every name that is neither.
    """

    def model(spec: str, **options: Any) -> ChatModel:
        return MODEL_PLUGINS.make(spec, options) or make(spec, **options)

    return model
