"""A stand-in for a language model: a server on this machine that gives the written answers of ``answers.json``.

It speaks the protocol of OpenAI's chat completions, needs no key and nothing but Python, and knows no more than the
prompts of `docs/writing.md`::

    python docs/samples/stand_in.py --port 8077
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MODEL = "stand-in"
ANSWERS: dict[str, Iterator[Any]] = {
    phrase: itertools.cycle(answers)
    for phrase, answers in json.loads(Path(__file__).with_name("answers.json").read_text(encoding="utf-8")).items()
}
"""By a phrase of the prompt that they answer; the next request gets the next one."""


def answer(prompt: str) -> str:
    """Returns the next answer to a prompt as JSON; of a relationship with the names and the kind that it asks for."""
    phrase = next((phrase for phrase in ANSWERS if phrase in prompt), None)
    if phrase is None:
        return "I only know the prompts of docs/writing.md."
    text = json.dumps(next(ANSWERS[phrase]), ensure_ascii=False)
    if phrase.startswith("Two people"):
        first, second = json.loads(prompt[prompt.index("[{") : prompt.index("}]") + 2])
        kind = json.loads(prompt.split("is, as a JSON string: ")[1].splitlines()[0])
        for word, value in (("FIRST", first["first_name"]), ("SECOND", second["first_name"]), ("KIND", kind)):
            text = text.replace(word, value)
    return text


class Handler(BaseHTTPRequestHandler):
    """The two addresses that a client asks."""

    def do_GET(self) -> None:
        """Lists the model."""
        self._send({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    def do_POST(self) -> None:
        """Answers a conversation by its first message."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = {"role": "assistant", "content": answer(body["messages"][0]["content"])}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self._send({"id": "1", "object": "chat.completion", "model": MODEL, "choices": [choice]})

    def _send(self, content: dict[str, Any]) -> None:
        data = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8077)
    with ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Handler) as server:
        server.serve_forever()
