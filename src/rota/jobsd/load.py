"""From units to definitions: read the files, or say why they are no job. Never raises for what a
file holds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from rota.errors import Invalid, RotaError
from rota.executors.inspection import FileError, FileFacts, inspect_files
from rota.jobsd import manifest, scan
from rota.jobsd.manifest import Surroundings
from rota.jobsd.read import decode, read_bytes
from rota.jobsd.scan import MANIFEST, Survey, Unit
from rota.model.definition import Definition
from rota.model.job import Job
from rota.model.limits import ERROR_LENGTH, MANIFEST_BYTES, SQL_FILE_BYTES, SQL_FILES
from rota.model.policies import PYTHON, SQL_FILE
from rota.model.redact import shorten
from rota.model.steps import text_hash

# An executor's own opinion of a job; raises Invalid or Unknown.
Check = Callable[[Job], None]
# What Python files say, by their paths; given with their fingerprints.
Inspect = Callable[[Mapping[str, object]], Mapping[str, FileFacts | FileError]]

PASSED_OVER = "{} beside it is not looked at: SQL files end in .sql, in small letters; rename it"


class Loader:
    """Reads units of one folder."""

    def __init__(self, around: Surroundings, check: Check, inspect: Inspect | None = None) -> None:
        self.around, self.check = around, check
        self.inspect = inspect or (lambda paths: inspect_files(list(paths)))

    def load(self, found: Survey, units: Iterable[Unit]) -> dict[str, Definition]:
        """A definition of each unit, but for Python files of which nothing is known yet. They are
        imported in a child."""
        wanted = list(units)
        # What lies elsewhere is not even imported.
        pythons = {
            str(one.path.absolute()): one.fingerprint
            for one in wanted
            if one.kind == scan.PYTHON and scan.is_inside(one.path, found.root)
        }
        facts = self.inspect(pythons) if pythons else {}
        late = pythons.keys() - facts.keys()
        known = [one for one in wanted if str(one.path.absolute()) not in late]
        return {one.name: self._define(found, one, facts) for one in known}

    def _define(
        self, found: Survey, unit: Unit, facts: Mapping[str, FileFacts | FileError]
    ) -> Definition:
        place, seen = found.place(unit.path), _Seen()
        try:
            match unit.kind:
                case scan.SQL:
                    made = self._define_sql(found, unit, seen)
                case scan.PYTHON:
                    seen.place = place
                    fact = facts.get(str(unit.path.absolute()))
                    made = self._define_python(unit, fact, seen)
                case _:
                    seen.removed = unit.removed
                    raise Invalid(unit.fault)
            if made.error is None:
                self.check(made.job)
        except (RotaError, OSError) as fault:
            message = manifest.plain_message(fault)
            line = seen.line if seen.line is not None else seen.find(message)
            return self._broken(unit, seen, seen.place or place, line, message)
        return replace(made, place=seen.place or place)

    def _define_sql(self, found: Survey, unit: Unit, seen: _Seen) -> Definition:
        path = unit.path / MANIFEST
        seen.place = found.place(path)
        if not scan.is_inside(unit.path, found.root):
            raise Invalid("lies outside of the folder of jobs; copy it into it")
        content = read_bytes(path, within=unit.path, limit=MANIFEST_BYTES)
        seen.add(MANIFEST, content)
        text = seen.text = decode(content)
        told = manifest.parse(text)
        seen.executor = manifest.executor_of(told)
        spec: dict[str, object] = {"folder": str(unit.path.absolute()), "files": list(unit.files)}
        scripts: list[tuple[str, str]] = []
        if seen.executor == "sql":
            scripts = self._read_scripts(found, unit, seen)
            # What a run kept is compared with it, and who changed a file is told which.
            texts = {name: text_hash(script) for name, script in scripts}
            spec["hashes"] = {MANIFEST: text_hash(text), **texts}
        seen.place = found.place(path)
        spec["version"] = seen.version
        made = manifest.define(unit.name, told, SQL_FILE, spec, self.around)
        passed = unit.passed if seen.executor == "sql" else ()
        return replace(
            made,
            scripts=tuple(scripts),
            warnings=(*made.warnings, *map(PASSED_OVER.format, passed)),
        )

    def _read_scripts(self, found: Survey, unit: Unit, seen: _Seen) -> list[tuple[str, str]]:
        if not unit.files:
            seen.removed = True
            passed = "".join(f"; {PASSED_OVER.format(one)}" for one in unit.passed[:1])
            raise Invalid(f"has no .sql file beside it; add {unit.path.name}/01.sql{passed}")
        if len(unit.files) > SQL_FILES:
            raise Invalid(
                f"has {len(unit.files):,} .sql files beside it; the limit is {SQL_FILES:,}"
            )
        scripts = []
        text, seen.text = seen.text, ""  # a fault of a script is at no line of the manifest
        for name in unit.files:
            seen.place = found.place(unit.path / name)
            content = read_bytes(unit.path / name, within=unit.path, limit=SQL_FILE_BYTES)
            seen.add(name, content)
            script = decode(content)
            if not script.strip():
                raise Invalid("is empty; write a statement, or remove it")
            scripts.append((name, script))
        seen.text = text
        return scripts

    def _define_python(
        self, unit: Unit, fact: FileFacts | FileError | None, seen: _Seen
    ) -> Definition:
        if fact is None:
            raise Invalid("is a link out of the folder of jobs; copy the file into it")
        seen.digest = fact.hash
        if isinstance(fact, FileError):
            seen.line = fact.line
            prefix = f"{fact.path}:{fact.line}: " if fact.line else f"{fact.path}: "
            raise Invalid(fact.error.removeprefix(prefix))
        seen.lines = fact.lines
        spec = {
            "file": str(unit.path.absolute()),
            "function": fact.function,
            "version": seen.version,
        }
        made = manifest.define(
            unit.name, fact.options, PYTHON, spec, self.around,
            signature=fact.signature, description=fact.description,
        )  # fmt: skip
        return replace(made, warnings=(*made.warnings, *fact.warnings), source=fact.source)

    def _broken(
        self, unit: Unit, seen: _Seen, place: str, line: int | None, message: str
    ) -> Definition:
        where = place if line is None else f"{place}:{line}"
        told = shorten(f"{where}: {message}", ERROR_LENGTH)
        job = Job(
            name=unit.name,
            executor="python" if unit.kind == scan.PYTHON else seen.executor,
            source="file",
            origin=self.around.origin,
            spec={"version": seen.version or _hash(told)},
            enabled=False,
            error=told,
        )
        return Definition(job=job, place=place, line=line, removed=seen.removed)


class _Seen:
    """How far the reading of a unit has come, for the error and for the version."""

    def __init__(self) -> None:
        self.place, self.text, self.digest, self.executor = "", "", "", "sql"
        self.line: int | None = None
        self.removed = False
        self.lines: Mapping[str, int] = {}
        self._files: list[tuple[str, str]] = []

    def add(self, name: str, content: bytes) -> None:
        self._files.append((name, hashlib.sha256(content).hexdigest()))

    @property
    def version(self) -> str:
        """The hash of names and contents, the same on every machine."""
        return self.digest or (_hash(json.dumps(self._files)) if self._files else "")

    def find(self, message: str) -> int | None:
        if self.lines:
            words = message.replace("cron ", "schedule ").replace("'", " ").split()
            return next((self.lines[word] for word in words if word in self.lines), None)
        return manifest.line_of(message, self.text) if self.text else None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
