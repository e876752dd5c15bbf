"""Exit with 0 if the `rota up` of this container works: the health check of the Containerfile.

    python healthcheck.py [PID]

The process with that id (1 unless given) is asked over HTTP, or HTTPS where it has a certificate.
One without the part `web` listens nowhere: it is healthy as long as it runs, because it ends when
it cannot work.
"""

from __future__ import annotations

import ssl
import sys
import urllib.request
from pathlib import Path

from rota.config import load_settings

SECONDS = 4.0
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


def main() -> int:
    process = sys.argv[1] if len(sys.argv) > 1 else "1"
    words = Path(f"/proc/{process}/cmdline").read_text().split("\0")
    parts = option(words, "--only")
    if parts is not None and "web" not in parts.split(","):
        return 0
    config = option(words, "--config")
    flags = {"host": option(words, "--host"), "port": option(words, "--port")}
    flags["tls_certificate"] = option(words, "--tls-certificate")
    settings = load_settings(flags, file=Path(config) if config else None)
    scheme = "http" if settings.tls_certificate is None else "https"
    host = ANY_ADDRESS.get(settings.host, settings.host)
    # The certificate is that of a name outside; here only its holder can answer.
    anyone = ssl._create_unverified_context()
    url = f"{scheme}://{host}:{settings.port}/healthz"
    with urllib.request.urlopen(url, timeout=SECONDS, context=anyone) as answer:
        return 0 if answer.status == 200 else 1


def option(words: list[str], name: str) -> str | None:
    """The value of an option of the command line, in either spelling."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == name:
            return following
        if word.startswith(f"{name}="):
            return word.removeprefix(f"{name}=")
    return None


if __name__ == "__main__":
    try:
        code = main()
    except Exception as fault:
        print(f"not healthy: {fault}", file=sys.stderr)
        code = 1
    sys.exit(code)
