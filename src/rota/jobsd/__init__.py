"""The folder of jobs: scan, manifest, watch, reconcile."""
