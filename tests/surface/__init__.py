"""What users touch: the command line."""
