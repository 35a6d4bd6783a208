"""A model on a real socket that bargains: it makes one offer, and accepts any offer after its second turn."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def bargain(messages: list[dict[str, str]], hesitates: bool = True) -> str:
    """The text of the model: an action as JSON; if it ``hesitates``, the first text is not an action."""
    own = sum(message["role"] == "assistant" for message in messages)
    if hesitates and own == 0:
        return "Let me think."
    offers = re.findall(r'accept\\*": (\d+)', messages[-1]["content"])  # also within JSON, where quotes are escaped
    limits = re.search(r"number from \$(\d+) to \$(\d+)", messages[0]["content"])
    if offers and own > 1:
        move = f'{{"accept": {offers[-1]}}}'
    elif limits:
        move = f'{{"propose": {{"price": {(2 * int(limits[1]) + int(limits[2])) // 3}}}}}'
    else:
        move = "null"
    return f'{{"action_type": "speak", "argument": "Well then.", "move": {move}}}'


def calling(name: str, **arguments: object) -> Callable[[list[dict[str, str]]], dict[str, object]]:
    """A model that answers everything with a call of a function that nobody offers."""
    function = {"name": name, "arguments": json.dumps(arguments)}

    def respond(messages: list[dict[str, str]]) -> dict[str, object]:
        call = {"id": f"call{len(messages)}", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    return respond


def cut_off(messages: list[dict[str, str]]) -> dict[str, object]:
    """A model that is cut off after a draft, in every turn."""
    return {"role": "assistant", "content": f"I could answer {bargain(messages, False)}", "finish_reason": "length"}


@contextmanager
def bargaining_model(
    hesitates: bool = True, answer: Callable[[list[dict[str, str]]], str | dict[str, object]] | None = None
) -> Iterator[tuple[str, list[dict[str, object]]]]:
    """Yields the address of an OpenAI-compatible API, and the list of the requests that it gets."""
    respond = answer or (lambda messages: bargain(messages, hesitates))
    requests: list[dict[str, object]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append(body)
            response = respond(body["messages"])
            message = {"role": "assistant", "content": response} if isinstance(response, str) else response
            reason = message.pop("finish_reason", None) or ("tool_calls" if message.get("tool_calls") else "stop")
            choice = {"index": 0, "message": message, "finish_reason": reason}
            usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
            content = {"id": "1", "object": "chat.completion", "created": 1, "model": "bargainer"}
            data = json.dumps({**content, "choices": [choice], "usage": usage}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 256  # many episodes connect at once

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", requests
    finally:
        server.shutdown()
        server.server_close()
