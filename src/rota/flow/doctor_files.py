"""Checks of what lies around a store on this machine: settings, files with secrets, drivers."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from rota.extras import how_to_install, missing, missing_for
from rota.flow.findings import Finding, ok, problem, warning
from rota.model.host import is_loopback_host

OTHERS = 0o077
IN_CLEAR = "others can reach it, and tokens travel unencrypted"
ENCRYPT = "put it behind a proxy with TLS, or set tls_certificate (rota up --tls-certificate FILE)"


def check_secret_file(check: str, path: Path, holds: str) -> Iterator[Finding]:
    """A file that only its owner may open; none is none to worry about."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return
    except OSError as fault:
        yield warning(check, f"{path} cannot be looked at: {fault.strerror}", "run as its owner")
        return
    if mode & OTHERS:
        yield problem(
            check, f"others can open {path}, which holds {holds} (mode {mode:04o})",
            f"chmod 600 {path}; if others were on this machine, make a new one",
        )  # fmt: skip
    else:
        yield ok(check, f"{path} is private (mode {mode:04o})")


def check_targets(targets: Mapping[str, str]) -> Iterator[Finding]:
    """Whether each target could be opened at all: its driver, the folder of its file."""
    bad = False
    for name, url in targets.items():
        scheme, _, rest = url.partition("://")
        folder = Path(rest.removeprefix("/")).parent
        if (extra := missing_for(url)) is not None:
            bad = True
            yield problem(
                "targets",
                f"target {name} needs {', '.join(missing(extra))}, not installed here",
                how_to_install(extra),
            )
        elif scheme in ("sqlite", "duckdb") and ":memory:" not in rest and not folder.is_dir():
            bad = True
            yield problem(
                "targets",
                f"the folder of target {name} does not exist: {folder}",
                f"mkdir -p {folder}, or mend [targets] in rota.toml",
            )
    if targets and not bad:
        yield ok("targets", ", ".join(targets))


def check_tls(host: str, certificate: str | None) -> Iterator[Finding]:
    """Where the API listens beyond this machine."""
    if not is_loopback_host(host):
        if certificate is None:
            yield warning("tls", f"host {host}: {IN_CLEAR}", ENCRYPT)
        else:
            yield ok("tls", f"host {host}: with the certificate {certificate}")


def check_folder(folder: Path, *, named: bool) -> Iterator[Finding]:
    """The folder of jobs. One that nobody named may come later, or never."""
    if folder.is_dir():
        yield ok("folder", str(folder))
    elif named:
        yield warning(
            "folder", f"jobs_dir {folder} does not exist", "make it, or mend jobs_dir in rota.toml"
        )
