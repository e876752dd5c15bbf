"""The SQL surface: statements about schedules and runs, and queries over the views."""
