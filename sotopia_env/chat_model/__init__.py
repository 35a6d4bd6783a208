"""Clients for language models: hosted, or on an OpenAI-compatible server. All calls to remote models use this package.

::

    model = make_model("local/my-model", api_base="http://localhost:8000/v1")
    await check(model)
    reply = await model.complete(ChatRequest(messages=({"role": "user", "content": "Good morning."},)))
    await model.close()
"""

from sotopia_env.chat_model.factory import make_model
from sotopia_env.chat_model.protocol import ChatModel, ChatReply, ChatRequest

__all__ = [
    "ChatModel",
    "ChatReply",
    "ChatRequest",
    "make_model",
]
