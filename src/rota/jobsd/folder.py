"""Serve the folder of jobs: survey it, read stable files, register jobs, retire removed ones.

Each step can be repeated: a definition that was not registered because the store was unavailable is
registered by the next step. A broken definition leaves the last valid one in use and shows its
error on the job.
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
from rota.jobsd.good import LastValidTexts
from rota.jobsd.inspections import Inspections
from rota.jobsd.load import Loader
from rota.jobsd.manifest import ManifestDefaults
from rota.jobsd.quiet import SETTLE_SECONDS, StableFiles
from rota.jobsd.reconcile import LIVE_SECONDS, Orphans, Plan, reconcile
from rota.jobsd.scan import PYTHON, Survey, survey_folder
from rota.jobsd.scripts import INIT, run_deferred, run_scripts
from rota.jobsd.watch import Watch
from rota.model.definition import Definition, Registered
from rota.model.job import LAST_GOOD, REMOVED, Job
from rota.model.limits import PAGE
from rota.model.steps import listed_names
from rota.storage import operations
from rota.storage.operations.audit import Actor

log = logging.getLogger("rota.jobsd")

ACTOR = Actor(by="rota", via="jobs.d")
# Definitions in one transaction: a large folder must not block other writers for long.
BATCH = 100
RECONCILE_SECONDS = 10.0
REPAIR_SECONDS = 60.0
STOP_SECONDS = 10.0
# A missing root is often being replaced: by a deploy, a clone, a mount that comes back. Its jobs
# stay as they are for this long.
ROOT_SECONDS = 10.0
# How long a start, and a step, wait for the inspection of Python files; slower ones follow later.
START_SECONDS, INSPECTION_SECONDS = 3.0, 1.0


class Folder:
    """The folder of jobs of one app."""

    def __init__(
        self,
        app: Rota,
        *,
        settle_seconds: float = SETTLE_SECONDS,
        inspection_seconds: float = INSPECTION_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.app, self.monotonic = app, monotonic
        self.inspection_seconds = inspection_seconds
        self.stable_files = StableFiles(settle_seconds)
        self.definitions: dict[str, Definition] = {}  # as the files are now, valid or broken
        # Valid definitions whose name another job has; `definitions` has them with that error.
        self.refused: dict[str, Definition] = {}
        self.problems: dict[str, str] = {}
        self.failed_scripts: dict[str, str] = {}  # of initdb.d and startdb.d
        self._prepared = False
        self._changed: set[str] = set()  # not registered yet
        self._again: set[str] = set()  # to be registered even if the store has them
        self._gone: set[str] = set()  # not retired yet
        self._last_survey = Survey(self.root)  # the last survey
        self._unread: set[str] = set()  # in the folder, and not read yet
        self._late: set[str] = set()  # unread at the first survey
        self._orphans = Orphans()
        self._last_valid_texts = LastValidTexts(app)
        self._first, self._seen = True, False
        self._missing_since: float | None = None
        self._registered_in: object = None  # the store in which everything was registered
        self._reconciled_at = self._repaired_at = float("-inf")
        self._lock = threading.RLock()
        self._loop = Loop("jobs.d", self.step)
        self._inspections = Inspections(self._loop.wake)
        self._watch: Watch | None = None

    @property
    def root(self) -> Path:
        return self.app.settings.jobs_folder

    @property
    def origin(self) -> str:
        return self.app.settings.file_origin

    # Start and stop

    def prepare(self) -> None:
        if not self._prepared:
            self._prepared = True
            self.failed_scripts = run_scripts(self.app)

    def _run_deferred(self) -> None:
        """Run an initdb.d that could not be read at the start, if it can be read now."""
        if INIT in self.failed_scripts and (failed := run_deferred(self.app)) is not None:
            del self.failed_scripts[INIT]
            self.failed_scripts |= failed

    def load(self, *, again: bool = False, patient: bool = True) -> None:
        with self._lock:
            if again:
                self.stable_files.forget()
            survey = survey_folder(self.root)
            if not survey.exists:  # no conclusion yet: only a step measures for how long
                survey.unread.add("")
            fingerprints = self._fingerprints(survey)
            for names in _in_groups(survey, self.stable_files.unread_names(fingerprints)):
                self._take(survey, names, fingerprints, None if patient else START_SECONDS)
                if again or self._registered_in is not self.app.storage:
                    self._again |= set(self.definitions) - set(self.refused)
                self._register()
            self._registered_in = self.app.storage

    def start(self) -> None:
        self._watch = Watch(self.root, self._loop.wake)
        try:
            self.step()  # reports this worker's jobs, retires those removed while down
        except RotaError as fault:
            log.warning("jobs.d: %s", fault)  # the loop tries again
        self._loop.start()

    def stop(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.stop()
        if self._loop.alive:
            self._loop.stop(STOP_SECONDS)
        # After a restart the app may have another store, and its executors start empty.
        self._first, self._registered_in, self._prepared = True, None, False
        self.stable_files.forget()

    def status(self) -> dict[str, str | None]:
        return {"jobs.d": self._loop.last_error if self._loop.alive else None}

    def faults(self) -> list[str]:
        errors = [
            definition.error
            for definition in self.definitions.values()
            if definition.error is not None
        ]
        problems = {**self.problems, **self.failed_scripts}
        return [*errors, *(f"{path}: {message}" for path, message in problems.items())]

    def step(self) -> float:
        """Survey the folder once; returns the seconds until the next survey is useful."""
        with self._lock:
            pause = RECONCILE_SECONDS
            if (watch := self._watch) is not None:
                watch.follow()  # before the survey, so that later changes are notified
                pause = min(pause, watch.rescan_seconds)
            self._run_deferred()
            survey = survey_folder(self.root)
            if (missing := self._missing_seconds(survey)) is not None:
                return min(pause, missing)
            fingerprints = self._fingerprints(survey)
            ready, wait = self.stable_files.update(fingerprints, self.monotonic())
            for names in _in_groups(survey, ready):
                self._take(survey, names, fingerprints, self.inspection_seconds)
                self._register()
            return pause if wait is None else min(pause, wait)

    def _missing_seconds(self, survey: Survey) -> float | None:
        """Seconds for which a missing root may still come back.

        None if it exists, or has been missing for ROOT_SECONDS."""
        if survey.exists or not self.definitions:
            self._missing_since = None
            return None
        now = self.monotonic()
        if self._missing_since is None:
            self._missing_since = now
            log.warning("%s is gone; its jobs stay for %.0f s", self.root, ROOT_SECONDS)
        left = self._missing_since + ROOT_SECONDS - now
        return left if left > 0 else None

    # Reading

    def _take(
        self,
        survey: Survey,
        names: Iterable[str],
        fingerprints: Mapping[str, object],
        within: float | None,
    ) -> None:
        """Read these units; accept those whose fingerprint did not change while they were read."""
        self._seen = self._seen or (survey.exists and not survey.hides(""))
        self._log_problems(survey.problems)
        here = [name for name in names if name in survey.units]
        gone = [name for name in names if name not in survey.units and name in self.definitions]
        defaults = ManifestDefaults(origin=self.origin, timezone=self.app.settings.timezone)
        inspect = partial(self._inspections.inspect, within=within)
        loader = Loader(defaults, self._check, inspect)
        loaded = loader.load(survey, [survey.units[name] for name in here])
        after = self._fingerprints(survey_folder(self.root)) if here else fingerprints
        stable = [name for name in loaded if after.get(name) == fingerprints[name]]
        for name in stable:
            self._set(loaded[name])
        for name in gone:
            self._remove(name)
        self.stable_files.mark_read(
            [*stable, *(name for name in names if name not in survey.units)], fingerprints
        )
        self._unread = set(survey.units) - set(self.definitions)
        before, self._last_survey = self._last_survey, survey
        self._late |= {name for name in self._unread if self._first or before.hides(name)}

    def _fingerprints(self, survey: Survey) -> dict[str, Hashable]:
        """Fingerprints by name. A unit that could not be read keeps its last fingerprint."""
        current = {
            unit.name: (unit.kind, unit.fingerprint, unit.fault) for unit in survey.units.values()
        }
        return {**self.stable_files.read_fingerprints(survey.hides), **current}

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
        new = replace(new, scripts=())  # the executor has them
        for warning in new.warnings:
            if old is None or warning not in old.warnings:
                log.warning("%s: %s", new.display_path, warning)
        if old is not None and (old.job, old.schedule) == (new.job, new.schedule):
            self.definitions[new.name] = new
            return
        had = self._has_valid(new.name)
        if new.error is not None and (old is None or old.error != new.error):
            then = REMOVED if new.removed else LAST_GOOD
            log.warning("%s%s", new.error, f"; {then}" if had else "")
        elif new.error is None and not (old is None and self._first):
            # Not at the start, which lists the jobs itself.
            what, paths = (
                ("is new", new.display_path) if old is None else ("changed", _changed(old, new))
            )
            log.info("job %s %s (%s)", new.name, what, paths)
        self.definitions[new.name] = new
        self._gone.discard(new.name)
        if new.removed and had:
            self.app.drop_file_job(new.name)
            self._gone.add(new.name)
        if new.name in self.refused:
            self._changed.discard(new.name)
        else:
            self._changed.add(new.name)

    def _has_valid(self, name: str) -> bool:
        return any(job.name == name and job.source == "file" for job in self.app.jobs())

    def _remove(self, name: str) -> None:
        log.info("job %s is gone from %s", name, self.root)
        del self.definitions[name]
        self.refused.pop(name, None)
        self._changed.discard(name)
        self._gone.add(name)
        self.app.drop_file_job(name)

    def _log_problems(self, problems: Mapping[str, str]) -> None:
        for path, message in problems.items():
            if self.problems.get(path) != message:
                log.warning("%s %s", path, message)
        self.problems = dict(problems)

    # Registering

    def _register(self) -> None:
        now = self.monotonic()
        due = now - self._reconciled_at >= RECONCILE_SECONDS
        if not (self._changed or self._again or self._gone or due or self._first):
            return
        # Report first: any worker may retire a job that no live worker lists.
        worker_id = self.app.tell_jobs()
        storage = self.app.storage
        registered = self._registered()
        elsewhere = storage.read(
            operations.listed_elsewhere, self.origin, worker_id, live_seconds=LIVE_SECONDS
        )
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
            unread={*self._unread, *self.refused, *filter(self._last_survey.hides, registered)},
            late=self._late,
            orphans=self._orphans,
            now=now,
            first=self._first,
            complete=self._seen and worker_id is not None,
        )
        self._put(plan)
        self._load_last_valid(registered, elsewhere)
        retired = [name for name in sorted(plan.retire) if self._retire(name, worker_id)]
        self._gone -= {*plan.retire, *(self._gone - set(registered))}
        self._gone -= {name for name in self._gone if name in elsewhere}
        if retired or self._first or now - self._repaired_at >= REPAIR_SECONDS:
            self.app.control_as(ACTOR).cancel_retired(self.origin)
            self._try_refused_again()
            self._repaired_at = now
        if plan.put or retired:
            self.app.woken()
        self._reconciled_at = now
        if worker_id is not None:
            self._first = False

    def _removed(self, registered: Mapping[str, Registered]) -> set[str]:
        """Names of jobs that lost their manifest or all their files, and were valid before.

        A unit that never was a valid job is treated as broken: its error is shown."""
        names = {
            definition.name for definition in self.definitions.values() if definition.removed
        } & set(registered)
        left = sorted(name for name in names if not registered[name].retired)
        for start in range(0, len(left), PAGE):
            jobs = self.app.storage.read(operations.jobs_named, left[start : start + PAGE])
            names -= {job.name for job in jobs.values() if not job.was_valid}
        return names

    def _registered(self) -> dict[str, Registered]:
        registered: dict[str, Registered] = {}
        page = self.app.storage.read(operations.registered, self.origin, limit=PAGE)
        while page:
            registered |= {row.name: row for row in page}
            after = page[-1].name
            page = self.app.storage.read(
                operations.registered, self.origin, after=after, limit=PAGE
            )
        return registered

    def _put(self, plan: Plan) -> None:
        names = sorted(plan.put)
        for start in range(0, len(names), BATCH):
            batch = [self.definitions[name] for name in names[start : start + BATCH]]
            for name, message in self._put_batch(batch, plan.anew).items():
                self._refuse(self.definitions[name], message)
            self._changed -= {definition.name for definition in batch}
            self._late -= {definition.name for definition in batch}
            self._again -= {definition.name for definition in batch}

    def _put_batch(self, definitions: list[Definition], anew: Collection[str]) -> dict[str, str]:
        return self.app.storage.write(
            operations.put_definitions, definitions, ACTOR, changed=anew, live_seconds=LIVE_SECONDS
        )

    def _refuse(self, definition: Definition, message: str) -> None:
        """Mark a definition that the store refused as broken, also in its row if that is ours."""
        broken = _refused(definition, message)
        log.warning("%s", broken.error)
        self.definitions[definition.name] = broken
        if self._put_batch([broken], {definition.name}):
            self.app.drop_file_job(definition.name)
            self.refused[definition.name] = definition

    def _try_refused_again(self) -> None:
        """Register refused definitions whose name is free now.

        The store comes first: the worker runs every job that this process has."""
        for definition in list(self.refused.values()):
            with suppress(Conflict):
                self.app.check_file_job(definition.name)
                if not self._put_batch([definition], {definition.name}):
                    self._set(definition)

    def _load_last_valid(
        self, registered: Mapping[str, Registered], elsewhere: Collection[str]
    ) -> None:
        """Load the last valid version of jobs whose files were broken at the start.

        It comes from the store. Also saves the texts of all broken jobs."""
        known = {job.name for job in self.app.jobs()}
        broken = {
            definition.name
            for definition in self.definitions.values()
            if definition.error is not None and not definition.removed
        }
        lost = [
            name
            for name in sorted(broken - known)
            if name in registered and not registered[name].retired
            and self.definitions[name].job.executor != "python"
        ]  # fmt: skip
        for start in range(0, len(lost), PAGE):
            jobs = self.app.storage.read(operations.jobs_named, lost[start : start + PAGE])
            for job in jobs.values():
                is_whole = job.enabled and "files" in job.spec and job.origin == self.origin
                if is_whole and self._can_run(job):
                    folder = str((self.root / job.name).absolute())
                    local_job = replace(job, spec={**job.spec, "folder": folder}, error=None)
                    self._load_version(local_job, elsewhere)
        self._last_valid_texts.save(broken, self.monotonic())

    def _load_version(self, job: Job, elsewhere: Collection[str]) -> None:
        try:
            scripts = self._last_valid_texts.find(job)
        except Invalid as fault:
            # Another worker may have its texts. If no worker has, its runs name the missing text.
            if job.name in elsewhere:
                return
            log.warning("the last good version of %s", fault)
            scripts = ()
        self.app.set_file_job(job, scripts=scripts)

    def _can_run(self, job: Job) -> bool:
        """False if its executor was disabled or removed since the job was valid."""
        try:
            self.app.executors.get(job.executor)
        except RotaError:
            return False
        return True

    def _retire(self, name: str, worker_id: str | None) -> bool:
        try:
            left = self.definitions.get(name)
            done = self.app.storage.write(
                operations.retire_job,
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
    """The display paths of the files that changed."""
    before, now = old.job.spec.get("hashes"), new.job.spec.get("hashes")
    if not before or not now:
        return new.display_path
    names = [name for name in {**now, **before} if before.get(name) != now.get(name)]
    folder = new.display_path.rpartition("/")[0]
    return listed_names([f"{folder}/{name}" for name in names]) if names else new.display_path


def _refused(definition: Definition, message: str) -> Definition:
    """The definition with this error, unless its file has one already."""
    if definition.error is not None:
        return definition
    spec = {"version": definition.job.spec.get("version", "")}
    job = replace(
        definition.job, spec=spec, enabled=False, error=f"{definition.display_path}: {message}"
    )
    return replace(definition, job=job, schedule=None)


def _in_groups(survey: Survey, names: Collection[str]) -> list[list[str]]:
    """Names in two groups: files that are only read, then Python files, which may be slow."""
    slow = {name for name in names if name in survey.units and survey.units[name].kind == PYTHON}
    quick = [name for name in names if name not in slow]
    return [quick, sorted(slow)] if slow else [quick]
