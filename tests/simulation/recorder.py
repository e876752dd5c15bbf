"""What was committed, as seen from outside: a copy of the rows, and a memory that outlives them.

After each commit the log of the triggers is read, each change is checked against the copy, and
the copy follows. The checks are in `invariants` (runs, slots, keys) and `timetable` (cursors and
the ledger).
"""

from __future__ import annotations

import json
from collections import defaultdict, namedtuple
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rota.model.duration import micros
from rota.model.schedule import WAITING_FOR_RUN
from rota.model.transitions import HELD, QUEUED, RUNNING, WAITING
from tests.simulation import invariants, timetable
from tests.simulation.history import Violation
from tests.simulation.store import TRACKED, Asked

if TYPE_CHECKING:
    from tests.simulation.world import Actor, World

NOTHING_ASKED = Asked("nothing")
NEVER = micros(WAITING_FOR_RUN)

ROWS: dict[str, Any] = {
    table: namedtuple(table.removeprefix("_rota_"), columns) for table, columns in TRACKED.items()
}


@dataclass(slots=True)
class Commit:
    """One transaction: who asked for what, and what it changed."""

    actor: Actor
    asked: Asked
    now: int
    to_claim: list[int] = field(default_factory=list)
    claimed: list[int] = field(default_factory=list)
    runs: dict[int, None] = field(default_factory=dict)  # touched, in order
    fired: list[Any] = field(default_factory=list)  # runs inserted for an occurrence
    ended: list[Any] = field(default_factory=list)  # runs that became terminal
    heard: list[Any] = field(default_factory=list)  # what their executor added
    attempts: dict[tuple[int, int], str] = field(default_factory=dict)
    tried: list[Any] = field(default_factory=list)  # runs whose attempt ended
    ledger: list[Any] = field(default_factory=list)
    folded: list[Any] = field(default_factory=list)  # (old, new) rows of the ledger
    schedules: dict[int, Any] = field(default_factory=dict)  # id -> as it was before
    deleted: set[str] = field(default_factory=set)  # run ids
    key_owners: list[Any] = field(default_factory=list)  # of each run that was asked for

    @property
    def verb(self) -> str:
        return self.asked.verb

    def fired_by(self, schedule_id: int) -> bool:
        """Whether it made a run of this schedule."""
        return any(run.schedule_id == schedule_id for run in self.fired)


class Recorder:
    def __init__(self, world: World) -> None:
        self.world = world
        self.version = 0
        self._changes = -1
        # The copy
        self.runs: dict[int, Any] = {}
        self.run_by_id: dict[str, int] = {}
        self.slots: dict[tuple[str, int], int] = {}
        self.owned: defaultdict[int, set[str]] = defaultdict(set)
        self.schedules: dict[int, Any] = {}
        self.ledger: dict[tuple[int, int], Any] = {}
        self.keys: dict[tuple[str, str], Any] = {}
        self.queues: dict[str, bool] = {}
        self.meta: dict[str, str] = {}
        # The memory
        self.touched: dict[Any, int] = {}  # run seq, or ("schedule", id) -> version
        self.ever: dict[str, str] = {}  # run id -> job
        self.occurrences: set[tuple[int, int]] = set()
        self.ledgered: defaultdict[int, set[int]] = defaultdict(set)  # occurrences, for ever
        self.rewound: dict[int, int] = {}  # schedules that an edit led back, and from where
        self.stands_for: defaultdict[str, int] = defaultdict(int)
        self.ends: dict[tuple[str, int], tuple[int, str]] = {}
        self.told: set[tuple[str, int]] = set()
        self.started: set[tuple[str, int]] = set()  # attempts
        self.acknowledged: set[str] = set()  # run ids that somebody was told
        self.removed: set[str] = set()  # run ids that an operator deleted

    # Commits

    def read_commit(self, actor: Actor) -> None:
        asked = actor.asked or NOTHING_ASKED
        commit = actor.last_commit = Commit(actor, asked, self.world.clock.micros)
        line = self.queued() if asked.claimant is not None else []
        connection = self.world.engine.connection
        changed = connection.total_changes != self._changes
        if changed:
            self._changes = connection.total_changes
            log = connection.execute(
                "SELECT n, what, how, row FROM sim_log WHERE n > ? ORDER BY n", (self.version,)
            )
            for n, what, how, text in log.fetchall():
                self.version = n
                self._apply(commit, what, how, ROWS[what]._make(json.loads(text)))
        commit.to_claim = invariants.to_claim(self, commit, line)
        if changed:
            invariants.check_commit(self, commit)
            timetable.check_commit(self, commit)
        if asked.verb == "enqueue":
            commit.key_owners = [self.keys.get((new.job, new.key)) for new in asked.args[0]]

    def _apply(self, commit: Commit, what: str, how: str, row: Any) -> None:
        gone = how == "delete"
        match what:
            case "_rota_runs":
                self._apply_run(commit, row, gone)
            case "_rota_slots":
                invariants.check_slot(self, commit, row, how)
                commit.runs[row.owner_run] = None
                if gone:
                    del self.slots[row.key, row.number]
                    self.owned[row.owner_run].discard(row.key)
                else:
                    self.slots[row.key, row.number] = row.owner_run
                    self.owned[row.owner_run].add(row.key)
            case "_rota_schedules":
                commit.schedules.setdefault(row.id, self.schedules.get(row.id))
                self.touched["schedule", row.id] = self.version
                self._put(self.schedules, row.id, row, gone)
            case "_rota_occurrences":
                timetable.check_ledger_row(self, commit, row, how)
                if how == "insert":
                    commit.ledger.append(row)
                self._put(self.ledger, (row.schedule_id, row.occurrence), row, gone)
            case "_rota_run_keys":
                invariants.check_key(self, commit, row, how)
                self._put(self.keys, (row.job, row.key), row, gone)
            case "_rota_attempts":
                invariants.check_attempt_row(self, commit, row, how)
            case "_rota_queues":
                self._put(self.queues, row.name, bool(row.paused), gone)
            case "_rota_meta":
                self._put(self.meta, row.key, row.value, gone)
            case "sim_ends":
                commit.heard.append(row)

    def _apply_run(self, commit: Commit, row: Any, gone: bool) -> None:
        old = self.runs.get(row.seq)
        commit.runs[row.seq] = None
        self.touched[row.seq] = self.version
        if gone:
            invariants.check_delete(self, commit, old)
            commit.deleted.add(row.id)
            if commit.verb == "delete_run":
                self.removed.add(row.id)
            self.world.note(commit.actor, f"run {row.seq} {old.state} deleted by {commit.verb}")
            del self.runs[row.seq], self.run_by_id[row.id]
            return
        if old is None:
            self.world.note(commit.actor, f"run {row.seq} made {row.state} by {commit.verb}")
            invariants.check_insert(self, commit, row)
            if row.id in self.ever:
                self._forget(row.id)
            self.ever[row.id] = row.job
        else:
            if old.state != row.state:
                self.world.note(
                    commit.actor,
                    f"run {row.seq} {old.state} -> {row.state} attempt {row.attempt} {commit.verb}",
                )
            invariants.check_update(self, commit, old, row)
        self.runs[row.seq] = row
        self.run_by_id[row.id] = row.seq

    def _forget(self, run_id: str) -> None:
        """An enqueue without an answer is sent again, and finds its run pruned: it is made anew.
        Retention in days makes that impossible; here it is seconds."""
        self.ends = {key: end for key, end in self.ends.items() if key[0] != run_id}
        self.told = {key for key in self.told if key[0] != run_id}
        self.started = {key for key in self.started if key[0] != run_id}

    def _put(self, rows: dict[Any, Any], key: Any, row: Any, gone: bool) -> None:
        if gone:
            rows.pop(key, None)
        else:
            rows[key] = row

    # What the actors were told, and what they say they did

    def answered(self, actor: Actor, answer: Any) -> None:
        assert actor.asked is not None
        match actor.asked.verb:
            case "claim":
                invariants.check_claim_answer(self, actor.last_commit, answer)
            case "fire":
                invariants.check_claim_answer(self, actor.last_commit, answer.claimed)
            case "enqueue":
                invariants.check_enqueue_answer(self, actor.last_commit, answer)
            case "due_schedules":
                timetable.check_reading(actor)

    def handler_started(self, run_id: str, attempt: int) -> None:
        if (run_id, attempt) in self.started:
            raise Violation(f"attempt {attempt} of run {run_id} was started twice")
        self.started.add((run_id, attempt))

    def listener_told(self, run_id: str, attempt: int, state: str) -> None:
        """`job.completed` and its like are told once, and only of ends that were stored."""
        ends = {redo: end for (id, redo), end in self.ends.items() if id == run_id}
        mine = [redo for redo, end in ends.items() if end == (attempt, state)]
        if not mine:
            raise Violation(f"{state} was told of run {run_id} attempt {attempt}: not its end")
        if (run_id, attempt) in self.told:
            raise Violation(f"the end of run {run_id} attempt {attempt} was told twice")
        self.told.add((run_id, attempt))

    # What a step without a fault must not leave behind

    def step_begins(self, actor: Actor) -> None:
        actor.did.clear()
        actor.due = (self.world.clock.steps, self.version, list(self._due_for(actor.role)))

    def step_ended(self, actor: Actor) -> None:
        steps, version, due = actor.due
        # What became due while the step ran may have filled its batch.
        came = sum(at > version for key, at in self.touched.items() if key not in due)
        full = len(due) + came >= actor.batch
        if steps != self.world.clock.steps or full or not actor.looked():
            return
        for key in due:
            if self.touched.get(key, 0) <= version and self._is_there(key):
                raise Violation(f"{actor} left {key} behind, which was due when its step began")

    def _due_for(self, role: str, ahead: int = 0) -> Iterator[Any]:
        now = self.world.clock.micros + ahead
        match role:
            case "fire":
                for row in self.schedules.values():
                    if row.enabled and not row.paused and (row.next_fire_at or NEVER) <= now:
                        yield "schedule", row.id
            case "promote":
                for run in self.runs.values():
                    if run.state == WAITING and run.due_at <= now:
                        yield run.seq
            case "rescue":
                for run in self.runs.values():
                    if run.state == RUNNING and run.lease_until <= now:
                        yield run.seq

    def has_admissible(self) -> bool:
        """Whether the head of some line could have a slot now."""
        heads: dict[str, Any] = {}
        for run in self.in_state(HELD):
            head = heads.setdefault(run.wanted_key, run)
            heads[run.wanted_key] = min(head, run, key=lambda one: (-one.priority, one.seq))
        return any(
            (key, number) not in self.slots
            for key, head in heads.items()
            for number in range(1, invariants.size(head, key) + 1)
        )

    def has_due(self, role: str, ahead: int = 0) -> bool:
        return next(self._due_for(role, ahead), None) is not None

    def _is_there(self, key: Any) -> bool:
        return key[1] in self.schedules if isinstance(key, tuple) else key in self.runs

    # For the world

    def instants(self) -> Iterator[int]:
        """Instants of the deciding clock at which something becomes due."""
        for row in self.schedules.values():
            if row.next_fire_at is not None and row.enabled and not row.paused:
                yield row.next_fire_at
        for run in self.runs.values():
            if run.state == WAITING:
                yield run.due_at
            elif run.state == RUNNING:
                yield run.lease_until

    def in_state(self, *states: str) -> list[Any]:
        return [run for run in self.runs.values() if run.state in states]

    def queued(self) -> list[Any]:
        return self.in_state(QUEUED)
