"""Draw docs/images/up.svg: what `rota up` with the examples prints in its first seconds."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
LINES = 44
COLOURS = {"succeeded": "green", "started": "cyan", "failed": "red", "retry": "yellow"}


def lines() -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "examples"
        shutil.copytree(
            ROOT / "examples", project, ignore=shutil.ignore_patterns("*.db*", "*.duckdb*")
        )
        process = subprocess.Popen(
            [sys.executable, "-m", "rota.cli", "up", "hello:app"],
            cwd=project,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        shown = [process.stdout.readline().rstrip() for _ in range(LINES)]
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    return shown


def main() -> None:
    console = Console(record=True, width=112, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    console.print(Text("$ rota up hello:app", style="bold"))
    for line in lines():
        text = Text(line)
        for word, colour in COLOURS.items():
            text.highlight_words([word], style=colour)
        console.print(text, overflow="ellipsis", no_wrap=True)
    drawn = console.export_svg(title="rota")
    # The picture must not fetch anything: the reader's own fixed-width font does.
    drawn = re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL)
    (ROOT / "docs" / "images" / "up.svg").write_text(drawn)


if __name__ == "__main__":
    main()
