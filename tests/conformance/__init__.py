"""One suite for every engine: what storage promises, one file per verb."""
