-- Counts the edits of a schedule. Who fires compares it: a plan that was made of another definition
-- is not carried out, also where the edit left the cursor as it was.

ALTER TABLE {prefix}schedules ADD COLUMN revision BIGINT DEFAULT 0;
