"""Make definitions from units. A file with a bad content gives a definition with an error.

Nothing here raises for the content of a file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from rota.errors import Invalid, RotaError
from rota.executors.inspection import FileError, FileFacts, inspect_files
from rota.jobsd import manifest, scan
from rota.jobsd.manifest import ManifestDefaults
from rota.jobsd.read import decode, read_bytes
from rota.jobsd.scan import MANIFEST, Survey, Unit
from rota.model.definition import Definition
from rota.model.job import Job
from rota.model.limits import ERROR_LENGTH, MANIFEST_BYTES, SQL_FILE_BYTES, SQL_FILES
from rota.model.policies import PYTHON, SQL_FILE
from rota.model.redact import shorten
from rota.model.steps import text_hash

# The check of a job by its executor; raises Invalid or Unknown.
Check = Callable[[Job], None]
# Facts of Python files by path; the argument maps paths to fingerprints.
Inspect = Callable[[Mapping[str, object]], Mapping[str, FileFacts | FileError]]

IGNORED_FILE = "{} beside it is ignored: SQL files end in .sql, in small letters; rename it"


class Loader:
    """Reads units of one folder."""

    def __init__(
        self, defaults: ManifestDefaults, check: Check, inspect: Inspect | None = None
    ) -> None:
        self.defaults, self.check = defaults, check
        self.inspect = inspect or (lambda paths: inspect_files(list(paths)))

    def load(self, survey: Survey, units: Iterable[Unit]) -> dict[str, Definition]:
        """A definition of each unit, except for Python files that are not inspected yet.

        Python files are imported in a child process."""
        all_units = list(units)
        # A file outside the folder is not even imported.
        pythons = {
            str(unit.path.absolute()): unit.fingerprint
            for unit in all_units
            if unit.kind == scan.PYTHON and scan.is_inside(unit.path, survey.root)
        }
        facts = self.inspect(pythons) if pythons else {}
        late = pythons.keys() - facts.keys()
        known = [unit for unit in all_units if str(unit.path.absolute()) not in late]
        return {unit.name: self._define(survey, unit, facts) for unit in known}

    def _define(
        self, survey: Survey, unit: Unit, facts: Mapping[str, FileFacts | FileError]
    ) -> Definition:
        display_path, progress = survey.display_path(unit.path), _Progress()
        try:
            match unit.kind:
                case scan.SQL:
                    made = self._define_sql(survey, unit, progress)
                case scan.PYTHON:
                    progress.path = display_path
                    fact = facts.get(str(unit.path.absolute()))
                    made = self._define_python(unit, fact, progress)
                case _:
                    progress.removed = unit.removed
                    raise Invalid(unit.fault)
            if made.error is None:
                self.check(made.job)
        except (RotaError, OSError) as fault:
            message = manifest.plain_message(fault)
            line = progress.line if progress.line is not None else progress.find(message)
            return self._broken(unit, progress, progress.path or display_path, line, message)
        return replace(made, display_path=progress.path or display_path)

    def _define_sql(self, survey: Survey, unit: Unit, progress: _Progress) -> Definition:
        path = unit.path / MANIFEST
        progress.path = survey.display_path(path)
        if not scan.is_inside(unit.path, survey.root):
            raise Invalid("lies outside of the folder of jobs; copy it into it")
        content = read_bytes(path, within=unit.path, limit=MANIFEST_BYTES)
        progress.add(MANIFEST, content)
        text = progress.text = decode(content)
        options = manifest.parse(text)
        progress.executor = manifest.executor_of(options)
        spec: dict[str, object] = {"folder": str(unit.path.absolute()), "files": list(unit.files)}
        scripts: list[tuple[str, str]] = []
        if progress.executor == "sql":
            scripts = self._read_scripts(survey, unit, progress)
            # A run compares its stored texts with these hashes; a message names the changed files.
            texts = {name: text_hash(script) for name, script in scripts}
            spec["hashes"] = {MANIFEST: text_hash(text), **texts}
        progress.path = survey.display_path(path)
        spec["version"] = progress.version
        made = manifest.define(unit.name, options, SQL_FILE, spec, self.defaults)
        ignored = unit.ignored if progress.executor == "sql" else ()
        return replace(
            made,
            scripts=tuple(scripts),
            warnings=(*made.warnings, *map(IGNORED_FILE.format, ignored)),
        )

    def _read_scripts(
        self, survey: Survey, unit: Unit, progress: _Progress
    ) -> list[tuple[str, str]]:
        if not unit.files:
            progress.removed = True
            ignored = "".join(f"; {IGNORED_FILE.format(name)}" for name in unit.ignored[:1])
            raise Invalid(f"has no .sql file beside it; add {unit.path.name}/01.sql{ignored}")
        if len(unit.files) > SQL_FILES:
            raise Invalid(
                f"has {len(unit.files):,} .sql files beside it; the limit is {SQL_FILES:,}"
            )
        scripts = []
        text, progress.text = progress.text, ""  # an error in a script has no line in the manifest
        for name in unit.files:
            progress.path = survey.display_path(unit.path / name)
            content = read_bytes(unit.path / name, within=unit.path, limit=SQL_FILE_BYTES)
            progress.add(name, content)
            script = decode(content)
            if not script.strip():
                raise Invalid("is empty; write a statement, or remove it")
            scripts.append((name, script))
        progress.text = text
        return scripts

    def _define_python(
        self, unit: Unit, fact: FileFacts | FileError | None, progress: _Progress
    ) -> Definition:
        if fact is None:
            raise Invalid("is a link out of the folder of jobs; copy the file into it")
        progress.digest = fact.hash
        if isinstance(fact, FileError):
            progress.line = fact.line
            prefix = f"{fact.path}:{fact.line}: " if fact.line else f"{fact.path}: "
            raise Invalid(fact.error.removeprefix(prefix))
        progress.lines = fact.lines
        spec = {
            "file": str(unit.path.absolute()),
            "function": fact.function,
            "version": progress.version,
        }
        made = manifest.define(
            unit.name, fact.options, PYTHON, spec, self.defaults,
            signature=fact.signature, description=fact.description,
        )  # fmt: skip
        return replace(made, warnings=(*made.warnings, *fact.warnings), source=fact.source)

    def _broken(
        self, unit: Unit, progress: _Progress, display_path: str, line: int | None, message: str
    ) -> Definition:
        where = display_path if line is None else f"{display_path}:{line}"
        error = shorten(f"{where}: {message}", ERROR_LENGTH)
        job = Job(
            name=unit.name,
            executor="python" if unit.kind == scan.PYTHON else progress.executor,
            source="file",
            origin=self.defaults.origin,
            spec={"version": progress.version or _hash(error)},
            enabled=False,
            error=error,
        )
        return Definition(job=job, display_path=display_path, line=line, removed=progress.removed)


class _Progress:
    """Progress of reading a unit: the current file for errors, the hashes for the version."""

    def __init__(self) -> None:
        self.path, self.text, self.digest, self.executor = "", "", "", "sql"
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
            tokens = message.replace("cron ", "schedule ").replace("'", " ").split()
            return next((self.lines[token] for token in tokens if token in self.lines), None)
        return manifest.line_of(message, self.text) if self.text else None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
