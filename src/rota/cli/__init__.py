"""The command line: read flags, call control, show the answer. Rules live in `flow.control`."""
