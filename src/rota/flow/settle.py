"""Settle outcomes: decide with `model.outcome.settle`, write in groups, then tell listeners.

Fenced by (seq, attempt): what is not answered was settled by somebody else meanwhile, and its
result is dropped.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from rota.errors import Invalid, Unavailable, Unknown
from rota.executors.protocol import Ask, Statement, TerminationHook
from rota.flow.counters import Counters
from rota.flow.events import Events, run_event
from rota.model.history import ENDS
from rota.model.job import Job
from rota.model.outcome import Outcome, Settlement, settle, succeed
from rota.model.retry import ONCE, Retry
from rota.model.run import ClaimedRun, Run
from rota.model.transitions import TERMINAL
from rota.storage import operations
from rota.storage.operations.settling import OnTerminated
from rota.storage.store import Store

log = logging.getLogger("rota.settle")

GROUP = 3_000
ONE_WRITER_GROUP = 1_000  # where a write keeps every other one waiting
IDLE_SECONDS = 60.0  # a put ends it at once
ON_TERMINATED_SECONDS = 5.0  # an executor's answer is waited for inside a transaction
MOST_LATE = 3  # of an executor's: then it is not asked before one of them has answered
HELD_SECONDS = 1.0  # until another look whether a stranger's transaction has ended

FindTerminationHook = Callable[[str], TerminationHook | None]


class Settler:
    """`termination_hook_of` returns the executor of a job if it adds to the end of its runs.
    `restarted` is told when a schedule that waited for the end of its run counts from now on."""

    def __init__(
        self,
        store: Store,
        *,
        jobs: Mapping[str, Job],
        max_lost: int,
        events: Events,
        termination_hook_of: FindTerminationHook,
        settled: Callable[[], None] = lambda: None,
        restarted: Callable[[], None] = lambda: None,
        random_value: Callable[[], float] = random.random,
        counters: Counters | None = None,
    ) -> None:
        self.counters = counters or Counters()
        self.store, self.jobs, self.max_lost = store, jobs, max_lost
        self.events, self.settled, self.random_value = events, settled, random_value
        self.termination_hook_of = termination_hook_of
        self.restarted = restarted
        self._group = ONE_WRITER_GROUP if store.one_writer else GROUP
        self._pending: deque[Settlement] = deque()
        self._writing: list[Settlement] = []
        self._held: list[Settlement] = []  # a stranger's transaction keeps them from being written
        self._uncertain = False
        self._told: set[str] = set()  # jobs whose missing executor was logged
        self._wake: Callable[[], None] = lambda: None
        self._caught_up: Callable[[], None] = lambda: None
        self._found_behind = False  # by somebody, since the last group was taken
        self._written = threading.Condition()

    # A worker's outcomes, written by the settle loop in groups

    def put(self, run: ClaimedRun, outcome: Outcome, ran_seconds: float | None = None) -> None:
        decided = self.decide(run, outcome, ran_seconds)
        self._pending.append(decided)
        try:
            first = self._pending[0]
        except IndexError:
            return  # the loop has ours already
        # Who put the first one wakes the loop, which takes what is there by then: ours as well.
        if first is decided:
            self._wake()

    def on_put(
        self, wake: Callable[[], None], caught_up: Callable[[], None] = lambda: None
    ) -> None:
        """`wake` is called when there is an outcome to write, `caught_up` when this is no longer
        behind, and was found so."""
        self._wake, self._caught_up = wake, caught_up

    @property
    def behind(self) -> bool:
        """Whether a whole group waits while another one is being written. What ended and is not
        written yet is done again if this process dies, and more of it would only wait longer."""
        if len(self._pending) < self._group:
            return False
        self._found_behind = True  # before another look: a group may have been taken meanwhile
        return len(self._pending) >= self._group

    def step(self) -> float:
        """Write what is there. While one group is being written the next one gathers."""
        while self._pending and len(self._writing) < self._group:
            self._writing.append(self._pending[0])  # first here, then not there: see `unwritten`
            self._pending.popleft()
        if self._found_behind and len(self._pending) < self._group:
            self._found_behind = False
            self._caught_up()
        if self._uncertain or self._held:
            self._set_aside()
        if self._writing:
            try:
                self._write(self._writing, again=self._uncertain)
            except Unavailable:
                self._uncertain = True  # it may have been committed: ask before telling anybody
                raise
            except Exception:
                # One of them cannot be stored: the others must not wait for it.
                self._uncertain = True  # until all are written: an Unavailable may leave from here
                self._write_one_by_one()
        with self._written:
            self._writing, self._uncertain = [], False
            self._written.notify_all()
        if self._pending:
            return 0.0
        return HELD_SECONDS if self._held else IDLE_SECONDS

    def _set_aside(self) -> None:
        """After a write that was refused: what a stranger holds waits, and nothing waits for it."""
        asked = [*self._held, *self._writing]
        held = self._held_elsewhere(asked)
        # Of those that are free again one may have been written without an answer.
        self._uncertain = self._uncertain or any(one.run.seq not in held for one in self._held)
        with self._written:
            self._held = [one for one in asked if one.run.seq in held]
            self._writing = [one for one in asked if one.run.seq not in held]

    def _write_one_by_one(self) -> None:
        while self._writing:
            one = self._writing[0]
            try:
                self._write([one], again=True)
            except Unavailable:
                raise
            except Exception as fault:
                self._write_fault(one, fault)
            self._writing[:] = [other for other in self._writing if other is not one]

    def _write_fault(self, one: Settlement, fault: Exception) -> None:
        """An outcome that cannot be stored is a failed attempt that says so."""
        log.error("the outcome of run %s cannot be stored: %s", one.run.id, fault)
        told = Outcome(kind="failed", error=f"the outcome could not be stored: {fault}")
        try:
            self._write([self.decide(one.run, told, one.ran_seconds)], again=True)
        except Unavailable:
            raise
        except Exception:
            log.exception("run %s is left to its lease", one.run.id)

    def unwritten(self) -> list[tuple[int, int]]:
        """(seq, attempt) of the runs whose outcome is known here and nowhere else yet."""
        waiting = list(self._pending)
        with self._written:
            known = (*waiting, *self._writing, *self._held)
        return [(one.run.seq, one.run.attempt) for one in known]

    def flush(self, timeout: float) -> bool:
        """Wait until everything put so far is written."""
        self._wake()
        with self._written:
            return self._written.wait_for(lambda: not self.unwritten(), timeout)

    # Deciding and writing

    def settle_now(
        self, ends: Sequence[tuple[ClaimedRun, Outcome]]
    ) -> tuple[list[int], Collection[int]]:
        """Settle at once, in the calling thread: what rescue does. The seqs that are left to
        another process, because their executor is not installed here, and those that are passed
        over, because a stranger's transaction holds them."""
        decided = [self.decide(run, outcome, None) for run, outcome in ends]
        held = self._held_elsewhere(decided)
        free = [one for one in decided if one.run.seq not in held]
        return self._write(free, again=False), held

    def _held_elsewhere(self, settlements: Sequence[Settlement]) -> set[int]:
        """Seqs of those whose rows a stranger's transaction holds. Where writes come one after the
        other it would hold the whole store."""
        if self.store.one_writer:
            return set()
        return self.store.write(operations.held_elsewhere, settlements)

    def decide(self, run: ClaimedRun, outcome: Outcome, ran_seconds: float | None) -> Settlement:
        if outcome.kind == "succeeded":  # whatever its retries
            return succeed(run, outcome, ran_seconds)
        return settle(
            run,
            outcome,
            retry=retry_of(run, self.jobs.get(run.job)),
            max_lost=self.max_lost,
            random_value=self.random_value(),
            ran_seconds=ran_seconds,
        )

    def _write(self, settlements: list[Settlement], *, again: bool) -> list[int]:
        """What is written and told leaves the list: a repeat after a fault goes on behind it."""
        decided = _latest(settlements)
        hooks, missing = self._hooks({one.run.job for one in decided})
        left = [one.run.seq for one in decided if one.run.job in missing] if missing else []
        hooked = [(one, hooks[one.run.job]) for one in decided if one.run.job in hooks]
        plain = [one for one in decided if one.run.job not in hooks and one.run.job not in missing]
        if plain:
            self._tell(plain, self.store.write(operations.settle, plain), again)
        settlements[:] = [one for one, _ in hooked]
        for one, hook in hooked:  # alone, so that its statements concern nobody else
            self._tell([one], self.store.write(operations.settle, [one], asking(hook)), again)
            settlements.remove(one)
        return left

    def _hooks(self, jobs: Collection[str]) -> tuple[dict[str, TerminationHook], set[str]]:
        """Executors that add to the end of their runs, by job; and jobs whose executor is not
        installed here, so that only another process can end their runs."""
        hooks, missing = {}, set()
        for job in jobs:
            try:
                hook = self.termination_hook_of(job)
            except (Invalid, Unknown) as fault:
                missing.add(job)
                if job not in self._told:
                    self._told.add(job)
                    log.warning("runs of %r are left to another process: %s", job, fault)
                continue
            if hook is not None:
                hooks[job] = hook
        return hooks, missing

    def _tell(self, settlements: Sequence[Settlement], answers: Sequence[Any], again: bool) -> None:
        plain = all(one.is_simple_success for one in settlements)
        if plain and not again and len(answers) == len(settlements) and not self._wanted():
            self.events.ended_unheard(len(settlements))
            self.counters.succeeded(settlements)
            return
        states = {answer.seq: answer.state for answer in answers}
        for one in settlements:
            if again and one.run.seq not in states and self._was_written(one):
                states[one.run.seq] = one.state
        # Every question before the first word: one without an answer makes all of this again.
        self.counters.settled(settlements, states)
        for one in settlements:
            state = states.get(one.run.seq)
            if state is None:
                log.info("run %s attempt %d was settled elsewhere", one.run.id, one.run.attempt)
                continue
            names = [f"attempt.{one.attempt_outcome}"]
            if state in TERMINAL:
                names.append(ENDS[state])
            wanted = [name for name in names if self.events.wants(name)]
            for name in wanted:
                self.events.emit(name, run_event(one), one.run.schedule_id)
            if not wanted:
                self.events.ended_unheard(1)
        if states and not plain:
            self.settled()
        if any(answer.restarted for answer in answers) or (again and states):
            self.restarted()  # of what was written without an answer nobody knows: to look is cheap

    def _wanted(self) -> bool:
        return self.events.wants("attempt.succeeded") or self.events.wants("job.completed")

    def _was_written(self, one: Settlement) -> bool:
        """After a COMMIT without an answer: the row tells whether it was ours."""
        try:
            row = self.store.read(operations.get_run, one.run.id)
        except Unknown:
            return False
        ours = (one.run.attempt, one.state, one.failures, one.lost)
        # The counts tell our failure from a rescue that ended the same attempt.
        return (row.attempt, row.state, row.failures, row.lost) == ours


def _latest(settlements: Sequence[Settlement]) -> list[Settlement]:
    """Of two attempts of one run only the later can still hold it: the earlier was rescued."""
    if len({one.run.seq for one in settlements}) == len(settlements):
        return list(settlements)
    latest: dict[int, Settlement] = {}
    for one in settlements:
        other = latest.get(one.run.seq)
        if other is None or other.run.attempt < one.run.attempt:
            latest[one.run.seq] = one
    return list(latest.values())


def retry_of(run: ClaimedRun, job: Job | None) -> Retry:
    """A run's own policy wins over its job's; its max_attempts is always its own."""
    own = job.retry if job is not None else ONCE
    if run.backoff is not None:
        with suppress(Invalid, TypeError, msgspec.DecodeError):  # a corrupt row has its job's
            own = Retry.from_dict(msgspec.json.decode(run.backoff))
    return replace(own, max_attempts=run.max_attempts)


# Threads that have not answered in time, by executor: each was waited for once.
_late: dict[int, list[threading.Thread]] = {}


def asking(hook: TerminationHook) -> OnTerminated:
    """In a thread of its own, for a moment only: others wait for the transaction it is asked in."""

    def ask(run: Run) -> list[tuple[str | None, dict[str, Any]]]:
        answers: list[Sequence[Statement | Ask]] = []
        faults: list[BaseException] = []

        def listen() -> None:
            try:
                answers.append(list(hook.on_terminated(run)))
            except BaseException as fault:  # whatever it is, it ends nothing but this thread
                faults.append(fault)

        late = [one for one in _late.pop(id(hook), ()) if one.is_alive()]
        if late:
            _late[id(hook)] = late
        if len(late) >= MOST_LATE:
            raise TimeoutError(f"on_terminated has not answered for {len(late)} other runs yet")
        asked = threading.Thread(target=listen, name="rota-on-terminated", daemon=True)
        asked.start()
        asked.join(ON_TERMINATED_SECONDS)
        if faults:
            raise RuntimeError(f"on_terminated raised {faults[0]!r}") from faults[0]
        if not answers:
            _late[id(hook)] = [*late, asked]
            raise TimeoutError(f"on_terminated did not answer in {ON_TERMINATED_SECONDS:g} s")
        return [
            (None, {"statement": one.statement}) if isinstance(one, Ask) else (one.sql, one.params)
            for one in answers[0]
        ]

    return ask
