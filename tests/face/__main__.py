"""Write the public face anew: python -m tests.face."""

from __future__ import annotations

from tests.face.frozen import ENGINES, PARTS, collect, path_of, written

if __name__ == "__main__":
    for name in (*PARTS, *ENGINES):
        path_of(name).write_text(written(collect(name)), "utf-8")
        print(f"wrote {path_of(name).name}")
