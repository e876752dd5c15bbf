-- What code or a file registered last of a schedule, as text. A registration that says the same
-- again changes nothing, so what an operator edited stays. NULL: nobody registered it since this
-- column is there, or its file is gone; then the row itself is what a registration is compared with.

ALTER TABLE {prefix}schedules ADD COLUMN registered TEXT;
