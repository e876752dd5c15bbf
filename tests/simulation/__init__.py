"""Seeded histories of many processes over one store, with crashes between any two statements."""
