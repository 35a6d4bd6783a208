"""Harness for verifiers 0.4 and prime-rl, whose id is ``sotopia-verifiers``."""

from __future__ import annotations

from typing import Any

from sotopia_env.foundation.extras import extra

with extra("verifiers"):
    import httpx
    import verifiers.v1 as vf
    from verifiers.v1.dialects.chat import message_to_wire


class InProcessHarness(vf.Harness[vf.HarnessConfig]):
    """Asks the model from the worker itself, where verifiers' own ``null`` harness starts a program for every turn."""

    APPENDS_SYSTEM_PROMPT = SUPPORTS_RESUME = True
    EXECUTES_CODE = NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: Any,
        data: Any,
        *_: Any,
        **__: Any,
    ) -> vf.ProgramResult:
        """Sends the conversation to verifiers' interception server, which asks the model and fills the trace."""
        system, prompt = self.resolve_prompt(data)
        messages = [{"role": "system", "content": system}] if system else []
        messages += (
            [{"role": "user", "content": prompt}] if isinstance(prompt, str) else map(message_to_wire, prompt or ())
        )
        async with httpx.AsyncClient(timeout=None, headers={"authorization": f"Bearer {secret}"}) as client:
            url = f"{endpoint}/chat/completions"
            answer = await client.post(url, json={"model": ctx.model, "messages": messages})
        return vf.ProgramResult(
            exit_code=int(answer.is_error), stdout="", stderr=answer.text if answer.is_error else ""
        )
