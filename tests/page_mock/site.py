"""Serves the page from `web/` with fake calls: `/mock` is the page as it is, started by `main.js` of this folder.

`python tests/page_mock/site.py [port]` serves it for a look by hand; `play(recording)` in the browser's console
plays a recording.
"""

import http.server
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def recording(name: str) -> list[dict[str, Any]]:
    """The server events of one call: [{"at": ms, "event": {...}}, ...]."""
    lines = (HERE / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def agent_info() -> dict[str, Any]:
    menu = yaml.safe_load((ROOT / "demos/ordering/menu.yaml").read_text(encoding="utf-8"))
    return {"name": "ordering", "model": "tea-omni", "languages": ["zh", "en"], "tools": [], "info": {"menu": menu}}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if path == "/v1/agent":
            return self._reply("application/json", json.dumps(agent_info()).encode())
        if path == "/mock":
            page = (ROOT / "web/index.html").read_text(encoding="utf-8")
            return self._reply("text/html", page.replace('src="main.js"', 'src="mock/main.js"').encode())
        if path.startswith("/mock/"):
            file = HERE / path.removeprefix("/mock/")
        else:
            file = ROOT / "web" / (path.removeprefix("/") or "index.html")
        if not file.is_file():
            return self.send_error(404)
        self._reply(TYPES[file.suffix], file.read_bytes())

    def do_POST(self) -> None:
        """Refuses every call as a full server would."""
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps({"error": {"message": "all 4 lines are in use"}}).encode()
        self._reply("application/json", body, 503)

    def _reply(self, content_type: str, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{content_type}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class QuietFiles(http.server.SimpleHTTPRequestHandler):
    """The files of a folder, as `python -m http.server --directory` serves them."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serve(port: int = 0, handler: Callable[..., http.server.BaseHTTPRequestHandler] = Handler) -> Iterator[str]:
    """Serves on loopback until the block ends; yields the address, such as http://127.0.0.1:40123."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


if __name__ == "__main__":
    with serve(int(sys.argv[1]) if len(sys.argv) > 1 else 8765) as address:
        print(f"{address}/mock")
        threading.Event().wait()
