-- What DuckDB says in its own way, in the order of a run's path: statements that replace those of common.sql,
-- and some that only DuckDB has. A comment says why. :now is bound by the engine.
-- Lists are bound as JSON text, and so are the :rows of statements over many: DuckDB takes a tenth
-- of a millisecond for each element of a Python list.
-- Nothing is unique by an index: what must be, is compared first. All writes stand in one line.

---------------------------------------------------------------------------------------- fire

-- name: due_in_group
-- All schedules of which one plan says what becomes of them.
SELECT id FROM {prefix}schedules
 WHERE enabled AND NOT paused AND next_fire_at = :next_fire_at AND plan_key = :plan_key
   AND CASE WHEN json_valid(args) THEN json_type(args) = 'OBJECT' END
 ORDER BY id LIMIT :limit;

-- name: free_in_group
-- Of a group: whose cursor stands and whose slot is free. What the ledger knows needs more than this.
SELECT s.id FROM {prefix}schedules AS s
 WHERE s.id IN (SELECT unnest(from_json_strict(:ids, '["BIGINT"]')))
   AND s.enabled AND NOT s.paused AND s.next_fire_at = :cursor_at
   AND s.plan_key = :plan_key AND s.next_fire_at <= {now}
   AND s.id NOT IN (SELECT schedule_id FROM {prefix}occurrences WHERE occurrence = :cursor_at)
   AND (NOT :has_slot OR 'o/schedule ' || s.id NOT IN (
           SELECT key FROM {prefix}slots WHERE number = 1
           UNION ALL
           SELECT wanted_key FROM {prefix}runs
            WHERE wanted_key IS NOT NULL
              AND (state = 'held' OR (state = 'waiting' AND attempt = 0 AND occurrence IS NOT NULL
                                      AND retry_of IS NULL))))
 ORDER BY s.id;

-- name: first_group_seq
SELECT min(seq) AS seq FROM (SELECT nextval('{prefix}runs_seq') AS seq FROM range(:count));

-- name: insert_group_runs
INSERT INTO {prefix}runs (seq, id, job, queue, priority, state, due_at, created_at, queued_at,
       max_attempts, timeout, backoff, args, overlap_key, concurrency_key, concurrency_limit,
       wanted_key, schedule_id, occurrence, missed_count, created_by)
SELECT :first_seq + row_number() OVER (ORDER BY s.id) - 1, a.one.value, :job, :queue, :priority,
       CASE WHEN :wanted_key IS NULL THEN 'queued' ELSE 'held' END, :due_at, {now}, {now},
       :max_attempts, :timeout, :backoff, s.args, CASE WHEN :has_slot THEN 'schedule ' || s.id END,
       :concurrency_key, :concurrency_limit, :wanted_key, s.id, :cursor_at, :missed_count,
       'schedule ' || s.name
  FROM (SELECT unnest(map_entries(CAST(:run_ids::JSON AS MAP(BIGINT, VARCHAR)))) AS one) AS a
  JOIN {prefix}schedules AS s ON s.id = a.one.key;

------------------------------------------------------------------------------------- enqueue

-- name: take_keys
-- Without a unique index there is no ON CONFLICT.
MERGE INTO {prefix}run_keys AS k
USING (SELECT job, key, run_id, {now} + {seconds ttl_seconds} AS until
         FROM {rows a: job text, key text, run_id uuid, ttl_seconds float}) AS a
   ON k.job = a.job AND k.key = a.key
 WHEN MATCHED AND k.until <= {now} THEN UPDATE SET run_id = a.run_id, until = a.until
 WHEN NOT MATCHED THEN INSERT (job, key, run_id, until) VALUES (a.job, a.key, a.run_id, a.until)
RETURNING job, key, run_id;

-- name: insert_alike_runs
-- insert_runs for many that differ in id and arguments alone.
INSERT INTO {prefix}runs (seq, id, args, {names shared_run}, {names placed})
SELECT a.seq, a.id, a.args, {values :shared_run}, {placed a.due, {now}, :wanted_key}
  FROM (SELECT seq, pair.id AS id, pair.args AS args,
               coalesce(:due_at::TIMESTAMPTZ, {now} + {seconds :delay_seconds}) AS due
          FROM (SELECT unnest(numbers.seqs) AS seq,
                       unnest(from_json_strict(:rows, '[{"id": "VARCHAR", "args": "VARCHAR"}]')) AS pair
                  FROM (SELECT list(n ORDER BY n) AS seqs
                          FROM (SELECT nextval('{prefix}runs_seq') AS n
                                  FROM range(json_array_length(:rows)::BIGINT))) AS numbers)) AS a
 WHERE NOT EXISTS (SELECT 1 FROM {prefix}runs AS r WHERE r.id = a.id);

-- name: insert_runs
-- The id comes from the caller: after a lost answer the same insert can be sent again.
-- Numbered before anything else, because seq is the order of the line, and no join keeps an order.
INSERT INTO {prefix}runs (seq, {names new_run}, {names placed})
SELECT a.seq, {values a.new_run}, {placed a.due, {now}, a.wanted_key}
  FROM (SELECT seq, row.*, coalesce(row.due_at, {now} + {seconds row.delay_seconds}) AS due
          FROM (SELECT unnest(numbers.seqs) AS seq,
                       unnest(from_json_strict(:rows, {types new_run, due_at instant, delay_seconds float})) AS row
                  FROM (SELECT list(n ORDER BY n) AS seqs
                          FROM (SELECT nextval('{prefix}runs_seq') AS n
                                  FROM range(json_array_length(:rows)::BIGINT))) AS numbers)) AS a
 WHERE NOT EXISTS (SELECT 1 FROM {prefix}runs AS r WHERE r.id = a.id)
RETURNING id;

--------------------------------------------------------------------------------------- admit

-- name: held_keys
-- Without an index each step would be a scan: one is enough.
SELECT DISTINCT wanted_key AS key FROM {prefix}runs
 WHERE state = 'held' AND wanted_key > :after ORDER BY key LIMIT :limit;

--------------------------------------------------------------------------------------- renew

-- name: succeed_silent_runs
-- succeed_runs without results: an object of seconds by seq.
UPDATE {prefix}runs AS r
   SET state = 'succeeded', finished_at = {now}, result = NULL, error = NULL,
       started_at = coalesce({now} - to_microseconds(CAST(a.ran_seconds * 1000000 AS BIGINT)),
                             r.started_at),
       reason = CASE WHEN r.cancel_requested_at IS NOT NULL OR r.pause_requested_at IS NOT NULL
                     THEN r.reason END,
       pause_requested_at = NULL, lease_until = NULL
  FROM (SELECT unnest(map_keys(told)) AS seq, unnest(map_values(told)) AS ran_seconds
          FROM (SELECT from_json_strict(:ran_seconds, '"MAP(BIGINT, DOUBLE)"') AS told)) AS a
 WHERE r.seq = a.seq AND r.attempt = 1 AND r.state = 'running';

-------------------------------------------------------------------------------------- settle

--------------------------------------------------------------------------------------- steps

-- name: put_texts
-- Without a unique index there is no ON CONFLICT.
MERGE INTO {prefix}job_texts AS t
USING (SELECT a.* FROM {rows a: hash text, text text, names json}) AS a ON t.hash = a.hash
 WHEN MATCHED THEN UPDATE SET kept_at = {now}
 WHEN NOT MATCHED THEN INSERT (hash, text, names, kept_at) VALUES (a.hash, a.text, a.names, {now});

-------------------------------------------------------------------------- jobs and schedules

-- name: put_jobs
-- Without a unique index there is no ON CONFLICT.
MERGE INTO {prefix}jobs AS j
USING (SELECT a.* FROM {rows a: new_job}) AS a ON j.name = a.name
 WHEN MATCHED AND (j.version <> a.version OR j.error IS DISTINCT FROM a.error
                   OR j.enabled <> a.enabled)
 THEN UPDATE SET {set new_job from a}, version_at = {now}
 WHEN NOT MATCHED THEN INSERT ({names new_job}, version_at) VALUES ({values a.new_job}, {now});

------------------------------------------------------------------------------- jobs of files

-- name: see_versions
-- A version that comes back keeps its instant, unless the files were seen to change to it.
MERGE INTO {prefix}job_versions AS v
USING (SELECT a.* FROM {rows a: job text, version text, anew text}) AS a
   ON v.job = a.job AND v.version = a.version
 WHEN MATCHED THEN UPDATE SET seen_at = CASE WHEN a.anew = a.job THEN {now} ELSE v.seen_at END
 WHEN NOT MATCHED THEN INSERT (job, version, seen_at) VALUES (a.job, a.version, {now})
RETURNING job, seen_at;

-- name: put_file_jobs
-- Without a unique index there is no ON CONFLICT.
MERGE INTO {prefix}jobs AS j
USING (SELECT a.* FROM {rows a: new_job, version_at instant}) AS a ON j.name = a.name
 WHEN MATCHED THEN UPDATE SET {set new_job from a}, version_at = a.version_at
 WHEN NOT MATCHED THEN INSERT ({names new_job}, version_at) VALUES ({values a.new_job}, a.version_at);

------------------------------------------------------------------ control: what operators do

-- name: pause_queue
-- Without a unique index there is no ON CONFLICT.
MERGE INTO {prefix}queues AS q
USING (SELECT :name AS name, :reason AS reason, :by AS paused_by) AS a ON q.name = a.name
 WHEN MATCHED THEN UPDATE
  SET paused = true, reason = a.reason, paused_by = a.paused_by, paused_at = {now}
 WHEN NOT MATCHED THEN INSERT (name, paused, reason, paused_by, paused_at)
VALUES (a.name, true, a.reason, a.paused_by, {now});

-- name: set_meta
-- Without a unique index there is no ON CONFLICT.
MERGE INTO {prefix}meta AS m USING (SELECT :key AS key, :value AS value) AS a ON m.key = a.key
 WHEN MATCHED THEN UPDATE SET value = a.value
 WHEN NOT MATCHED THEN INSERT (key, value) VALUES (a.key, a.value);

--------------------------------------------------------------------------- workers and locks

-- name: put_worker
-- Without a unique index there is no ON CONFLICT.
MERGE INTO {prefix}workers AS w
USING (SELECT a.*
         FROM {rows a: id text, host text, pid bigint, version text, tzdata text, origin text, jobs json,
                      queues json, slots integer, stuck integer}) AS a
   ON w.id = a.id
 WHEN MATCHED THEN UPDATE
  SET jobs = a.jobs, queues = a.queues, slots = a.slots, stuck = a.stuck, seen_at = {now}
 WHEN NOT MATCHED THEN INSERT (id, host, pid, version, tzdata, origin, jobs, queues, slots, stuck,
       started_at, seen_at)
VALUES (a.id, a.host, a.pid, a.version, a.tzdata, a.origin, a.jobs, a.queues, a.slots, a.stuck,
       {now}, {now});

-- name: acquire_lock
-- Without a unique index there is no ON CONFLICT.
MERGE INTO {prefix}locks AS l
USING (SELECT name, owner, {now} + {seconds ttl_seconds} AS until
         FROM {rows a: name text, owner text, ttl_seconds float}) AS a
   ON l.name = a.name
 WHEN MATCHED AND l.until <= {now}
 THEN UPDATE SET owner = a.owner, token = l.token + 1, until = a.until
 WHEN NOT MATCHED THEN INSERT (name, owner, token, until) VALUES (a.name, a.owner, 1, a.until)
RETURNING token;

------------------------------------------------------------------------------------- figures

-- name: oldest_queued
-- Without an index each step would be a scan: one is enough.
SELECT queue, min(due_at) AS due_at FROM {prefix}runs WHERE state = 'queued' GROUP BY queue;

-- name: last_successes
-- A scan of three columns, which costs less here than the latest runs of each job.
SELECT j.name AS job, max(r.finished_at) AS finished_at
  FROM (SELECT name FROM {prefix}jobs ORDER BY name LIMIT :jobs) AS j
  LEFT JOIN {prefix}runs AS r ON r.job = j.name AND r.state = 'succeeded' AND :recent > 0
 GROUP BY j.name;

--------------------------------------------------------------------------------------- prune

-- name: old_runs
-- Without an index each run would be counted by a scan: the last of each job are numbered in one.
WITH old AS (
    SELECT seq, job, finished_at FROM {prefix}runs
     WHERE state = :state AND {terminal state} AND finished_at < {now} - {seconds :age_seconds}
)
SELECT old.seq
  FROM old
  JOIN (SELECT seq FROM {prefix}runs WHERE job IN (SELECT job FROM old)
                                         AND state <> 'queued' AND state <> 'running'
        QUALIFY row_number() OVER (PARTITION BY job ORDER BY seq DESC) > :keep_last) AS beyond
    ON beyond.seq = old.seq
 ORDER BY old.finished_at LIMIT :limit;

-- name: ledger_ids
-- Without an index each step would be a scan: one is enough.
SELECT DISTINCT schedule_id FROM {prefix}occurrences
 WHERE schedule_id > :after ORDER BY schedule_id LIMIT :limit;

-- name: advance_schedules
-- One transaction writes at a time, so that no row is locked; a subquery for each row would be a product
-- of all rows with all schedules here.
UPDATE {prefix}schedules AS s
   SET next_fire_at = a.next_fire_at, last_fired_at = coalesce(a.last_fired_at, s.last_fired_at)
  FROM {rows a: id bigint, cursor_at instant, revision bigint, next_fire_at instant, last_fired_at instant}
 WHERE s.id = a.id AND s.next_fire_at = a.cursor_at AND s.revision = a.revision
   AND s.enabled AND NOT s.paused AND s.next_fire_at <= {now}
RETURNING s.id;

-- name: disable_broken_schedules
-- As advance_schedules.
UPDATE {prefix}schedules AS s
   SET next_fire_at = NULL, error = a.error, state = a.error
  FROM {rows a: id bigint, cursor_at instant, revision bigint, error text}
 WHERE s.id = a.id AND s.next_fire_at = a.cursor_at AND s.revision = a.revision
RETURNING s.id;

-- name: take_slots
-- As advance_schedules: each look goes through its table once.
INSERT INTO {prefix}slots (key, number, owner_run)
SELECT a.key, 1, a.seq
  FROM {rows a: key text, seq bigint}
 WHERE a.key NOT IN (SELECT key FROM {prefix}slots WHERE number = 1)
   AND a.key NOT IN (SELECT wanted_key FROM {prefix}runs
                      WHERE wanted_key IS NOT NULL
                        AND (state = 'held' OR (state = 'waiting' AND attempt = 0
                                                AND occurrence IS NOT NULL AND retry_of IS NULL)))
RETURNING owner_run;

-- name: merge_into_held
-- As advance_schedules: the heads of all lines in one look.
UPDATE {prefix}runs AS r SET missed_count = r.missed_count + head.missed_count
  FROM (SELECT a.missed_count, line.seq
          FROM {rows a: key text, missed_count bigint}
          JOIN (SELECT wanted_key, seq FROM {prefix}runs
                 WHERE wanted_key {in rows: key text}
                   AND (state = 'held' OR (state = 'waiting' AND attempt = 0
                                           AND occurrence IS NOT NULL AND retry_of IS NULL))
               QUALIFY row_number() OVER (
                           PARTITION BY wanted_key
                           ORDER BY state, CASE WHEN state = 'held' THEN -priority END, seq) = 1
               ) AS line ON line.wanted_key = a.key) AS head
 WHERE r.seq = head.seq
RETURNING r.id, r.wanted_key AS key;

-- name: promote_runs
-- The state again, outside: what does not wait is not read.
UPDATE {prefix}runs
   SET state = CASE WHEN wanted_key IS NULL THEN 'queued' ELSE 'held' END, queued_at = {now}
 WHERE state = 'waiting'
   AND seq IN (SELECT seq FROM {prefix}runs
                WHERE state = 'waiting' AND due_at <= {now} ORDER BY due_at LIMIT :limit)
RETURNING wanted_key;

-- name: set_progress
-- As advance_schedules.
UPDATE {prefix}runs AS r SET progress = a.progress
  FROM {rows a: seq bigint, attempt integer, progress text}
 WHERE r.seq = a.seq AND r.state = 'running' AND r.attempt = a.attempt;

-- name: recent_durations
-- Without indexes all jobs are looked through at once.
SELECT r.job, avg(epoch(r.finished_at) - epoch(r.started_at)) AS seconds, count(*) AS runs
  FROM (SELECT job, state, started_at, finished_at,
               row_number() OVER (PARTITION BY job ORDER BY seq DESC) AS place
          FROM {prefix}runs
         WHERE state <> 'queued' AND state <> 'running' AND job {in :names text}) AS r
 WHERE r.place <= :limit AND r.state = 'succeeded' AND r.started_at IS NOT NULL
 GROUP BY r.job;

-- name: durations_of_schedule
-- Without an index there is none to choose: equality passes over what cannot be of it.
SELECT id, state, occurrence, due_at, started_at, finished_at, attempt
  FROM {prefix}runs WHERE schedule_id = :schedule_id ORDER BY seq DESC LIMIT :limit;

-- name: count_runs
-- Without indexes one look counts all states.
SELECT state, count(*) AS runs FROM {prefix}runs GROUP BY state;

-- name: recent_outcomes
-- Without lateral joins: DuckDB has answered rows of them twice, on a busy machine.
SELECT o.schedule_id, o.occurrence, o.last_occurrence, o.count, o.outcome, o.reason, o.run_id,
       r.state, r.started_at, r.finished_at
  FROM (SELECT *, row_number() OVER (PARTITION BY schedule_id ORDER BY occurrence DESC) AS place
          FROM {prefix}occurrences WHERE schedule_id {in :ids bigint}) AS o
  LEFT JOIN {prefix}runs AS r ON r.id = o.run_id
 WHERE o.place <= :limit
 ORDER BY o.schedule_id, o.occurrence DESC;
