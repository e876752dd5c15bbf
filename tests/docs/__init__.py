"""The pages that tell a story are run as they stand."""
