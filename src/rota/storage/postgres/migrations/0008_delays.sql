-- A schedule that counts from the end of its run goes on when that run is cancelled before it begins.

-- The seconds of a duration as a schedule has it, such as 1h30m; NULL of what is none.
CREATE FUNCTION {prefix}seconds(span text) RETURNS double precision LANGUAGE sql IMMUTABLE STRICT
    SET search_path = pg_catalog, pg_temp AS $$
    SELECT sum(part[1]::numeric * CASE part[2] WHEN 'us' THEN 0.000001 WHEN 'ms' THEN 0.001
                                               WHEN 's' THEN 1 WHEN 'm' THEN 60 WHEN 'h' THEN 3600
                                               WHEN 'd' THEN 86400 ELSE 604800 END)
      FROM regexp_matches(span, '([0-9]+(?:\.[0-9]+)?)\s*(us|ms|s|m|h|d|w)', 'g') AS part
     WHERE span ~ '^\s*(?:[0-9]+(?:\.[0-9]+)?\s*(?:us|ms|s|m|h|d|w))+\s*$';
$$;

-- The run of an occurrence has ended: the clock starts, if the schedule waited for that one. After a
-- step of the clock it may say less than when the run was fired: the cursor does not go back with it.
CREATE FUNCTION {prefix}restart_delay(schedule_id bigint, occurrence timestamptz) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    UPDATE {prefix}schedules AS s
       SET next_fire_at = CASE WHEN t.following <= coalesce(s.ends_at, t.following) THEN t.following END
      FROM (SELECT d.id, greatest(clock_timestamp(), d.last_fired_at)
                         + make_interval(secs => {prefix}seconds(d.expr)) AS following
              FROM {prefix}schedules AS d WHERE d.id = restart_delay.schedule_id) AS t
     WHERE s.id = t.id AND s.next_fire_at = '9999-01-01Z' AND s.last_fired_at = restart_delay.occurrence
       AND t.following IS NOT NULL;
$$;

-- The state of the run after it: cancelled, or running and asked to end.
CREATE OR REPLACE FUNCTION {views}cancel_run(id uuid, reason text DEFAULT NULL) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    run  record;
    told text;
BEGIN
    reason := {prefix}check_reason(reason);
    told := coalesce(nullif(reason, ''), 'cancelled by ' || session_user);
    SELECT r.seq, r.state, r.job, r.schedule_id, r.occurrence, j.executor INTO run
      FROM {prefix}runs AS r LEFT JOIN {prefix}jobs AS j ON j.name = r.job
     WHERE r.id = cancel_run.id FOR UPDATE OF r;
    IF NOT FOUND THEN
        PERFORM {prefix}refuse(format('run %L does not exist', id), 'P0002',
                               'The view runs lists them.');
    END IF;
    IF run.state IN ('succeeded', 'dead', 'cancelled') THEN
        PERFORM {prefix}refuse(format('run %s is %s; it cannot be cancelled', id, run.state), '55000');
    END IF;
    -- An executor of somebody else's may have a say in how its runs end.
    IF run.executor NOT IN ('python', 'sql', 'shell', 'http') THEN
        PERFORM {prefix}refuse(format('run %s can only be cancelled where its executor %L is installed',
            id, run.executor), '55000', 'Use rota cancel there.');
    END IF;
    IF run.state = 'running' THEN
        UPDATE {prefix}runs AS r
           SET cancel_requested_at = coalesce(r.cancel_requested_at, clock_timestamp()), reason = told
         WHERE r.seq = run.seq;
    ELSE
        UPDATE {prefix}runs AS r
           SET state = 'cancelled', finished_at = clock_timestamp(), reason = told,
               cancel_requested_at = clock_timestamp(),
               wanted_key = coalesce('o/' || r.overlap_key, 'c/' || r.concurrency_key)
         WHERE r.seq = run.seq;
        PERFORM {prefix}restart_delay(run.schedule_id, run.occurrence);
        -- Who waits for its slot is admitted by a process, after the commit.
        DELETE FROM {prefix}slots AS s WHERE s.owner_run = run.seq;
    END IF;
    PERFORM {prefix}record('cancel_run', id::text, reason, run.state, NULL);
    PERFORM pg_notify('{schema}_wake', '');
    RETURN CASE WHEN run.state = 'running' THEN 'running' ELSE 'cancelled' END;
END $$;

REVOKE ALL ON FUNCTION {prefix}seconds, {prefix}restart_delay FROM PUBLIC;
