"""The HTTP API: routes by noun, thin over `control`, behind one guard."""
