"""The folder of jobs at work: look, take what has kept still, register it, retire what is gone.

Each step can be repeated: what was not registered because the store was away is registered by the
next one. A definition that is broken leaves the last good one in its place, with the error shown.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from rota.app import Rota
from rota.errors import Conflict, Invalid, RotaError
from rota.flow.loop import Loop
from rota.jobsd.good import GoodTexts
from rota.jobsd.inspections import Inspections
from rota.jobsd.load import Loader
from rota.jobsd.manifest import Surroundings
from rota.jobsd.quiet import QUIET_SECONDS, Quiet
from rota.jobsd.reconcile import LIVE_SECONDS, Orphans, Plan, reconcile
from rota.jobsd.scan import PYTHON, Survey, survey
from rota.jobsd.scripts import INIT, run_owed, run_scripts
from rota.jobsd.watch import Watch
from rota.model.definition import Definition, Registered
from rota.model.job import LAST_GOOD, REMOVED, Job
from rota.model.limits import PAGE
from rota.model.steps import listed_names
from rota.storage.protocol import Actor

log = logging.getLogger("rota.jobsd")

ACTOR = Actor(by="rota", via="jobs.d")
# How many definitions go into one transaction: a large folder must not keep others from writing.
BATCH = 100
RECONCILE_SECONDS = 10.0
SWEEP_SECONDS = 60.0
STOP_SECONDS = 10.0
# A root that is missing is often being replaced: by a deploy, a clone, a mount that comes back. Its
# jobs stay as they are for this long.
ROOT_SECONDS = 10.0
# How long a start, and a look, wait for what Python files say; those that are slower follow later.
START_SECONDS, LOOK_SECONDS = 3.0, 1.0


class Folder:
    """One per app."""

    def __init__(
        self,
        app: Rota,
        *,
        quiet_seconds: float = QUIET_SECONDS,
        look_seconds: float = LOOK_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.app, self.monotonic = app, monotonic
        self.look_seconds = look_seconds
        self.quiet = Quiet(quiet_seconds)
        self.definitions: dict[str, Definition] = {}  # as the files are now, good or not
        # The name is somebody else's. As it would be; what is shown is in `definitions`.
        self.refused: dict[str, Definition] = {}
        self.problems: dict[str, str] = {}
        self.failed_scripts: dict[str, str] = {}  # of initdb.d and startdb.d
        self._prepared = False
        self._changed: set[str] = set()  # not registered yet
        self._again: set[str] = set()  # to be registered whatever the store has
        self._gone: set[str] = set()  # not retired yet
        self._found = Survey(self.root)  # the last look
        self._unread: set[str] = set()  # in the folder, and not known yet
        self._late: set[str] = set()  # those of the first look
        self._orphans = Orphans()
        self._good = GoodTexts(app)
        self._first, self._seen = True, False
        self._missing_since: float | None = None
        self._storage: object = None  # where everything was registered
        self._reconciled_at = self._swept_at = float("-inf")
        self._turn = threading.RLock()
        self._loop = Loop("jobs.d", self.step)
        self._inspections = Inspections(self._loop.wake)
        self._watch: Watch | None = None

    @property
    def root(self) -> Path:
        return self.app.settings.jobs_folder

    @property
    def origin(self) -> str:
        return self.app.settings.file_origin

    # Life

    def prepare(self) -> None:
        if not self._prepared:
            self._prepared = True
            self.failed_scripts = run_scripts(self.app)

    def _run_owed(self) -> None:
        """An initdb.d that could not be read at the start may be readable by now."""
        if INIT in self.failed_scripts and (failed := run_owed(self.app)) is not None:
            del self.failed_scripts[INIT]
            self.failed_scripts |= failed

    def load(self, *, again: bool = False, patient: bool = True) -> None:
        with self._turn:
            if again:
                self.quiet.forget()
            found = survey(self.root)
            if not found.exists:  # says nothing yet; a step knows for how long it has been away
                found.unread.add("")
            prints = self._prints(found)
            for names in _in_turn(found, self.quiet.untaken(prints)):
                self._take(found, names, prints, None if patient else START_SECONDS)
                if again or self._storage is not self.app.storage:
                    self._again |= set(self.definitions) - set(self.refused)
                self._register()
            self._storage = self.app.storage

    def start(self) -> None:
        self._watch = Watch(self.root, self._loop.wake)
        try:
            self.step()  # says which jobs this worker has, and retires what went while it was down
        except RotaError as fault:
            log.warning("jobs.d: %s", fault)  # the loop tries again
        self._loop.start()

    def stop(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.stop()
        if self._loop.alive:
            self._loop.stop(STOP_SECONDS)
        # Another life of this app finds another store, and executors that know nothing yet.
        self._first, self._storage, self._prepared = True, None, False
        self.quiet.forget()

    def status(self) -> dict[str, str | None]:
        return {"jobs.d": self._loop.last_error if self._loop.alive else None}

    def faults(self) -> list[str]:
        errors = [one.error for one in self.definitions.values() if one.error is not None]
        places = {**self.problems, **self.failed_scripts}
        return [*errors, *(f"{place}: {told}" for place, told in places.items())]

    def step(self) -> float:
        """Look once; the seconds until it is worth to look again."""
        with self._turn:
            pause = RECONCILE_SECONDS
            if (watch := self._watch) is not None:
                watch.follow()  # before the look: what changes after it is told
                pause = min(pause, watch.rescan_seconds)
            self._run_owed()
            found = survey(self.root)
            if (missing := self._missing(found)) is not None:
                return min(pause, missing)
            prints = self._prints(found)
            ready, wait = self.quiet.see(prints, self.monotonic())
            for names in _in_turn(found, ready):
                self._take(found, names, prints, self.look_seconds)
                self._register()
            return pause if wait is None else min(pause, wait)

    def _missing(self, found: Survey) -> float | None:
        """The seconds for which a root that was there may still come back; None if it is there, or
        has been away for too long."""
        if found.exists or not self.definitions:
            self._missing_since = None
            return None
        now = self.monotonic()
        if self._missing_since is None:
            self._missing_since = now
            log.warning("%s is gone; its jobs stay for %.0f s", self.root, ROOT_SECONDS)
        left = self._missing_since + ROOT_SECONDS - now
        return left if left > 0 else None

    # Taking

    def _take(
        self,
        found: Survey,
        names: Iterable[str],
        prints: Mapping[str, object],
        within: float | None,
    ) -> None:
        """Read these units, and believe what was read of those that kept still meanwhile."""
        self._seen = self._seen or (found.exists and not found.hides(""))
        self._tell_problems(found.problems)
        here = [name for name in names if name in found.units]
        gone = [name for name in names if name not in found.units and name in self.definitions]
        around = Surroundings(origin=self.origin, timezone=self.app.settings.timezone)
        inspect = partial(self._inspections.look, within=within)
        loader = Loader(around, self._check, inspect)
        loaded = loader.load(found, [found.units[name] for name in here])
        after = self._prints(survey(self.root)) if here else prints
        still = [name for name in loaded if after.get(name) == prints[name]]
        for name in still:
            self._set(loaded[name])
        for name in gone:
            self._remove(name)
        self.quiet.take([*still, *(name for name in names if name not in found.units)], prints)
        self._unread = set(found.units) - set(self.definitions)
        before, self._found = self._found, found
        self._late |= {name for name in self._unread if self._first or before.hides(name)}

    def _prints(self, found: Survey) -> dict[str, Hashable]:
        """What could not be looked at is as it was."""
        now = {one.name: (one.kind, one.fingerprint, one.fault) for one in found.units.values()}
        return {**self.quiet.taken(found.hides), **now}

    def _check(self, job: Job) -> None:
        check_job(self.app, job)

    def _set(self, new: Definition) -> None:
        old = self.definitions.get(new.name)
        self.refused.pop(new.name, None)
        try:
            if new.error is None:
                self.app.set_file_job(new.job, new.source, new.scripts)
            else:
                self.app.check_file_job(new.name)
        except Conflict as fault:
            self.refused[new.name] = replace(new, scripts=())
            new = _refused(new, str(fault))
        new = replace(new, scripts=())  # who runs them has them
        for warning in new.warnings:
            if old is None or warning not in old.warnings:
                log.warning("%s: %s", new.place, warning)
        if old is not None and (old.job, old.schedule) == (new.job, new.schedule):
            self.definitions[new.name] = new
            return
        had = self._has_good(new.name)
        if new.error is not None and (old is None or old.error != new.error):
            then = REMOVED if new.removed else LAST_GOOD
            log.warning("%s%s", new.error, f"; {then}" if had else "")
        elif new.error is None and not (old is None and self._first):
            # Those of the start are listed there.
            what, places = ("is new", new.place) if old is None else ("changed", _changed(old, new))
            log.info("job %s %s (%s)", new.name, what, places)
        self.definitions[new.name] = new
        self._gone.discard(new.name)
        if new.removed and had:
            self.app.drop_file_job(new.name)
            self._gone.add(new.name)
        if new.name in self.refused:
            self._changed.discard(new.name)
        else:
            self._changed.add(new.name)

    def _has_good(self, name: str) -> bool:
        return any(job.name == name and job.source == "file" for job in self.app.jobs())

    def _remove(self, name: str) -> None:
        log.info("job %s is gone from %s", name, self.root)
        del self.definitions[name]
        self.refused.pop(name, None)
        self._changed.discard(name)
        self._gone.add(name)
        self.app.drop_file_job(name)

    def _tell_problems(self, problems: Mapping[str, str]) -> None:
        for place, told in problems.items():
            if self.problems.get(place) != told:
                log.warning("%s %s", place, told)
        self.problems = dict(problems)

    # Registering

    def _register(self) -> None:
        now = self.monotonic()
        due = now - self._reconciled_at >= RECONCILE_SECONDS
        if not (self._changed or self._again or self._gone or due or self._first):
            return
        # First of all: a job that no live worker has is anybody's to retire.
        worker_id = self.app.tell_jobs()
        storage = self.app.storage
        registered = self._registered()
        elsewhere = storage.listed_elsewhere(self.origin, worker_id, live_seconds=LIVE_SECONDS)
        removed = self._removed(registered)
        self._changed -= removed
        self._again -= removed
        plan = reconcile(
            set(self.definitions) - set(self.refused) - removed,
            registered,
            changed=self._changed,
            again=self._again,
            gone=self._gone,
            elsewhere=elsewhere,
            unread={*self._unread, *self.refused, *filter(self._found.hides, registered)},
            late=self._late,
            orphans=self._orphans,
            now=now,
            first=self._first,
            complete=self._seen and worker_id is not None,
        )
        self._put(plan)
        self._keep_good(registered, elsewhere)
        retired = [name for name in sorted(plan.retire) if self._retire(name, worker_id)]
        self._gone -= {*plan.retire, *(self._gone - set(registered))}
        self._gone -= {name for name in self._gone if name in elsewhere}
        if retired or self._first or now - self._swept_at >= SWEEP_SECONDS:
            self.app.control_as(ACTOR).cancel_retired(self.origin)
            self._try_refused_again()
            self._swept_at = now
        if plan.put or retired:
            self.app.woken()
        self._reconciled_at = now
        if worker_id is not None:
            self._first = False

    def _removed(self, registered: Mapping[str, Registered]) -> set[str]:
        """Jobs that the folder does not have any more, though something of them is left. Of what
        never was a job the error is shown, as of any that is broken."""
        names = {one.name for one in self.definitions.values() if one.removed} & set(registered)
        left = sorted(name for name in names if not registered[name].retired)
        for start in range(0, len(left), PAGE):
            found = self.app.storage.jobs_named(left[start : start + PAGE])
            names -= {job.name for job in found.values() if not job.good}
        return names

    def _registered(self) -> dict[str, Registered]:
        found: dict[str, Registered] = {}
        page = self.app.storage.registered(self.origin, limit=PAGE)
        while page:
            found |= {one.name: one for one in page}
            after = page[-1].name
            page = self.app.storage.registered(self.origin, after=after, limit=PAGE)
        return found

    def _put(self, plan: Plan) -> None:
        names = sorted(plan.put)
        for start in range(0, len(names), BATCH):
            batch = [self.definitions[name] for name in names[start : start + BATCH]]
            for name, told in self._put_batch(batch, plan.anew).items():
                self._refuse(self.definitions[name], told)
            self._changed -= {one.name for one in batch}
            self._late -= {one.name for one in batch}
            self._again -= {one.name for one in batch}

    def _put_batch(self, definitions: list[Definition], anew: Collection[str]) -> dict[str, str]:
        return self.app.storage.put_definitions(
            definitions, ACTOR, changed=anew, live_seconds=LIVE_SECONDS
        )

    def _refuse(self, one: Definition, told: str) -> None:
        """What the store refuses is broken as if the file were; shown there, if the row is ours."""
        worse = _refused(one, told)
        log.warning("%s", worse.error)
        self.definitions[one.name] = worse
        if self._put_batch([worse], {one.name}):
            self.app.drop_file_job(one.name)
            self.refused[one.name] = one

    def _try_refused_again(self) -> None:
        """The name may be free by now. The store is asked first: what this process has as a job,
        its worker runs."""
        for one in list(self.refused.values()):
            with suppress(Conflict):
                self.app.check_file_job(one.name)
                if not self._put_batch([one], {one.name}):
                    self._set(one)

    def _keep_good(self, registered: Mapping[str, Registered], elsewhere: Collection[str]) -> None:
        """A job whose job.toml was broken when we came: its last good version is in the store."""
        known = {job.name for job in self.app.jobs()}
        broken = {
            one.name
            for one in self.definitions.values()
            if one.error is not None and not one.removed
        }
        lost = [
            name
            for name in sorted(broken - known)
            if name in registered and not registered[name].retired
            and self.definitions[name].job.executor != "python"
        ]  # fmt: skip
        for start in range(0, len(lost), PAGE):
            found = self.app.storage.jobs_named(lost[start : start + PAGE])
            for job in found.values():
                is_whole = job.enabled and "files" in job.spec and job.origin == self.origin
                if is_whole and self._can_run(job):
                    folder = str((self.root / job.name).absolute())
                    own = replace(job, spec={**job.spec, "folder": folder}, error=None)
                    self._keep_own(own, elsewhere)
        self._good.save(broken, self.monotonic())

    def _keep_own(self, job: Job, elsewhere: Collection[str]) -> None:
        try:
            scripts = self._good.find(job)
        except Invalid as fault:
            # Another worker may have its texts. Where nobody has, its runs say what is missing.
            if job.name in elsewhere:
                return
            log.warning("the last good version of %s", fault)
            scripts = ()
        self.app.set_file_job(job, scripts=scripts)

    def _can_run(self, job: Job) -> bool:
        """False if its executor was switched off, or removed, since the job was good."""
        try:
            self.app.executors.get(job.executor)
        except RotaError:
            return False
        return True

    def _retire(self, name: str, worker_id: str | None) -> bool:
        try:
            left = self.definitions.get(name)
            done = self.app.storage.retire_job(
                name, self.origin, worker_id, ACTOR,
                live_seconds=LIVE_SECONDS, why=None if left is None else left.error,
            )  # fmt: skip
        except RotaError as fault:
            log.warning("job %s could not be retired: %s", name, fault)
            raise
        if done:
            log.info("job %s is retired: its files are gone", name)
        return done


def check_job(app: Rota, job: Job) -> None:
    """Refuse a job that this process could not run."""
    app.executors.get(job.executor).check(job)
    if job.executor not in ("sql", "python") or not {"target", "run_as"} & set(job.spec):
        return
    target = app.targets.find(job.spec.get("target"))
    if "run_as" in job.spec and target.kind != "postgres":
        raise Invalid(
            f"run_as {job.spec['run_as']!r} needs a PostgreSQL target, and {target.name!r} is "
            "none; remove it"
        )


def _changed(old: Definition, new: Definition) -> str:
    """The files that are not as they were, as people name them."""
    before, now = old.job.spec.get("hashes"), new.job.spec.get("hashes")
    if not before or not now:
        return new.place
    names = [name for name in {**now, **before} if before.get(name) != now.get(name)]
    folder = new.place.rpartition("/")[0]
    return listed_names([f"{folder}/{name}" for name in names]) if names else new.place


def _refused(one: Definition, told: str) -> Definition:
    """As if its file were broken; one that is says first what is wrong with itself."""
    if one.error is not None:
        return one
    spec = {"version": one.job.spec.get("version", "")}
    job = replace(one.job, spec=spec, enabled=False, error=f"{one.place}: {told}")
    return replace(one, job=job, schedule=None)


def _in_turn(found: Survey, names: Collection[str]) -> list[list[str]]:
    """What is only read first: to import Python files may take its time."""
    slow = {name for name in names if name in found.units and found.units[name].kind == PYTHON}
    quick = [name for name in names if name not in slow]
    return [quick, sorted(slow)] if slow else [quick]
