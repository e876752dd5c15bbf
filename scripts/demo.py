"""A small bakery, for the pictures of the dashboard: a day of history (`python demo.py`), then live
(`rota up demo:app`)."""

from __future__ import annotations

import random
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import rota

app = rota.Rota("sqlite:///rota.db", slots=12)
luck = random.Random(7)


def take(ctx: rota.Context, seconds: float, steps: int = 1) -> None:
    """Pass the time that the work takes."""
    spent = max(0.05, luck.gauss(seconds, seconds / 5))
    for step in range(steps):
        ctx.progress(step, steps)
        if ctx.wait(spent / steps):
            return
    ctx.progress(steps, steps)


def fail(share: float, text: str) -> None:
    if luck.random() < share:
        raise RuntimeError(text)


@app.job(schedule="*/5 * * * *", max_attempts=3, delay="20s")
def fetch_orders(ctx: rota.Context) -> dict[str, int]:
    """Fetches orders from the shop."""
    ctx.logger.info("asking the shop for orders since %s", f"{ctx.scheduled_at:%H:%M}")
    take(ctx, 14, steps=7)
    fail(0.06, "the shop answered 502 Bad Gateway")
    orders = luck.randint(20, 90)
    ctx.logger.info("%d orders imported", orders)
    return {"orders": orders}


@app.job(schedule="0 */2 * * *", timezone="Europe/Berlin", max_attempts=2, delay="1m")
def rebuild_search_index(ctx: rota.Context) -> None:
    """Slow, and the reason why others wait."""
    take(ctx, 2400, steps=240)


@app.job(schedule="30 4 * * *", timezone="Europe/Berlin")
def nightly_backup(ctx: rota.Context) -> None:
    ctx.logger.info("copying 41 GB")
    take(ctx, 3200, steps=100)


@app.job(schedule="15 * * * *", max_attempts=2, delay="2m")
def sync_prices(ctx: rota.Context) -> None:
    take(ctx, 190, steps=30)
    fail(0.35, "the supplier's price list has 17 columns, expected 16")


@app.job(schedule="0 6 * * 1-5", timezone="America/New_York")
def morning_report(ctx: rota.Context) -> None:
    take(ctx, 420, steps=20)


@app.job(every="90s")
def oven_temperature(ctx: rota.Context) -> dict[str, float]:
    take(ctx, 2)
    return {"celsius": round(luck.uniform(210, 230), 1)}


@app.job(queue="mail", max_attempts=5, backoff="exponential", delay="5s")
def send_receipt(ctx: rota.Context, to: str = "ada@example.org", order: int = 1) -> None:
    ctx.logger.info("receipt of order %d to %s", order, to)
    take(ctx, 0.6)
    fail(0.12, f"mailbox of order {order} is full (452 4.2.2)")


@app.job(schedule="*/10 * * * *", queue="mail")
def receipts(ctx: rota.Context) -> None:
    """Asks for a receipt for each new order."""
    for _ in range(luck.randint(1, 5)):
        number = luck.randint(1_000, 9_999)
        send_receipt.enqueue(to=f"guest{number}@example.org", order=number)
    take(ctx, 1)


@app.job(schedule="20 1 * * *", timezone="Europe/Berlin")
def archive_orders(ctx: rota.Context) -> None:
    take(ctx, 900, steps=40)


@app.job
def refund(order: int, amount: float, reason: str = "", api_key: str = "") -> str:
    """On demand: gives money back."""
    return f"refunded {amount:.2f} of order {order}"


# What each job usually takes, in seconds, and how many of its runs die: for the history.
USUAL = {
    "fetch_orders": (14, 0.02, "RuntimeError: the shop answered 502 Bad Gateway"),
    "rebuild_search_index": (2400, 0.0, ""),
    "nightly_backup": (3200, 0.0, ""),
    "sync_prices": (190, 0.2, "RuntimeError: the price list has 17 columns, expected 16"),
    "morning_report": (420, 0.0, ""),
    "oven_temperature": (2, 0.0, ""),
    "receipts": (1, 0.0, ""),
    "archive_orders": (900, 0.0, ""),
}
RUNS = """INSERT INTO _rota_runs
    (id, job, queue, priority, state, due_at, created_at, queued_at, claimed_at, started_at,
     finished_at, attempt, failures, max_attempts, args, schedule_id, occurrence, missed_count,
     created_by, worker_id, error)
    VALUES (?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?, 1, ?, 1, '{}', ?, ?, 1, ?, 'bakery-1', ?)"""
OCCURRENCES = """INSERT INTO _rota_occurrences
    (schedule_id, occurrence, last_occurrence, count, outcome, reason, run_id, recorded_at)
    VALUES (?, ?, ?, 1, 'fired', NULL, ?, ?)"""


def history(hours: int) -> int:
    """Write down what would have happened, into a store where nothing has happened yet. Straight
    into its tables: no clock could make a day pass in a second."""
    app.load()
    now = datetime.now(UTC)
    runs, occurrences = [], []
    for schedule in app.storage.list_schedules(limit=100):
        seconds, share, error = USUAL[schedule.job]
        at = schedule.next_after(now - timedelta(hours=hours))
        if schedule.kind == "every":
            at = now - timedelta(hours=hours)
        while at is not None and at < now:
            due = _micros(at)
            made = due + luck.randint(1_000, 40_000)
            begun = made + luck.randint(2_000, 900_000)
            ended = begun + int(max(0.05, luck.gauss(seconds, seconds / 5)) * 1_000_000)
            dead = luck.random() < share
            if ended < _micros(now):
                run_id, queue = str(uuid4()), app._jobs[schedule.job].queue
                state = "dead" if dead else "succeeded"
                runs.append((run_id, schedule.job, queue, state, due, made, made, made, begun,
                             ended, int(dead), schedule.id, due, f"schedule {schedule.name}",
                             error if dead else None))  # fmt: skip
                occurrences.append((schedule.id, due, due, run_id, made))
            at = at + timedelta(seconds=90) if schedule.kind == "every" else schedule.next_after(at)
    app.close()
    runs.sort(key=lambda row: row[5])
    with closing(sqlite3.connect("rota.db")) as store, store:
        store.executemany(RUNS, runs)
        store.executemany(OCCURRENCES, occurrences)
        store.execute(
            "UPDATE _rota_schedules SET last_fired_at = "
            "(SELECT max(occurrence) FROM _rota_occurrences WHERE schedule_id = id)"
        )
    return len(runs)


def _micros(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000)


if __name__ == "__main__":
    print(history(int(sys.argv[1]) if len(sys.argv) > 1 else 26), "runs")
