"""A server that cuts long prompts without an error is named once; others never."""

import asyncio
import logging

import pytest

from sotopia_env.chat_model import ChatRequest, make_model
from tests.sotopia_env.chat_model.conftest import QUICK
from tests.sotopia_env.chat_model.server import LoopbackServer


class CuttingServer(LoopbackServer):
    """Reads at most ``context`` words of a prompt, as Ollama does."""

    context = 10**6

    def _completion(self, body, fault):
        completion = super()._completion(body, fault)
        completion["usage"]["prompt_tokens"] = min(self.context, completion["usage"]["prompt_tokens"])
        return completion


@pytest.mark.parametrize(("context", "warnings"), [(150, 1), (10**6, 0)])
def test_prompts_that_grow_while_their_count_stands_still(context, warnings, caplog):
    async def converse(model):
        for count in range(1, 13):
            await model.complete(ChatRequest(({"role": "user", "content": "one two three four five " * 10 * count},)))
        await model.close()

    with CuttingServer() as server, caplog.at_level(logging.WARNING):
        server.context = context
        asyncio.run(converse(make_model("local/tiny", api_base=server.api_base, retries=QUICK)))
    records = [record for record in caplog.records if "num_ctx" in record.getMessage()]
    assert len(records) == warnings
    assert all("counts 150 prompt tokens" in record.getMessage() for record in records)
