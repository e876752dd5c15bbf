"""The world of one seed: who goes on next, how time passes, and what goes wrong.

Everything random comes from one generator, and only who has the baton may ask it: the same seed
gives the same history.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from rota.errors import Unavailable
from tests.simulation.baton import Crash, Strand, give_back, take_strand
from tests.simulation.clock import SECOND, VirtualClock
from tests.simulation.history import History, Violation
from tests.simulation.recorder import Recorder
from tests.simulation.store import Asked, Fault, SimulatedEngine, WatchedStore

if TYPE_CHECKING:
    from tests.simulation.actors import Process

# A step that asks to be called again at once has more to do. One that did nothing this often,
# while nobody else changed a row and no time passed, would keep a processor busy for ever.
SPINS = 4
SORENESS = 6  # times as often
IDLE_STEPS = 0.03  # of the steps that would find nothing to do are taken nevertheless


@dataclass(kw_only=True)
class Rates:
    """How often things happen: per storage call, or per tick of the world."""

    switch: float = 0.0  # another actor goes on, at a cut
    freeze: float = 0.0  # of the switches: sleep, perhaps past the lease
    crash: float = 0.0
    away: float = 0.0
    unsure: float = 0.0
    sore: str = ""  # the verb that goes wrong far more often than the others
    advance: float = 0.0  # time passes though somebody could go on
    leap: float = 0.25  # more of it passes than somebody waits for
    freeze_process: float = 0.0
    cut_off: float = 0.0  # a process does not reach the database for a while
    stop_process: float = 0.0
    step_clock: float = 0.0

    def heal(self) -> None:
        self.freeze = self.crash = self.away = self.unsure = 0.0
        self.freeze_process = self.cut_off = self.stop_process = self.step_clock = 0.0


class Actor:
    """Something that takes steps: a loop of a process, a person, a handler."""

    # A handler makes no storage call, so that it needs no strand.
    plain = False

    def __init__(
        self, name: str, step: Callable[[], float], *, role: str, process: Process | None = None
    ) -> None:
        self.name, self.step, self.role, self.process = name, step, role, process
        self.wake_at = 0
        self.frozen_until = 0
        self.strand: Strand | None = None
        self.asked: Asked | None = None
        self.delay = 0.0
        self.fault: BaseException | None = None
        self.spins = 0
        self.idle_at = (0, 0)
        # What the recorder keeps about the step under way.
        self.due: tuple[int, int, list[Any]] = (0, 0, [])
        self.batch = 500
        self.did: set[str] = set()  # verbs
        self.looked: Callable[[], bool] = lambda: True
        self.useful: Callable[[], bool] = lambda: True
        self.last_commit: Any = None
        self.looked_at = 0
        self.in_glitch = False
        # Of a look at due schedules: when it was, and whether a glitch misled it.
        self.read_at = 0
        self.readings = 0
        self.misread = False

    def ready(self, elapsed: int) -> bool:
        return self.frozen_until <= elapsed and (self.strand is not None or self.wake_at <= elapsed)

    def __repr__(self) -> str:
        return self.name


class World:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.clock, self.history, self.rates = VirtualClock(), History(), Rates()
        self.lease = 10 * SECOND
        self.max_lost = 3
        self.draining = False  # handlers succeed from now on
        self._glitches = 0
        self.glitch = 0  # how far ahead the deciding clock is for a moment
        self.actors: list[Actor] = []
        self.processes: list[Process] = []
        self.nobody = Actor("world", lambda: 0.0, role="nobody")
        self.current = self.nobody
        self.violation: Violation | None = None
        self._alarms: list[tuple[int, int, Callable[[], None]]] = []
        self._alarm_number = 0
        self.engine = SimulatedEngine(self)
        self.store = WatchedStore(self.engine)
        self.recorder = Recorder(self)

    # What happens

    def tick(self) -> None:
        """One thing happens: somebody goes on, or time passes."""
        rng, rates = self.rng, self.rates
        self.ring()
        if rng.random() < rates.step_clock:
            self._step_clock()
        roll = rng.random()
        for rate, what in (
            (rates.freeze_process, "freeze"),
            (rates.cut_off, "cut_off"),
            (rates.stop_process, "stop"),
        ):
            roll -= rate
            if roll < 0:
                self._befall(what)
                break
        if rng.random() < rates.advance:
            self._pass(rng.randrange(SECOND))
        actor = self._choose()
        if actor is None:
            self._advance()
        else:
            self.go_on(actor)

    def _choose(self) -> Actor | None:
        """Somebody who can go on. A loop that would find nothing to do mostly sleeps on."""
        elapsed = self.clock.elapsed
        ready = [actor for actor in self.actors if actor.ready(elapsed)]
        while ready:
            actor = ready.pop(self.rng.randrange(len(ready)))
            if actor.strand is not None or actor.useful() or self.rng.random() < IDLE_STEPS:
                return actor
            actor.wake_at = elapsed + SECOND
        return None

    def go_on(self, actor: Actor) -> None:
        """Let an actor run until it gives the baton back or its step ends."""
        if actor.plain:
            self.actors.remove(actor)
            actor.step()
            return
        self.current = actor
        if actor.strand is None:
            self.recorder.step_begins(actor)
            actor.strand = take_strand()
            actor.strand.begin(lambda: self._step(actor))
        else:
            actor.strand.resume()
        self.current = self.nobody
        if self.violation is not None:
            raise self.violation
        if not actor.strand.running:
            give_back(actor.strand)
            actor.strand = None
            self._after_step(actor)

    def finish_step(self, actor: Actor) -> None:
        """Take one whole step, or end the one under way."""
        self.go_on(actor)
        while actor.strand is not None:
            self.go_on(actor)

    def _step(self, actor: Actor) -> None:
        actor.fault = None
        try:
            actor.delay = actor.step()
        except Violation as violation:
            self.violation = violation
        except BaseException as fault:
            actor.fault = fault

    def _after_step(self, actor: Actor) -> None:
        fault, now = actor.fault, self.clock.elapsed
        if isinstance(fault, Crash):
            self.note(actor, "crashed")
            actor.wake_at = now + self.rng.randrange(2 * SECOND)
            if actor.process is not None:
                actor.process.crash()
        elif isinstance(fault, Unavailable) and str(fault).startswith("simulated"):
            actor.wake_at = now + self.rng.randrange(SECOND // 20, 2 * SECOND)
        elif fault is not None:
            told = "".join(traceback.format_exception(fault))
            raise Violation(f"a step of {actor} raised\n{told}")
        else:
            # Less than the clock can tell is still a wait: a float that missed an instant.
            actor.wake_at = now + max(round(actor.delay * SECOND), actor.delay > 0)
            self._check_spin(actor)
            self.recorder.step_ended(actor)
        if actor.process is not None:
            actor.process.stepped(actor)

    def _check_spin(self, actor: Actor) -> None:
        at = (self.clock.micros, self.recorder.version)
        actor.spins = actor.spins + 1 if actor.delay == 0.0 and actor.idle_at == at else 0
        actor.idle_at = at
        if actor.spins > SPINS:
            raise Violation(f"{actor} spins: it asks to be called again at once and does nothing")

    # Time

    def at(self, elapsed: int, call: Callable[[], None]) -> None:
        self._alarm_number += 1
        heappush(self._alarms, (elapsed, self._alarm_number, call))

    def ring(self) -> None:
        while self._alarms and self._alarms[0][0] <= self.clock.elapsed:
            heappop(self._alarms)[2]()

    def next_alarm(self) -> int | None:
        return self._alarms[0][0] if self._alarms else None

    def upcoming(self) -> list[int]:
        """When something may happen, in order, as elapsed time."""
        elapsed, offset = self.clock.elapsed, self.clock.offset
        found = {max(actor.wake_at, actor.frozen_until) for actor in self.actors}
        found.update(alarm[0] for alarm in self._alarms)
        found.update(instant - offset for instant in self.recorder.instants())
        return sorted(at for at in found if at > elapsed)

    def _advance(self) -> None:
        rng, elapsed = self.rng, self.clock.elapsed
        upcoming = self.upcoming()
        roll = rng.random()
        if roll < 1 - self.rates.leap and upcoming:
            target = upcoming[0]  # exactly: an instant belongs to what begins at it
        elif roll < 0.9 and upcoming:
            target = rng.choice(upcoming[:12])
        elif roll < 0.97:
            target = elapsed + rng.randrange(self.lease)
        else:
            target = elapsed + self.lease + rng.randrange(self.lease)
        # Neither a lease from a glitch nor a cursor in the year 9999 is worth waiting for.
        self._pass(min(target - elapsed, 3 * self.lease))

    def _pass(self, span: int) -> None:
        """Let time pass, up to the next alarm."""
        alarm = self.next_alarm()
        target = self.clock.elapsed + span
        self.clock.advance_to(target if alarm is None else min(target, alarm))

    def _step_clock(self) -> None:
        rng, clock = self.rng, self.clock
        if self.glitch:
            return
        roll = rng.random()
        if roll < 0.4:
            # Each far from the last: two readings that agree would rightly be believed.
            self._glitches += 1
            self.glitch = 1500 * (1 + self._glitches) * SECOND + rng.randrange(60 * SECOND)
            clock.step(self.glitch)
            self.at(clock.elapsed + rng.randrange(SECOND), self.end_glitch)
            self.note(self.nobody, f"the clock jumps {self.glitch / SECOND:+.3f} s for a moment")
        else:
            jump = rng.choice((-1, 1)) * rng.randrange(300 * SECOND)
            clock.step(jump)
            self.note(self.nobody, f"the clock is set by {jump / SECOND:+.3f} s")

    def end_glitch(self) -> None:
        if self.glitch:
            self.clock.step(-self.glitch)
            self.glitch = 0
            self.note(self.nobody, "the clock is right again")

    # Faults

    def cut(self) -> None:
        """A place outside any transaction: others may go on here."""
        actor = self.current
        if actor.strand is None:
            return
        rng = self.rng
        if rng.random() < self.rates.switch:
            if rng.random() < self.rates.freeze:
                actor.frozen_until = self.clock.elapsed + rng.randrange(2 * self.lease)
            actor.strand.pause()
        else:
            actor.strand.die_if_killed()

    def draw_fault(self, *, writing: bool) -> Fault | None:
        """What goes wrong in the storage call that begins."""
        rates = self.rates
        if self.current.strand is None:
            return None
        process = self.current.process
        if process is not None and process.cut_off_until > self.clock.elapsed:
            return Fault("away", "statement")
        told = self.current.asked.verb if self.current.asked else "read"
        roll = self.rng.random() / (SORENESS if told == rates.sore else 1)
        if roll >= rates.crash + rates.away + rates.unsure:
            return None
        places: tuple[str, ...]
        if roll < rates.crash:
            kind, places = "crash", ("statement", "before", "after")
        elif roll < rates.crash + rates.away:
            kind, places = "away", ("statement", "before")
        else:
            kind, places = "unsure", ("before", "after")
        if not writing:
            if kind == "unsure":
                return None
            places = ("statement",)
        fault = Fault(kind, self.rng.choice(places), self.rng.randrange(5 if writing else 2))
        self.note(self.current, f"{told}: {kind} at {fault.at} {fault.statements}")
        return fault

    def _befall(self, what: str) -> None:
        alive = [process for process in self.processes if process.alive]
        if alive:
            getattr(self.rng.choice(alive), what)()

    def kill(self, actor: Actor) -> None:
        """Remove an actor; a step under way unwinds where it is."""
        if actor in self.actors:
            self.actors.remove(actor)
        if actor.strand is not None:
            self.current = actor
            actor.strand.kill()
            self.current = self.nobody
            give_back(actor.strand)
            actor.strand = None

    def close(self) -> None:
        for actor in list(self.actors):
            self.kill(actor)
        self.engine.close()

    # What the store tells

    def looked(self) -> None:
        """A read: what the actor decides now, it decides about this moment."""
        self.current.looked_at, self.current.in_glitch = self.clock.micros, bool(self.glitch)

    def committed(self) -> None:
        self.recorder.read_commit(self.current)

    def answered(self, answer: Any) -> None:
        self.recorder.answered(self.current, answer)

    def note(self, actor: Actor, what: str) -> None:
        self.history.note(self.clock.elapsed, actor.name, what)
