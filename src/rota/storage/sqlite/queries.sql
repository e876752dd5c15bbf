-- What SQLite says in its own way, in the order of a run's path: statements that replace those of common.sql,
-- and some that only SQLite has. A comment says why.
-- Lists are bound as JSON text and read with json_each. :now is bound by the engine.

---------------------------------------------------------------------------------------- fire

-- name: allocate_seqs
-- There are no sequences. The write lock is ours, so the numbers after the last one are free until we
-- commit.
WITH RECURSIVE last(seq) AS (
    SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{prefix}runs'), 0)
), numbers(n) AS (
    SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count
)
SELECT last.seq + n AS seq FROM last, numbers;


-- name: due_in_group
-- All schedules of which one plan says what becomes of them.
SELECT json_group_array(id) AS "id,"
  FROM (SELECT id FROM {prefix}schedules
         WHERE enabled AND NOT paused AND next_fire_at = :next_fire_at AND plan_key = :plan_key
           AND (args = '{}' OR CASE WHEN json_valid(args) THEN json_type(args) = 'object' END)
         ORDER BY id LIMIT :limit);

-- name: free_in_group
-- Of a group: whose cursor stands and whose slot is free. What the ledger knows needs more than this. Whether
-- anybody is in line at all is asked once: most often nobody is, and then for none of them.
SELECT json_group_array(s.id) AS "id,"
  FROM json_each(:ids) AS a CROSS JOIN {prefix}schedules AS s ON s.id = a.value
 WHERE s.enabled = 1 AND s.paused = 0 AND s.next_fire_at = :cursor_at AND s.plan_key = :plan_key
   AND s.next_fire_at <= {now}
   AND NOT EXISTS (SELECT 1 FROM {prefix}occurrences
                    WHERE schedule_id = s.id AND occurrence = :cursor_at)
   AND (NOT :has_slot
        OR NOT EXISTS (SELECT 1 FROM {prefix}slots WHERE key = 'o/schedule ' || s.id AND number = 1)
       AND (NOT EXISTS (SELECT 1 FROM {prefix}runs WHERE state = 'held'
                           AND wanted_key > 'o/schedule ' AND wanted_key < 'o/schedule!')
            OR NOT EXISTS (SELECT 1 FROM {prefix}runs
                            WHERE state = 'held' AND wanted_key = 'o/schedule ' || s.id))
       AND (NOT EXISTS (SELECT 1 FROM {prefix}runs WHERE state = 'waiting'
                           AND wanted_key > 'o/schedule ' AND wanted_key < 'o/schedule!'
                           AND attempt = 0 AND occurrence IS NOT NULL AND retry_of IS NULL)
            OR NOT EXISTS (SELECT 1 FROM {prefix}runs
                            WHERE state = 'waiting' AND wanted_key = 'o/schedule ' || s.id
                              AND attempt = 0 AND occurrence IS NOT NULL AND retry_of IS NULL)));

-- name: first_group_seq
-- As SQLite numbers the next row. The write lock is ours, so those after it are numbered in order.
SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{prefix}runs'), 0),
           coalesce((SELECT max(seq) FROM {prefix}runs), 0)) + 1 AS seq;

-- name: insert_group_runs
-- :run_ids is an object, so that nothing has to be parsed for each of them. SQLite counts the rows
-- itself: row_number() would keep all of them a second time.
INSERT INTO {prefix}runs (id, job, queue, priority, state, due_at, created_at, queued_at,
       max_attempts, timeout, backoff, args, overlap_key, concurrency_key, concurrency_limit,
       wanted_key, schedule_id, occurrence, missed_count, created_by)
SELECT a.value, :job, :queue, :priority,
       CASE WHEN :wanted_key IS NULL THEN 'queued' ELSE 'held' END, :due_at, {now}, {now},
       :max_attempts, :timeout, :backoff, s.args, CASE WHEN :has_slot THEN 'schedule ' || s.id END,
       :concurrency_key, :concurrency_limit, :wanted_key, s.id, :cursor_at, :missed_count,
       'schedule ' || s.name
  FROM json_each(:run_ids) AS a CROSS JOIN {prefix}schedules AS s ON s.id = CAST(a.key AS INTEGER);

------------------------------------------------------------------------------------- enqueue

-- name: insert_alike_runs
-- insert_runs for many that differ in id and arguments alone.
INSERT INTO {prefix}runs (id, args, {names shared_run}, {names placed})
SELECT value ->> 0, value ->> 1, {values :shared_run}, {placed due, {now}, :wanted_key}
  FROM (SELECT coalesce(:due_at, {now} + {seconds :delay_seconds}) AS due), json_each(:rows)
 WHERE true
ON CONFLICT (id) DO NOTHING;

-- name: insert_runs
-- The id comes from the caller: after a lost answer the same insert can be sent again.
INSERT INTO {prefix}runs ({names new_run}, {names placed})
SELECT {values :new_run}, {placed due, {now}, :wanted_key}
  FROM (SELECT coalesce(:due_at, {now} + {seconds :delay_seconds}) AS due)
 WHERE true
ON CONFLICT (id) DO NOTHING
RETURNING id;

--------------------------------------------------------------------------------------- admit

-- name: pick_runs
-- One JSON value: to fetch many rows would mean to wait for the interpreter's lock as many times.
SELECT json_group_array(json_array(-priority, due_at, seq)) AS "rank, due, seq"
  FROM (SELECT priority, due_at, seq FROM {prefix}runs
         WHERE state = 'queued' AND queue = :queue AND job {in :jobs text}
         ORDER BY priority DESC, due_at, seq LIMIT :limit);

-- name: pick_whole_runs
-- One JSON value, as pick_runs.
SELECT json_group_array(json_array(
           seq, id, job, queue, attempt + 1, failures, lost, max_attempts, args, timeout, backoff,
           overlap_key, concurrency_key, schedule_id, occurrence, due_at, missed_count,
           cancel_requested_at, correlation_id, trace, priority)) AS "{names claimed_runs}"
  FROM {prefix}runs
 WHERE seq IN (SELECT seq FROM {prefix}runs
                WHERE state = 'queued' AND queue = :queue AND job {in :jobs text}
                ORDER BY priority DESC, due_at, seq LIMIT :limit);

--------------------------------------------------------------------------------------- claim

-- name: claimed_runs
-- One JSON value, as pick_runs.
SELECT json_group_array(json_array({names claimed_runs})) AS "{names claimed_runs}"
  FROM {prefix}runs WHERE seq {in :seqs bigint};

--------------------------------------------------------------------------------------- renew

-- name: lost_first_attempts
-- One JSON value, as pick_runs.
SELECT json_group_array(value) AS "seq,"
  FROM json_each(:seqs) AS a
 WHERE NOT EXISTS (SELECT 1 FROM {prefix}runs
                    WHERE seq = a.value AND attempt = 1 AND state = 'running');

-- name: succeed_silent_runs
-- succeed_runs without results: an object of seconds by seq, in which no row has to be parsed.
UPDATE {prefix}runs
   SET state = 'succeeded', finished_at = {now}, result = NULL, error = NULL,
       started_at = coalesce({now} - CAST(a.value * 1000000 AS INTEGER), started_at),
       reason = CASE WHEN cancel_requested_at IS NOT NULL OR pause_requested_at IS NOT NULL
                     THEN reason END,
       pause_requested_at = NULL, lease_until = NULL
  FROM json_each(:ran_seconds) AS a
 WHERE {prefix}runs.seq = CAST(a.key AS INTEGER) AND attempt = 1 AND state = 'running';

-------------------------------------------------------------------------------------- settle

-- name: succeed_runs
-- All rows at once, as JSON: most runs end here, many at a time.
UPDATE {prefix}runs
   SET state = 'succeeded', finished_at = {now}, result = a.result, error = NULL,
       started_at = coalesce({now} - {seconds a.ran_seconds}, started_at),
       reason = CASE WHEN cancel_requested_at IS NOT NULL OR pause_requested_at IS NOT NULL
                     THEN reason END,
       pause_requested_at = NULL, lease_until = NULL
  FROM (SELECT value ->> 0 AS seq, value ->> 1 AS ran_seconds, value ->> 2 AS result
          FROM json_each(:rows)) AS a
 WHERE {prefix}runs.seq = a.seq AND attempt = 1 AND state = 'running';

--------------------------------------------------------------------------------------- steps

-- name: pin_marks
-- There is no generate_series in SQLite's own library.
WITH RECURSIVE passed (number) AS (
    SELECT 1 WHERE :number > 1 UNION ALL SELECT number + 1 FROM passed WHERE number + 1 < :number
)
INSERT INTO {prefix}step_marks (run_seq, number, attempt, finished_at)
SELECT :seq, number, 0, {now} FROM passed;

-------------------------------------------------------------------------- jobs and schedules

------------------------------------------------------------------------------- jobs of files

-- name: see_versions
-- A version that comes back keeps its instant, unless the files were seen to change to it.
INSERT INTO {prefix}job_versions AS v (job, version, seen_at)
SELECT a.job, a.version, {now} FROM {rows a: job text, version text, anew text}
ON CONFLICT (job, version) DO UPDATE
   SET seen_at = CASE WHEN excluded.job = a.anew THEN excluded.seen_at ELSE v.seen_at END
RETURNING job, seen_at;

-------------------------------------------------------------------------------- control rows

-- name: answer_row
-- Instants of the control table are text, for its readers.
UPDATE {views}control
   SET status = :status, statement = :kept, rows = :rows, more = :more, error = :error,
       answered_at = strftime('%Y-%m-%d %H:%M:%S', {now} / 1000000, 'unixepoch')
                     || printf('.%06dZ', {now} % 1000000)
 WHERE id = :id AND status = 'asked'
RETURNING id;

-- name: old_answered_rows
-- Instants of the control table are text, for its readers.
SELECT id FROM {views}control
 WHERE status <> 'asked'
   AND (answered_at < strftime('%Y-%m-%d %H:%M:%S', {now} / 1000000 - :age_seconds, 'unixepoch')
        OR id <= (SELECT id FROM {views}control ORDER BY id DESC LIMIT 1 OFFSET :keep))
 ORDER BY id LIMIT :limit;

--------------------------------------------------------------------------------------- prune

-------------------------------------------------------------------- surfaces: what they show

-- name: recent_durations
-- There is no LATERAL.
SELECT j.value AS job, avg((r.finished_at - r.started_at) / 1000000.0) AS seconds, count(*) AS runs
  FROM json_each(:names) j
  JOIN {prefix}runs r ON r.seq IN (
       SELECT x.seq FROM {prefix}runs x
        WHERE x.job = j.value AND x.state <> 'queued' AND x.state <> 'running'
        ORDER BY x.seq DESC LIMIT :limit)
 WHERE r.state = 'succeeded' AND r.started_at IS NOT NULL
 GROUP BY j.value;

-- name: recent_outcomes
-- There is no LATERAL.
SELECT o.schedule_id, o.occurrence, o.last_occurrence, o.count, o.outcome, o.reason, o.run_id,
       r.state, r.started_at, r.finished_at
  FROM json_each(:ids) i
  JOIN {prefix}occurrences o ON o.schedule_id = i.value
   AND o.occurrence IN (SELECT x.occurrence FROM {prefix}occurrences x
                         WHERE x.schedule_id = i.value ORDER BY x.occurrence DESC LIMIT :limit)
  LEFT JOIN {prefix}runs r ON r.id = o.run_id
 ORDER BY o.schedule_id, o.occurrence DESC;
