"""The version of this Rota: the packaging, `rota --version` and every worker's row read it."""

VERSION = "0.1.0"
