"""Clients for language models: hosted, or on an OpenAI-compatible server. All calls to remote models use this package.

::

    model = make_model("local/my-model", api_base="http://localhost:8000/v1")
    await check(model)
    reply = await model.complete(ChatRequest(messages=({"role": "user", "content": "Good morning."},)))
    await model.close()
"""

from sotopia_env.chat_model.cache import CacheInfo, cache_info, clear_cache
from sotopia_env.chat_model.factory import make_model
from sotopia_env.chat_model.limits import Limits, estimate_tokens
from sotopia_env.chat_model.options import ModelOptions
from sotopia_env.chat_model.pool import ModelPool
from sotopia_env.chat_model.protocol import ChatModel, ChatReply, ChatRequest, Role
from sotopia_env.chat_model.remote import RemoteModel, check
from sotopia_env.chat_model.retries import PATIENCE, RetryPolicy, read_patience
from sotopia_env.chat_model.spending.budget import Amount, Price
from sotopia_env.chat_model.spending.ledger import Ledger, LedgerEntry, Totals, read_ledger

__all__ = [
    "PATIENCE",
    "Amount",
    "CacheInfo",
    "ChatModel",
    "ChatReply",
    "ChatRequest",
    "Ledger",
    "LedgerEntry",
    "Limits",
    "ModelOptions",
    "ModelPool",
    "Price",
    "RemoteModel",
    "RetryPolicy",
    "Role",
    "Totals",
    "cache_info",
    "check",
    "clear_cache",
    "estimate_tokens",
    "make_model",
    "read_ledger",
    "read_patience",
]
