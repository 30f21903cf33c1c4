"""A JupyterLab server on loopback, started as `make lab` starts it, that keeps all of its own files in one folder."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

# Jupyter reads these; without them a test would see, and change, the settings of whoever runs it.
OWN_FOLDERS = {
    "JUPYTER_CONFIG_DIR": "config",
    "JUPYTER_DATA_DIR": "data",
    "JUPYTER_RUNTIME_DIR": "runtime",
    "JUPYTERLAB_SETTINGS_DIR": "settings",
    "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
    "IPYTHONDIR": "ipython",
    "MPLCONFIGDIR": "matplotlib",
}
NEWS_OFF = {"fetchNews": "false", "checkForUpdates": False}


@dataclass
class Server:
    """A running server. `notebooks` is the folder it serves, `home` holds its own files."""

    url: str
    token: str
    notebooks: Path
    home: Path
    process: subprocess.Popen[bytes]

    def api(self, path: str, method: str = "GET") -> Any:
        """What Jupyter's REST interface answers, as Python data."""
        headers = {"Authorization": f"token {self.token}"}
        request = urllib.request.Request(f"{self.url}api/{path}", method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def settings(self, plugin: str, **values: Any) -> None:
        """Choose as in the settings editor: `settings("apputils-extension:themes", theme="JupyterLab Dark")`."""
        package, _, name = plugin.partition(":")
        file = self.home / "settings" / "@jupyterlab" / package / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values), encoding="utf-8")

    def end_kernels(self) -> None:
        for kernel in self.api("kernels"):
            self.api(f"kernels/{kernel['id']}", "DELETE")


@contextmanager
def running_server(notebooks: Path, home: Path) -> Iterator[Server]:
    """Serve a folder; at the end the server, its kernels and all that they started are gone, or this raises."""
    token = secrets.token_hex(16)
    environment = os.environ | {name: str(home / folder) for name, folder in OWN_FOLDERS.items()}
    environment["JUPYTER_TOKEN"] = token
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={_free_port()}"),
        *(f"--ServerApp.root_dir={notebooks}", "--LabApp.expose_app_in_browser=True"),
        *(["--allow-root"] if hasattr(os, "getuid") and os.getuid() == 0 else []),
    ]
    home.mkdir(parents=True, exist_ok=True)
    with (home / "server.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, cwd=notebooks, stdout=log, stderr=subprocess.STDOUT)
        try:
            server = Server(_url_when_ready(process, home), token, notebooks, home, process)
            server.settings("apputils-extension:notification", **NEWS_OFF)
            yield server
            server.end_kernels()
        finally:
            survivors = _end(process)
    assert not survivors, f"left behind by JupyterLab: {survivors}"


def wait_until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """Ask until the answer is true, and return it."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {seconds:g} s still not: {what}")
        time.sleep(0.05)
    return answer


def _free_port() -> int:
    """A port that is free now. The server takes another by itself if it is not free any more, and notes which."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _url_when_ready(process: subprocess.Popen[bytes], home: Path) -> str:
    note = home / "runtime" / f"jpserver-{process.pid}.json"

    def ready() -> str:
        if process.poll() is not None:
            raise RuntimeError(f"JupyterLab ended:\n{(home / 'server.log').read_text('utf-8', 'replace')[-3000:]}")
        with suppress(OSError, json.JSONDecodeError):
            url: str = json.loads(note.read_text(encoding="utf-8"))["url"]
            with urllib.request.urlopen(f"{url}api", timeout=5):
                return url
        return ""

    return str(wait_until(ready, 60, "JupyterLab answers"))


def _end(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Stop the server and return what it had started and is alive five seconds later."""
    with suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)
        survivors = psutil.wait_procs(family, timeout=5)[1]
        for survivor in survivors:
            with suppress(psutil.NoSuchProcess):
                survivor.kill()
        return survivors
    return []
