-- A run is written three times, and each time has its entry in these two. Where a queue is long its
-- pages are full before the first claim: they would be split, or searched for what is dead, while a
-- worker waits. What is there already stays as it is.

ALTER INDEX {prefix}runs_pkey SET (fillfactor = 45);
ALTER INDEX {prefix}runs_id_key SET (fillfactor = 45);
