"""The public face of Rota, frozen: what users type, read and call.

`make test` compares each part with its file in `frozen/`. A change of it is a decision: it has
a line in CHANGELOG.md, and `python -m tests.face` writes the files anew.
"""
