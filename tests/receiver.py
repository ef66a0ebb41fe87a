"""A real HTTP server that takes what webhooks are told, and can be told to answer badly."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PATIENCE_S = 30.0


class Receiver:
    """Answers with `answer(number of the request)`: a status, None to answer nothing, bytes to answer with garbage."""

    def __init__(self, port: int = 0) -> None:
        self.answer: Callable[[int], int | bytes | None] = lambda number: 200
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.tried = 0
        self.let_go = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.tried += 1
                status = receiver.answer(receiver.tried)
                if status is None:
                    receiver.let_go.wait(PATIENCE_S)
                elif isinstance(status, bytes):
                    self.wfile.write(status)
                else:
                    if status == 200:
                        receiver.requests.append(({k.lower(): v for k, v in self.headers.items()}, body))
                    self.send_response(status)
                    if 300 <= status < 400:
                        self.send_header("Location", f"http://127.0.0.1:{receiver.port}/elsewhere")
                    self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/hook?key=1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def events(self) -> list[dict]:
        return [json.loads(body) for _, body in self.requests]

    def of_job(self, id: int) -> list[str]:
        return [event["event"] for event in self.events if event.get("job") == id]

    def close(self) -> None:
        self.let_go.set()
        self._server.shutdown()
        self._server.server_close()
