-- What PostgreSQL says in its own way, in the order of a run's path: statements that replace those of
-- common.sql, and some that only PostgreSQL has. A comment says why.
-- Where many rows are found by their seq, the arrays stand in subqueries, as {in fenced} and {rows} write them,
-- and the fence in a CASE, as {fence} does. Then the planner can guess neither how many they are nor how
-- few will pass, and goes from seq to seq also where no setting of ours keeps it from reading the whole
-- table: sent alone, behind a pooler.

---------------------------------------------------------------------------------------- fire


-- name: due_in_group
-- All schedules of which one plan says what becomes of them.
SELECT id FROM {prefix}schedules
 WHERE enabled AND NOT paused AND next_fire_at = :next_fire_at::timestamptz
   AND plan_key = :plan_key AND json_typeof(args) = 'object'
 ORDER BY id LIMIT :limit::bigint;

-- name: free_in_group
-- What is free of a group when it is looked at; whether it still is, fire_plans finds out.
SELECT s.id
  FROM {lists a: :ids bigint} JOIN {prefix}schedules AS s ON s.id = a.ids
 WHERE s.enabled AND NOT s.paused AND s.next_fire_at = :cursor_at::timestamptz
   AND s.plan_key = :plan_key AND s.next_fire_at <= (SELECT {now})
   AND NOT EXISTS (SELECT 1 FROM {prefix}occurrences
                    WHERE schedule_id = s.id AND occurrence = :cursor_at::timestamptz)
   AND (NOT :has_slot::boolean
        OR ((SELECT 1 FROM {prefix}slots WHERE key = 'o/schedule ' || s.id AND number = 1 LIMIT 1) IS NULL
       AND (SELECT 1 FROM {prefix}runs
             WHERE state = 'held' AND wanted_key = 'o/schedule ' || s.id LIMIT 1) IS NULL
       AND (SELECT 1 FROM {prefix}runs
             WHERE state = 'waiting' AND wanted_key = 'o/schedule ' || s.id AND attempt = 0
               AND occurrence IS NOT NULL AND retry_of IS NULL LIMIT 1) IS NULL))
 ORDER BY s.id;

-- name: take_slots
-- Others write meanwhile. A slot that is seen taken is left alone: its owner may be giving it back, and
-- would be waited for. Sorted, so that two processes
-- never wait for each other's slots.
INSERT INTO {prefix}slots (key, number, owner_run)
SELECT a.key, 1, a.seq
  FROM {rows a: key text, seq bigint}
 WHERE NOT EXISTS (SELECT 1 FROM {prefix}runs WHERE state = 'held' AND wanted_key = a.key)
   AND NOT EXISTS (SELECT 1 FROM {prefix}runs WHERE state = 'waiting' AND wanted_key = a.key
                      AND attempt = 0 AND occurrence IS NOT NULL AND retry_of IS NULL)
   AND NOT EXISTS (SELECT 1 FROM {prefix}slots s WHERE s.key = a.key AND s.number = 1)
 ORDER BY a.key COLLATE "C"
ON CONFLICT (key, number) DO NOTHING
RETURNING owner_run;

-- name: insert_fired_runs
-- The id is unique in a table of its own here.
WITH t AS MATERIALIZED (SELECT {now} AS now),
named AS (
    INSERT INTO {prefix}run_ids (id, seq) SELECT a.id, a.seq FROM {rows a: id uuid, seq bigint}
)
INSERT INTO {prefix}runs (seq, {names new_run}, {names placed})
SELECT a.seq, {values a.new_run}, {placed a.due_at, now, a.wanted_key}
  FROM t, {rows a: seq bigint, due_at instant, new_run};

------------------------------------------------------------------------------------- enqueue

-- name: insert_alike_runs
-- insert_runs for many that differ in id and arguments alone.
WITH t AS MATERIALIZED (
    SELECT now, coalesce(:due_at::timestamptz, now + {seconds :delay_seconds}) AS due
      FROM (SELECT {now} AS now) AS n
), made AS (
    INSERT INTO {prefix}run_ids (id, seq)
    SELECT id, nextval('{prefix}runs_seq')
      FROM (SELECT id FROM unnest(:id::uuid[]) WITH ORDINALITY AS a(id, place) ORDER BY place) AS a
    ON CONFLICT (id) DO NOTHING
    RETURNING seq, id
)
INSERT INTO {prefix}runs (seq, id, args, {names shared_run}, {names placed})
SELECT made.seq, made.id, a.args, {values :shared_run}, {placed due, now, :wanted_key::text}
  FROM t, {rows a: id uuid, args json} JOIN made ON made.id = a.id
 ORDER BY made.seq;

-- name: insert_runs
-- The id comes from the caller: after a lost answer the same insert can be sent again.
-- Ordered, because seq is the order of the line.
WITH t AS MATERIALIZED (SELECT {now} AS now),
made AS (
    INSERT INTO {prefix}run_ids (id, seq)
    SELECT id, nextval('{prefix}runs_seq')
      FROM (SELECT id FROM unnest(:id::uuid[]) WITH ORDINALITY AS a(id, place) ORDER BY place) AS a
    ON CONFLICT (id) DO NOTHING
    RETURNING seq, id
)
INSERT INTO {prefix}runs (seq, {names new_run}, {names placed})
SELECT made.seq, {values a.new_run}, {placed due, now, a.wanted_key}
  FROM t, {rows a: new_run, due_at instant, delay_seconds float}
          JOIN made ON made.id = a.id,
       LATERAL (SELECT coalesce(a.due_at, t.now + {seconds a.delay_seconds}) AS due) AS d
 ORDER BY made.seq
RETURNING id::text;

--------------------------------------------------------------------------------------- admit

-- name: lock_slots
-- Held until the end of the transaction: of two that give out slots of a key the second one reads its
-- line after the first has committed. A worker's end and a cancel take runs and schedules before.
SELECT pg_advisory_xact_lock(hashtextextended('{prefix}slots ' || key, 0))
  FROM unnest(:keys::text[]) AS a(key);

-- name: held_runs
-- Others write meanwhile. A fired run that is due and still waiting stands in line before those made
-- after it: another process is bringing it on.
SELECT seq, CASE WHEN wanted_key = 'c/' || concurrency_key THEN concurrency_limit ELSE 1 END AS size
  FROM {prefix}runs
 WHERE state = 'held' AND wanted_key = :key
   AND seq < coalesce((SELECT seq FROM {prefix}runs
                        WHERE state = 'waiting' AND wanted_key = :key AND attempt = 0
                          AND occurrence IS NOT NULL AND retry_of IS NULL AND due_at <= (SELECT {now})
                        ORDER BY seq LIMIT 1), 9223372036854775807)
 ORDER BY priority DESC, seq LIMIT :limit;

-- name: take_slot
-- Others write meanwhile: no row where one of them has the run, which it may cancel or pause, or has
-- taken the number since it was read, as a fire does.
INSERT INTO {prefix}slots (key, number, owner_run)
SELECT :key::text, :number::integer, seq
  FROM {prefix}runs WHERE seq = :seq AND state = 'held' AND wanted_key = :key FOR UPDATE SKIP LOCKED
ON CONFLICT (key, number) DO NOTHING
RETURNING owner_run;

--------------------------------------------------------------------------------------- renew

-- name: renew_runs
-- A row may be held for long, by a client whose open transaction asked for its cancel: it is still
-- ours, keeps the lease it has, and no other run waits for it.
WITH asked AS MATERIALIZED (
    SELECT a.* FROM {rows a: seq bigint, attempt integer, lease_seconds float}
), free AS MATERIALIZED (
    SELECT r.seq, a.lease_seconds
      FROM asked AS a, LATERAL (
           SELECT seq FROM {prefix}runs
            WHERE seq = a.seq AND {fence state = 'running' AND attempt = a.attempt}
              FOR NO KEY UPDATE SKIP LOCKED) AS r
), renewed AS (
    UPDATE {prefix}runs AS r SET lease_until = {now} + {seconds f.lease_seconds}
      FROM free AS f WHERE r.seq = f.seq
    RETURNING r.seq, r.cancel_requested_at, r.pause_requested_at
)
SELECT seq, cancel_requested_at, pause_requested_at, true AS renewed FROM renewed
UNION ALL
SELECT r.seq, r.cancel_requested_at, r.pause_requested_at, false
  FROM asked AS a JOIN {prefix}runs AS r ON r.seq = a.seq
 WHERE {fence r.state = 'running' AND r.attempt = a.attempt}
   AND r.seq NOT IN (SELECT seq FROM free);

-------------------------------------------------------------------------------------- settle

-- name: held_elsewhere
-- Those still ours whose row, or that of the schedule they end for, another transaction holds.
WITH free_runs AS MATERIALIZED (
    SELECT seq FROM {prefix}runs WHERE seq {in fenced :seq bigint} FOR SHARE SKIP LOCKED
), free_schedules AS MATERIALIZED (
    SELECT id FROM {prefix}schedules WHERE id {in fenced :schedule_id bigint} FOR SHARE SKIP LOCKED
)
SELECT r.seq
  FROM {rows a: seq bigint, attempt integer, schedule_id bigint, dies boolean}
  JOIN {prefix}runs AS r
    ON r.seq = a.seq AND {fence r.attempt = a.attempt AND r.state = 'running'}
  LEFT JOIN {prefix}schedules AS s
         ON s.id = a.schedule_id AND (a.dies OR s.next_fire_at = :waiting_at)
 WHERE r.seq NOT IN (SELECT seq FROM free_runs)
    OR (s.id IS NOT NULL AND s.id NOT IN (SELECT id FROM free_schedules));

--------------------------------------------------------------------------------------- files

-- name: lock_files
-- Held until the end of the transaction: the caller counts the files of all transactions before it.
SELECT pg_advisory_xact_lock(hashtextextended('{prefix}files', 0));

-------------------------------------------------------------------------- jobs and schedules

------------------------------------------------------------------------------- jobs of files

-- name: see_versions
-- A version that comes back keeps its instant, unless the files were seen to change to it.
INSERT INTO {prefix}job_versions AS v (job, version, seen_at)
SELECT a.job, a.version, {now} FROM {rows a: job text, version text}
ON CONFLICT (job, version) DO UPDATE
   SET seen_at = CASE WHEN excluded.job {in :anew text} THEN excluded.seen_at ELSE v.seen_at END
RETURNING job, seen_at;

------------------------------------------------------------------ control: what operators do

-- name: run_ids_between
-- Ids have an index in a table of their own here.
SELECT id::text FROM {prefix}run_ids WHERE id BETWEEN :low::uuid AND :high::uuid ORDER BY id LIMIT :limit;

-- name: delete_runs
-- Ids have a table of their own here.
WITH deleted AS (
    DELETE FROM {prefix}runs WHERE seq {in :seq bigint} AND state <> 'running' RETURNING seq, id
), unnamed AS (
    DELETE FROM {prefix}run_ids WHERE id = ANY (ARRAY(SELECT id FROM deleted))
)
SELECT seq, id::text FROM deleted;

-- name: server_facts
SELECT current_setting('server_version') AS version,
       pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean AS read_only,
       current_setting('max_connections')::int AS max_connections,
       -- Of other users' sessions a plain role sees little more than that they are there.
       (SELECT count(*) FROM pg_stat_activity WHERE datid IS NOT NULL) AS connections;

-- name: dead_rows
SELECT schemaname || '.' || relname AS name, n_live_tup AS live, n_dead_tup AS dead
  FROM pg_stat_user_tables WHERE schemaname = '{schema}_data' ORDER BY n_dead_tup DESC LIMIT 5;

-- name: long_transactions
-- Whoever began it, and never its query: that may hold secrets. Of other users' sessions a plain
-- role sees no xact_start; they are not told then.
SELECT pid, coalesce(usename::text, 'nobody') AS owner, coalesce(application_name, '') AS program,
       state, extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds
  FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
   AND backend_type = 'client backend'
 ORDER BY xact_start LIMIT 5;

-------------------------------------------------------------------------------- control rows

-- name: ask
-- A trigger fills in the requester: the login of this process.
INSERT INTO {views}control (statement) VALUES (:statement);

-- name: lock_asked_row
-- No row: it is answered, or another process is just doing so, or the turn of one before it. What is asked
-- for one after the other is done in that order, whichever process does it.
SELECT id FROM {views}control
 WHERE id = :id AND status = 'asked'
   AND NOT EXISTS (SELECT 1 FROM {views}control WHERE status = 'asked' AND id < :id)
   FOR UPDATE SKIP LOCKED;

-- name: lock_words
-- A request about a schedule waits for another one about it that is not committed: its row would not be
-- seen.
SELECT pg_advisory_xact_lock(hashtextextended('{schema} words of ' || :name, 0));

------------------------------------------------------------------------------------- figures

-- name: last_successes
-- Said as a range of the index: else the planner may look for the runs of a job among all others.
SELECT j.name AS job, max(r.finished_at) FILTER (WHERE r.state = 'succeeded') AS finished_at
  FROM (SELECT name FROM {prefix}jobs ORDER BY name LIMIT :jobs) AS j
  LEFT JOIN LATERAL (SELECT state, finished_at FROM {prefix}runs
                      WHERE (job, seq) >= (j.name, 0) AND (job, seq) <= (j.name, 9223372036854775807)
                        AND state <> 'queued' AND state <> 'running'
                      ORDER BY job DESC, seq DESC LIMIT :recent) AS r ON true
 GROUP BY j.name;

--------------------------------------------------------------------------------------- prune

-------------------------------------------------------------------------------------- tokens

-- name: lock_tokens
-- Held until the end of the transaction: two tokens of one name are made one after the other.
LOCK TABLE {prefix}tokens IN SHARE ROW EXCLUSIVE MODE;
