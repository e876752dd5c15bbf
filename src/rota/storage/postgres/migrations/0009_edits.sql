-- What code or a file registered last of a schedule, as text. A registration that says the same
-- again changes nothing, so what an operator edited stays. NULL: nobody registered it since this
-- column is there, or its file is gone; then the row itself is what a registration is compared with.

ALTER TABLE {prefix}schedules ADD COLUMN registered TEXT;

-- Rows that ask to pause or to resume a schedule and that nobody has done yet are withdrawn when
-- somebody says the opposite: the last word counts. One who says something waits for who is just
-- saying something else of it; and rows are locked before the schedule is, as by who answers them.
-- Who had asked, in the order of the rows.
CREATE FUNCTION {prefix}withdraw(verb text, schedule text, because text) RETURNS text[]
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    one   record;
    asked text[] := '{}';
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('{schema} words of ' || schedule, 0));
    FOR one IN
        SELECT c.id, c.requested_by, upper(said[1]) = verb AS opposite
          FROM {views}control AS c
         CROSS JOIN LATERAL regexp_match(c.statement,
               '^\s*(PAUSE|RESUME)\s+SCHEDULE\s+(["'']?)([A-Za-z0-9._/-]+)\2(?:[\s;]|$)', 'i') AS said
         WHERE c.status = 'asked' AND said[3] = schedule
         ORDER BY c.id FOR UPDATE OF c
    LOOP
        CONTINUE WHEN NOT one.opposite;
        UPDATE {views}control AS c
           SET status = 'failed', answered_at = clock_timestamp(),
               statement = {prefix}redact(c.statement),
               error = format('withdrawn before it was done: schedule %L was %s by %s', schedule,
                              because, session_user)
         WHERE c.id = one.id;
        asked := asked || coalesce(one.requested_by, 'unknown');
    END LOOP;
    RETURN asked;
END $$;

-- A word that was withdrawn, in the history of the schedule that it did not change.
CREATE FUNCTION {prefix}tell_withdrawn(
    s {prefix}schedules, asked text[], action text, because text
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    who  text;
    told text := format('withdrawn before it was done: %s by %s', because, session_user);
BEGIN
    FOREACH who IN ARRAY asked LOOP
        INSERT INTO {prefix}schedule_changes (schedule_id, name, at, by, action, reason, before, after)
        VALUES (s.id, s.name, clock_timestamp(), who, action, told, {prefix}told(s), {prefix}told(s));
        INSERT INTO {prefix}audit (at, by, via, action, thing, reason, before, after)
        VALUES (clock_timestamp(), who, 'control', action || '_schedule', s.name, told,
                {prefix}told(s)::text, {prefix}told(s)::text);
    END LOOP;
END $$;

-- False if it was paused already, and nobody had asked to resume it.
CREATE OR REPLACE FUNCTION {views}pause_schedule(name text, reason text DEFAULT NULL) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    withdrawn text[] := {prefix}withdraw('RESUME', name, 'paused');
    before {prefix}schedules := {prefix}lock_schedule(name);
    after  {prefix}schedules;
BEGIN
    reason := {prefix}check_reason(reason);
    PERFORM {prefix}tell_withdrawn(before, withdrawn, 'resume', 'paused');
    IF before.paused AND cardinality(withdrawn) = 0 THEN
        RETURN false;
    END IF;
    UPDATE {prefix}schedules AS s
       SET paused = true, paused_by = session_user, paused_at = clock_timestamp(),
           paused_reason = pause_schedule.reason,
           state = 'paused by ' || session_user || coalesce(': ' || nullif(pause_schedule.reason, ''), '')
     WHERE s.id = before.id
    RETURNING s.* INTO after;
    PERFORM {prefix}change_schedule(before, after, 'pause', reason);
    RETURN true;
END $$;

-- False if it was not paused, and nobody had asked to pause it. A calendar is Rota's: where
-- occurrences passed meanwhile, a control row asks some process to record them and to find the next
-- one, within a second of the commit.
CREATE OR REPLACE FUNCTION {views}resume_schedule(name text, reason text DEFAULT NULL) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    withdrawn text[] := {prefix}withdraw('PAUSE', name, 'resumed');
    before {prefix}schedules := {prefix}lock_schedule(name);
    after  {prefix}schedules;
BEGIN
    reason := {prefix}check_reason(reason);
    PERFORM {prefix}tell_withdrawn(before, withdrawn, 'pause', 'resumed');
    IF NOT before.paused THEN
        RETURN cardinality(withdrawn) > 0;
    END IF;
    IF before.next_fire_at <= clock_timestamp() THEN
        INSERT INTO {views}control (statement)
        VALUES ('RESUME SCHEDULE "' || before.name || '"'
                || coalesce(' REASON ''' || replace(reason, '''', '''''') || '''', ''));
        RETURN true;
    END IF;
    UPDATE {prefix}schedules AS s
       SET paused = false, paused_by = NULL, paused_at = NULL, paused_reason = NULL,
           state = 'resumed by ' || session_user
     WHERE s.id = before.id
    RETURNING s.* INTO after;
    PERFORM {prefix}change_schedule(before, after, 'resume', reason);
    RETURN true;
END $$;

REVOKE ALL ON FUNCTION {prefix}withdraw, {prefix}tell_withdrawn FROM PUBLIC;
