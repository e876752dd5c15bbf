"""Rows: the only room that speaks SQL."""
