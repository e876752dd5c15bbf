"""The app that a browser looks at: every job waits for the test, none for a clock."""

from __future__ import annotations

from pathlib import Path

import rota

app = rota.Rota()
HOSTILE = "</script><img src=x onerror=alert(1)>\"'`&lt;${alert(1)}\u202e" + "W" * 300


@app.job(max_attempts=1)
def gated(ctx: rota.Context, gate: str, total: int = 4) -> dict[str, str]:
    """Goes on when the file GATE.N is there, step by step."""
    for step in range(total):
        ctx.progress(step, total)
        ctx.logger.info("step %d of %d", step + 1, total)
        while not Path(f"{gate}.{step}").exists():
            if ctx.wait(0.05):
                return {"gate": "left alone"}
    ctx.progress(total, total)
    return {"gate": "open"}


@app.job(max_attempts=1)
def greet(name: str = "Ada") -> str:
    return f"Hello, {name}!"


@app.job(max_attempts=1)
def broken(ctx: rota.Context, text: str = "no bread") -> None:
    """Fails, with whatever it is told to say."""
    ctx.logger.error("about to fail: %s", text)
    raise RuntimeError(text)


@app.job(queue="talk")
def chatty(ctx: rota.Context, lines: int = 3, gate: str = "") -> None:
    """With a gate: says one more when the file GATE.N is there, for N = 0 and 1."""
    for number in range(lines):
        ctx.logger.info("line %d", number + 1)
    for step in range(2 if gate else 0):
        while not Path(f"{gate}.{step}").exists():
            if ctx.wait(0.05):
                return
        ctx.logger.info("after gate %d", step)


app.schedule("nightly", job="greet", cron="0 3 * * *", timezone="Europe/Berlin")
app.schedule("hourly", job="greet", every="1h", args={"name": "Bob"})
app.schedule("daily/report", job="greet", cron="30 6 * * 1-5", timezone="America/New_York")
app.schedule("L" * 128, job="greet", cron="0 0 1 1 *")
for number in range(3):
    app.schedule(f"bulk-{number}", job="greet", every="1d")
