-- Ids of runs have a table of their own, where a run's is written once. An index on the runs
-- would get another entry with every change of state, and be the dearest part of a claim and of an end.

-- First: what somebody enqueues meanwhile would not be copied.
LOCK TABLE {prefix}runs IN ACCESS EXCLUSIVE MODE;
CREATE TABLE {prefix}run_ids (
    id  UUID NOT NULL,
    seq BIGINT NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
INSERT INTO {prefix}run_ids (id, seq) SELECT id, seq FROM {prefix}runs ORDER BY seq;
ALTER TABLE {prefix}run_ids ADD PRIMARY KEY (id);
ALTER TABLE {prefix}runs DROP CONSTRAINT runs_id_key;

-- Every enqueue and every fire writes it: workers may from the moment that it is there.
DO $$ BEGIN
    IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = '{schema}_worker'
                  AND has_table_privilege(oid, '{prefix}runs', 'INSERT')) THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON {prefix}run_ids TO "{schema}_worker";
    END IF;
END $$;

-- A run in the caller's transaction. That may stay open for long, so no slot is touched: a run that
-- wants one is left held, and admitted by a process after the commit.
CREATE OR REPLACE FUNCTION {prefix}make_run(
    job text, args jsonb, overlap boolean, delay interval, at timestamptz, key text, key_ttl interval,
    priority integer, queue text, concurrency_key text, concurrency_limit integer,
    max_attempts integer, timeout interval, correlation_id text, notify boolean
) RETURNS uuid LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    j       record;
    payload text;
    random  text := replace(gen_random_uuid()::text, '-', '');
    moment  timestamptz := clock_timestamp();
    stamp   text := lpad(to_hex((extract(epoch FROM moment) * 1000)::bigint), 12, '0');
    id      uuid;
    owner   uuid;
    due     timestamptz;
    line    text;
    wanted  text;
    number  bigint;
BEGIN
    SELECT t.* INTO j FROM {prefix}jobs AS t WHERE t.name = job;
    IF NOT FOUND THEN
        PERFORM {prefix}refuse(format('job %L does not exist', job), 'P0002',
                               'The view jobs lists them.');
    END IF;
    priority := coalesce(priority, j.priority);
    queue := coalesce(queue, j.queue);
    concurrency_key := coalesce(concurrency_key, j.policies ->> 'concurrency_key');
    concurrency_limit := coalesce(concurrency_limit, (j.policies ->> 'concurrency_limit')::integer);
    max_attempts := coalesce(max_attempts, (j.policies ->> 'max_attempts')::integer);
    args := coalesce(args, '{}');
    PERFORM {prefix}refuse(format('job %L: %s', job, wrong), '22023') FROM (VALUES
        (delay IS NOT NULL AND at IS NOT NULL, 'give delay or at, not both'),
        (delay < '0' OR delay > '3660 days', 'delay must be from 0 to 3660 days'),
        (at >= '9000-01-01Z', 'at must be before the year 9000'),
        (at < '0001-01-01Z', 'at must be an instant after the year 1'),
        (length(key) NOT BETWEEN 1 AND 512, 'key must be text of 1 to 512 characters'),
        (key_ttl <= '0' OR key_ttl > '3660 days', 'key_ttl must be above 0, up to 3660 days'),
        (priority NOT BETWEEN -1000000 AND 1000000, 'priority must be from -1000000 to 1000000'),
        (queue !~ '^[A-Za-z0-9._/-]{1,128}$' COLLATE "C",
         'queue is not a valid name; use 1 to 128 letters, digits, . _ / or -'),
        (queue ~ '(^|/)\.{0,2}(/|$)',
         'queue is not a valid name; what stands between / is not empty, . or ..'),
        (length(concurrency_key) NOT BETWEEN 1 AND 512,
         'concurrency_key must be text of 1 to 512 characters'),
        (concurrency_limit NOT BETWEEN 1 AND 10000, 'concurrency_limit must be from 1 to 10000'),
        (max_attempts NOT BETWEEN 1 AND 1000, 'max_attempts must be from 1 to 1000'),
        (timeout <= '0' OR timeout > '3660 days', 'timeout must be above 0, up to 3660 days'),
        (length(correlation_id) NOT BETWEEN 1 AND 512,
         'correlation_id must be text of 1 to 512 characters')) AS rules(broken, wrong)
     WHERE broken;
    -- Without the spaces that PostgreSQL puts between its parts: the text that every enqueue stores.
    payload := args::text;
    IF octet_length(payload) <= 2 * 262144 THEN
        payload := regexp_replace(payload, '("(?:[^"\\]|\\.)*")|\s+', '\1', 'g');
    END IF;
    PERFORM {prefix}check_args(job, j.args_schema, args, octet_length(payload));
    -- Ids whose first bits are the time, so that new rows lie together in the index.
    id := (left(stamp, 8) || '-' || right(stamp, 4) || '-7' || substr(random, 14, 3) || '-'
           || substr(random, 17, 4) || '-' || right(random, 12))::uuid;
    IF key IS NOT NULL THEN
        INSERT INTO {prefix}run_keys AS k (job, key, run_id, until)
        VALUES (job, key, id, moment + key_ttl)
        ON CONFLICT ON CONSTRAINT run_keys_pkey
        DO UPDATE SET run_id = excluded.run_id, until = excluded.until WHERE k.until <= moment
        RETURNING k.run_id INTO owner;
        IF owner IS NULL THEN
            SELECT k.run_id INTO owner FROM {prefix}run_keys AS k WHERE k.job = job AND k.key = key;
            RETURN owner;
        END IF;
    END IF;
    -- A new queue is the caller's until he commits: others who name it wait for him.
    IF NOT EXISTS (SELECT 1 FROM {prefix}queues AS q WHERE q.name = queue) THEN
        INSERT INTO {prefix}queues (name) VALUES (queue) ON CONFLICT DO NOTHING;
    END IF;
    line := CASE WHEN overlap THEN 'job ' || job END;
    wanted := coalesce('o/' || line, 'c/' || concurrency_key);
    due := coalesce(at, moment + make_interval(secs => coalesce(extract(epoch FROM delay), 0)));
    INSERT INTO {prefix}runs (id, job, queue, priority, state, due_at, created_at, queued_at,
           max_attempts, timeout, args, overlap_key, concurrency_key, concurrency_limit, wanted_key,
           created_by, correlation_id)
    VALUES (id, job, queue, priority,
            CASE WHEN due > moment THEN 'waiting' WHEN wanted IS NULL THEN 'queued' ELSE 'held' END,
            due, moment, CASE WHEN due <= moment THEN moment END,
            max_attempts, {prefix}span(timeout), payload::json, line, concurrency_key,
            concurrency_limit, wanted, session_user, left({prefix}redact(correlation_id), 512))
    RETURNING seq INTO number;
    INSERT INTO {prefix}run_ids (id, seq) VALUES (id, number);
    IF notify THEN
        PERFORM pg_notify('{schema}_wake', '');
    END IF;
    RETURN id;
END $$;

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
     WHERE r.seq = (SELECT n.seq FROM {prefix}run_ids AS n WHERE n.id = cancel_run.id)
       FOR UPDATE OF r;
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

-- Views take the id from there, so that who asks for one finds it by its index; who does not ask for
-- it does not read that table.

CREATE OR REPLACE VIEW {views}runs AS
SELECT seq,
       n.id AS run_id,
       job AS job_name,
       queue,
       priority,
       state,
       due_at,
       created_at,
       queued_at,
       started_at,
       finished_at,
       attempt,
       failures,
       lost,
       redo,
       max_attempts,
       timeout,
       schedule_id,
       occurrence,
       missed_count,
       retry_of,
       created_by,
       worker_id,
       lease_until,
       progress,
       result,
       error,
       reason,
       cancel_requested_at,
       correlation_id
  FROM {prefix}runs LEFT JOIN {prefix}run_ids n USING (id, seq);

CREATE OR REPLACE VIEW {views}dead AS
SELECT n.id AS run_id,
       job AS job_name,
       queue,
       started_at,
       finished_at,
       attempt,
       failures,
       lost,
       error
  FROM {prefix}runs LEFT JOIN {prefix}run_ids n USING (id, seq) WHERE state = 'dead';

-- Runs in every state. The index by job leaves out what is queued or runs, which the indexes of these
-- states find: said branch by branch, each can be used. Not for people.
CREATE OR REPLACE VIEW {prefix}all_runs AS
SELECT seq, n.id, job, state, attempt, created_at, created_by
  FROM {prefix}runs LEFT JOIN {prefix}run_ids n USING (id, seq) WHERE state <> 'queued' AND state <> 'running'
UNION ALL
SELECT seq, n.id, job, state, attempt, created_at, created_by
  FROM {prefix}runs LEFT JOIN {prefix}run_ids n USING (id, seq) WHERE state = 'queued'
UNION ALL
SELECT seq, n.id, job, state, attempt, created_at, created_by
  FROM {prefix}runs LEFT JOIN {prefix}run_ids n USING (id, seq) WHERE state = 'running';

-- Runs that have begun, with what job_runs calls their state: a branch for each, so that who asks for
-- one reads no other. Not for people.
CREATE OR REPLACE VIEW {prefix}begun AS
SELECT seq, n.id, job, state, attempt, redo, started_at, finished_at, error, reason, 'success' AS status
  FROM {prefix}runs LEFT JOIN {prefix}run_ids n USING (id, seq) WHERE attempt > 0 AND state = 'succeeded'
UNION ALL
SELECT seq, n.id, job, state, attempt, redo, started_at, finished_at, error, reason, 'failed'
  FROM {prefix}runs LEFT JOIN {prefix}run_ids n USING (id, seq) WHERE attempt > 0 AND state = 'dead'
UNION ALL
SELECT seq, n.id, job, state, attempt, redo, started_at, finished_at, error, reason, 'failed'
  FROM {prefix}runs LEFT JOIN {prefix}run_ids n USING (id, seq) WHERE attempt > 0 AND state = 'cancelled'
UNION ALL
SELECT seq, n.id, job, state, attempt, redo, started_at, finished_at, error, reason, 'running'
  FROM {prefix}runs LEFT JOIN {prefix}run_ids n USING (id, seq) WHERE attempt > 0 AND state = 'waiting'
UNION ALL
SELECT seq, n.id, job, state, attempt, redo, started_at, finished_at, error, reason, 'running'
  FROM {prefix}runs LEFT JOIN {prefix}run_ids n USING (id, seq) WHERE attempt > 0 AND state = 'held'
UNION ALL
SELECT seq, n.id, job, state, attempt, redo, started_at, finished_at, error, reason, 'running'
  FROM {prefix}runs LEFT JOIN {prefix}run_ids n USING (id, seq) WHERE attempt > 0 AND state = 'paused'
UNION ALL
SELECT seq, n.id, job, state, attempt, redo, started_at, finished_at, error, reason, 'running'
  FROM {prefix}runs LEFT JOIN {prefix}run_ids n USING (id, seq) WHERE attempt > 0 AND state = 'queued'
UNION ALL
SELECT seq, n.id, job, state, attempt, redo, started_at, finished_at, error, reason, 'running'
  FROM {prefix}runs LEFT JOIN {prefix}run_ids n USING (id, seq) WHERE state = 'running';

-- Steps with their run, a branch for each state as in all_runs; not by way of it, so that the planner
-- can begin each branch with a step, an attempt or an id, whichever is asked for. Not for people.
CREATE VIEW {prefix}all_steps AS
SELECT r.seq, n.id, r.job, s.attempt, s.number, s.name, s.started_at,
       coalesce(m.finished_at, s.finished_at, a.finished_at) AS finished_at,
       m.number IS NOT NULL AS marked,
       s.status = 'running' AND s.attempt = r.attempt AND r.state = 'running' AS running,
       s.status, a.outcome, m.rows, m.result,
       CASE WHEN m.number IS NULL THEN coalesce(s.error, a.error) END AS error, s.note
  FROM {prefix}runs r LEFT JOIN {prefix}run_ids n USING (id, seq)
  JOIN {prefix}steps s ON s.run_seq = r.seq
  LEFT JOIN {prefix}step_marks m
         ON m.run_seq = s.run_seq AND m.number = s.number AND m.attempt = s.attempt
  LEFT JOIN {prefix}attempts a ON a.run_seq = s.run_seq AND a.number = s.attempt
 WHERE r.state <> 'queued' AND r.state <> 'running'
UNION ALL
SELECT r.seq, n.id, r.job, s.attempt, s.number, s.name, s.started_at,
       coalesce(m.finished_at, s.finished_at, a.finished_at) AS finished_at,
       m.number IS NOT NULL AS marked,
       s.status = 'running' AND s.attempt = r.attempt AND r.state = 'running' AS running,
       s.status, a.outcome, m.rows, m.result,
       CASE WHEN m.number IS NULL THEN coalesce(s.error, a.error) END AS error, s.note
  FROM {prefix}runs r LEFT JOIN {prefix}run_ids n USING (id, seq)
  JOIN {prefix}steps s ON s.run_seq = r.seq
  LEFT JOIN {prefix}step_marks m
         ON m.run_seq = s.run_seq AND m.number = s.number AND m.attempt = s.attempt
  LEFT JOIN {prefix}attempts a ON a.run_seq = s.run_seq AND a.number = s.attempt
 WHERE r.state = 'queued'
UNION ALL
SELECT r.seq, n.id, r.job, s.attempt, s.number, s.name, s.started_at,
       coalesce(m.finished_at, s.finished_at, a.finished_at) AS finished_at,
       m.number IS NOT NULL AS marked,
       s.status = 'running' AND s.attempt = r.attempt AND r.state = 'running' AS running,
       s.status, a.outcome, m.rows, m.result,
       CASE WHEN m.number IS NULL THEN coalesce(s.error, a.error) END AS error, s.note
  FROM {prefix}runs r LEFT JOIN {prefix}run_ids n USING (id, seq)
  JOIN {prefix}steps s ON s.run_seq = r.seq
  LEFT JOIN {prefix}step_marks m
         ON m.run_seq = s.run_seq AND m.number = s.number AND m.attempt = s.attempt
  LEFT JOIN {prefix}attempts a ON a.run_seq = s.run_seq AND a.number = s.attempt
 WHERE r.state = 'running';

-- A row for every run that began, and one for every step of each of its attempts. `id` is made of
-- the run's number, the attempt and the step, so that it never changes: ten thousand attempts of a
-- thousand files have room.
CREATE OR REPLACE VIEW {views}job_runs AS
SELECT r.seq * 10000000 AS id,
       r.id AS run_id,
       r.job AS job_name,
       'run' AS record_type,
       NULL::text AS file_name,
       -- The row of a run knows the start of its latest attempt only. After a redo that is right.
       CASE WHEN r.attempt > 1 AND r.redo = 0
            THEN coalesce((SELECT min(a.started_at) FROM {prefix}attempts a
                            WHERE a.run_seq = r.seq), r.started_at)
            ELSE r.started_at END AS started_at,
       r.finished_at,
       r.status,
       CASE WHEN r.status = 'failed' THEN coalesce(r.error, r.reason) END AS error_message
  FROM {prefix}begun r
UNION ALL
SELECT seq * 10000000 + least(attempt, 9998) * 1000 + number,
       id,
       job,
       'step',
       name,
       started_at,
       finished_at,
       -- A step that still says 'running' after its attempt went down with its worker.
       CASE WHEN marked THEN 'success' WHEN running THEN 'running' ELSE 'failed' END,
       error
  FROM {prefix}all_steps;

-- A run that succeeded at its first try has no row of its own for that, nor has one that runs. The
-- others are joined branch by branch, as steps are.
CREATE OR REPLACE VIEW {views}attempts AS
SELECT n.id AS run_id,
       r.job AS job_name,
       a.number,
       a.worker_id,
       a.started_at,
       a.finished_at,
       a.outcome,
       a.error
  FROM {prefix}runs r LEFT JOIN {prefix}run_ids n USING (id, seq)
  JOIN {prefix}attempts a ON a.run_seq = r.seq WHERE r.state <> 'queued' AND r.state <> 'running'
UNION ALL
SELECT n.id, r.job, a.number, a.worker_id, a.started_at, a.finished_at, a.outcome, a.error
  FROM {prefix}runs r LEFT JOIN {prefix}run_ids n USING (id, seq)
  JOIN {prefix}attempts a ON a.run_seq = r.seq WHERE r.state = 'queued'
UNION ALL
SELECT n.id, r.job, a.number, a.worker_id, a.started_at, a.finished_at, a.outcome, a.error
  FROM {prefix}runs r LEFT JOIN {prefix}run_ids n USING (id, seq)
  JOIN {prefix}attempts a ON a.run_seq = r.seq WHERE r.state = 'running'
UNION ALL
SELECT n.id, job, attempt, worker_id, started_at, finished_at, 'succeeded', NULL
  FROM {prefix}runs LEFT JOIN {prefix}run_ids n USING (id, seq) WHERE state = 'succeeded' AND attempt = 1
UNION ALL
SELECT n.id, job, attempt, worker_id, started_at, NULL, NULL, NULL
  FROM {prefix}runs LEFT JOIN {prefix}run_ids n USING (id, seq) WHERE state = 'running';

CREATE OR REPLACE VIEW {views}steps AS
SELECT id AS run_id,
       job AS job_name,
       attempt,
       number,
       name AS file_name,
       started_at,
       finished_at,
       CASE WHEN marked THEN 'succeeded'
            WHEN status = 'running' AND NOT running THEN coalesce(outcome, 'lost') ELSE status END AS status,
       rows,
       result,
       error,
       note
  FROM {prefix}all_steps;

CREATE OR REPLACE VIEW {views}events AS
SELECT at AS happened_at,
       kind,
       run_id,
       name,
       NULL::integer AS attempt,
       detail
  FROM {prefix}events
UNION ALL
SELECT started_at, 'attempt.started', run_id, job_name, number, NULL FROM {views}attempts
UNION ALL
SELECT finished_at, 'attempt.' || outcome, run_id, job_name, number, error
  FROM {views}attempts WHERE outcome IS NOT NULL
UNION ALL
SELECT created_at, 'run.created', id, job, NULL, created_by FROM {prefix}all_runs
UNION ALL
SELECT finished_at, 'job.completed', n.id, job, attempt, coalesce(error, reason)
  FROM {prefix}runs LEFT JOIN {prefix}run_ids n USING (id, seq) WHERE state = 'succeeded'
UNION ALL
SELECT finished_at, 'job.failed', n.id, job, attempt, coalesce(error, reason)
  FROM {prefix}runs LEFT JOIN {prefix}run_ids n USING (id, seq) WHERE state = 'dead'
UNION ALL
SELECT finished_at, 'job.cancelled', n.id, job, attempt, coalesce(error, reason)
  FROM {prefix}runs LEFT JOIN {prefix}run_ids n USING (id, seq) WHERE state = 'cancelled'
UNION ALL
SELECT at, action, NULL, thing, NULL, by || ' via ' || via || coalesce(': ' || reason, '')
  FROM {prefix}audit;
