"""What each verb does to the rows, written once for all engines: one transaction each."""
