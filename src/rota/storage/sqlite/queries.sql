-- Every statement Rota sends to SQLite, in the order of a run's path.
-- Lists are bound as JSON text and read with json_each. :now is bound by the engine.

-- name: now
SELECT {now} AS now_at;

--------------------------------------------------------------------------------------- fire

-- name: due_schedules
-- By plan key: those that one plan fires stand together.
SELECT {columns schedules} FROM {prefix}schedules
 WHERE enabled = 1 AND paused = 0 AND next_fire_at IS NOT NULL
   AND next_fire_at <= {now} + CAST(:ahead_seconds * 1000000 AS INTEGER)
 ORDER BY next_fire_at, plan_key LIMIT :limit;

-- name: newest_due_schedules
SELECT {columns schedules} FROM {prefix}schedules
 WHERE enabled = 1 AND paused = 0 AND next_fire_at IS NOT NULL
   AND next_fire_at <= {now} + CAST(:ahead_seconds * 1000000 AS INTEGER)
 ORDER BY next_fire_at DESC, plan_key DESC LIMIT :limit;

-- name: next_fire_at
SELECT min(next_fire_at) AS next_fire_at FROM {prefix}schedules
 WHERE enabled = 1 AND paused = 0 AND next_fire_at IS NOT NULL;

-- name: standing_cursors
-- Compare-and-set of the cursor, the comparing half: one that has moved was fired by another
-- process, or somebody edited the schedule, and nothing is inserted. A plan that was made ahead waits
-- if the clock was set back.
SELECT json_group_array(s.id) AS "id,"
  FROM json_each(:rows) AS a JOIN {prefix}schedules AS s ON s.id = a.value ->> 0
 WHERE s.enabled = 1 AND s.paused = 0 AND s.next_fire_at = a.value ->> 1
   AND s.revision = a.value ->> 2 AND s.next_fire_at <= {now};

-- name: advance_schedules
UPDATE {prefix}schedules
   SET next_fire_at = :next_fire_at, last_fired_at = coalesce(:last_fired_at, last_fired_at)
 WHERE id = :id;

-- name: park_schedules
-- A schedule that cannot be planned leaves the due index, visibly, and delays nobody.
UPDATE {prefix}schedules
   SET next_fire_at = NULL, error = :error, state = :error
 WHERE id = :id AND next_fire_at = :cursor_at AND revision = :revision
RETURNING id;

-- name: allocate_seqs
-- The write lock is ours, so the numbers after the last one are free until we commit.
WITH RECURSIVE last(seq) AS (
    SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = '{prefix}runs'), 0)
), numbers(n) AS (
    SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count
)
SELECT last.seq + n AS seq FROM last, numbers;

-- name: busy_keys
-- A key that somebody already waits for is not free: the line is first in, first out. A fired run
-- whose jitter or spread has not passed, or that nobody promoted yet, stands in line as well.
SELECT json_group_array(k.value) AS "key,"
  FROM json_each(:keys) AS k
 WHERE EXISTS (SELECT 1 FROM {prefix}slots WHERE key = k.value AND number = 1)
    OR EXISTS (SELECT 1 FROM {prefix}runs WHERE state = 'held' AND wanted_key = k.value)
    OR EXISTS (SELECT 1 FROM {prefix}runs WHERE state = 'waiting' AND wanted_key = k.value
                  AND attempt = 0 AND occurrence IS NOT NULL AND retry_of IS NULL);

-- name: take_slots
INSERT INTO {prefix}slots (key, number, owner_run) VALUES (:key, 1, :seq);

-- name: count_held
-- A fired run whose jitter or spread has not passed stands in line as well.
SELECT key, sum(held) AS held
  FROM (SELECT wanted_key AS key, count(*) AS held FROM {prefix}runs
         WHERE state = 'held' AND wanted_key IN (SELECT value FROM json_each(:keys))
         GROUP BY wanted_key
        UNION ALL
        SELECT wanted_key, count(*) FROM {prefix}runs
         WHERE state = 'waiting' AND attempt = 0 AND occurrence IS NOT NULL AND retry_of IS NULL
           AND wanted_key IN (SELECT value FROM json_each(:keys))
         GROUP BY wanted_key)
 GROUP BY key;

-- name: insert_fired_runs
INSERT INTO {prefix}runs (seq, id, job, queue, priority, state, due_at, created_at, queued_at,
       max_attempts, timeout, backoff, args, overlap_key, concurrency_key, concurrency_limit,
       wanted_key, schedule_id, occurrence, missed_count, created_by, trace)
VALUES (:seq, :id, :job, :queue, :priority,
       CASE WHEN :due_at > {now} THEN 'waiting' WHEN :wanted_key IS NULL THEN 'queued' ELSE 'held' END,
       :due_at, {now}, CASE WHEN :due_at <= {now} THEN {now} END,
       :max_attempts, :timeout, :backoff, :args, :overlap_key, :concurrency_key, :concurrency_limit,
       :wanted_key, :schedule_id, :occurrence, :missed_count, :created_by, :trace);

-- name: merge_into_held
-- overlap = wait: the one held run stands for this occurrence too.
UPDATE {prefix}runs SET missed_count = missed_count + :missed_count
 WHERE seq = coalesce(
           (SELECT seq FROM {prefix}runs WHERE state = 'held' AND wanted_key = :key
             ORDER BY priority DESC, seq LIMIT 1),
           (SELECT seq FROM {prefix}runs
             WHERE state = 'waiting' AND attempt = 0 AND occurrence IS NOT NULL AND retry_of IS NULL
               AND wanted_key = :key ORDER BY seq LIMIT 1))
RETURNING id, wanted_key AS key;

-- name: insert_occurrences
-- The unique ledger is the second line of defence; it outlives the run rows.
INSERT INTO {prefix}occurrences (schedule_id, occurrence, last_occurrence, count, outcome, reason,
       run_id, recorded_at)
VALUES (:schedule_id, :occurrence, :last_occurrence, :count, :outcome, :reason, :run_id, {now})
ON CONFLICT (schedule_id, occurrence) DO NOTHING;

-- name: due_kin
-- All schedules of which one plan says what becomes of them.
SELECT json_group_array(id) AS "id,"
  FROM (SELECT id FROM {prefix}schedules
         WHERE enabled = 1 AND paused = 0 AND next_fire_at = :next_fire_at AND plan_key = :plan_key
           AND (args = '{}' OR CASE WHEN json_valid(args) THEN json_type(args) = 'object' END)
         ORDER BY id LIMIT :limit);

-- name: free_kin
-- standing_cursors and busy_keys of a herd; what the ledger knows already needs more than this. Whether
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

-- name: first_kin_seq
-- The write lock is ours: whatever has this number or a later one until we commit is of this herd.
SELECT coalesce(max(seq), 0) + 1 AS seq FROM {prefix}runs;

-- name: insert_kin_runs
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

-- name: insert_kin_occurrences
INSERT INTO {prefix}occurrences (schedule_id, occurrence, last_occurrence, count, outcome, run_id,
       recorded_at)
SELECT schedule_id, occurrence, occurrence, 1, 'fired', id, {now}
  FROM {prefix}runs WHERE seq >= :first_seq;

-- name: take_kin_slots
INSERT INTO {prefix}slots (key, number, owner_run)
SELECT 'o/' || overlap_key, 1, seq FROM {prefix}runs WHERE seq >= :first_seq;

-- name: advance_kin
UPDATE {prefix}schedules SET next_fire_at = :next_fire_at, last_fired_at = :cursor_at
 WHERE id IN (SELECT schedule_id FROM {prefix}runs WHERE seq >= :first_seq);

------------------------------------------------------------------------------------ enqueue

-- name: take_keys
INSERT INTO {prefix}run_keys (job, key, run_id, until)
VALUES (:job, :key, :run_id, {now} + CAST(:ttl_seconds * 1000000 AS INTEGER))
ON CONFLICT (job, key) DO UPDATE SET run_id = excluded.run_id, until = excluded.until
 WHERE until <= {now}
RETURNING run_id;

-- name: find_keys
SELECT run_id FROM {prefix}run_keys WHERE job = :job AND key = :key;

-- name: insert_queues
INSERT INTO {prefix}queues (name) VALUES (:name) ON CONFLICT (name) DO NOTHING;

-- name: insert_alike_runs
-- insert_runs for many that differ in id and arguments alone.
INSERT INTO {prefix}runs (id, job, queue, priority, state, due_at, created_at, queued_at,
       max_attempts, timeout, backoff, args, overlap_key, concurrency_key, concurrency_limit,
       wanted_key, schedule_id, occurrence, retry_of, created_by, correlation_id, trace)
SELECT value ->> 0, :job, :queue, :priority,
       CASE WHEN due > {now} THEN 'waiting' WHEN :wanted_key IS NULL THEN 'queued' ELSE 'held' END,
       due, {now}, CASE WHEN due <= {now} THEN {now} END,
       :max_attempts, :timeout, :backoff, value ->> 1, :overlap_key, :concurrency_key,
       :concurrency_limit, :wanted_key, :schedule_id, :occurrence, :retry_of, :created_by,
       :correlation_id, :trace
  FROM (SELECT coalesce(:due_at, {now} + CAST(:delay_seconds * 1000000 AS INTEGER)) AS due),
       json_each(:rows)
 WHERE true
ON CONFLICT (id) DO NOTHING;

-- name: insert_runs
-- The id comes from the caller: after a lost answer the same insert can be sent again.
INSERT INTO {prefix}runs (id, job, queue, priority, state, due_at, created_at, queued_at,
       max_attempts, timeout, backoff, args, overlap_key, concurrency_key, concurrency_limit,
       wanted_key, schedule_id, occurrence, retry_of, created_by, correlation_id, trace)
SELECT :id, :job, :queue, :priority,
       CASE WHEN due > {now} THEN 'waiting' WHEN :wanted_key IS NULL THEN 'queued' ELSE 'held' END,
       due, {now}, CASE WHEN due <= {now} THEN {now} END,
       :max_attempts, :timeout, :backoff, :args, :overlap_key, :concurrency_key, :concurrency_limit,
       :wanted_key, :schedule_id, :occurrence, :retry_of, :created_by, :correlation_id, :trace
  FROM (SELECT coalesce(:due_at, {now} + CAST(:delay_seconds * 1000000 AS INTEGER)) AS due)
 WHERE true
ON CONFLICT (id) DO NOTHING
RETURNING id;

------------------------------------------------------------------------------------ promote

-- name: promote_runs
-- A run that still wants a slot goes to held; admit does the rest.
UPDATE {prefix}runs
   SET state = CASE WHEN wanted_key IS NULL THEN 'queued' ELSE 'held' END, queued_at = {now}
 WHERE state = 'waiting'
   AND seq IN (SELECT seq FROM {prefix}runs
                WHERE state = 'waiting' AND due_at <= {now} ORDER BY due_at LIMIT :limit)
RETURNING wanted_key;

-- name: next_due_at
SELECT min(due_at) AS next_due_at FROM {prefix}runs WHERE state = 'waiting';

-------------------------------------------------------------------------------------- admit

-- name: held_keys
-- One index step per key, however many runs wait for it.
WITH RECURSIVE keys(key) AS (
    SELECT min(wanted_key) FROM {prefix}runs WHERE state = 'held' AND wanted_key > :after
    UNION ALL
    SELECT (SELECT min(wanted_key) FROM {prefix}runs WHERE state = 'held' AND wanted_key > keys.key)
      FROM keys WHERE keys.key IS NOT NULL
)
SELECT key FROM keys WHERE key IS NOT NULL LIMIT :limit;

-- name: held_runs
SELECT seq, CASE WHEN wanted_key = 'c/' || concurrency_key THEN concurrency_limit ELSE 1 END AS size
  FROM {prefix}runs WHERE state = 'held' AND wanted_key = :key
 ORDER BY priority DESC, seq LIMIT :limit;

-- name: taken_numbers
SELECT number FROM {prefix}slots WHERE key = :key;

-- name: take_slot
INSERT INTO {prefix}slots (key, number, owner_run) VALUES (:key, :number, :seq);

-- name: admit_run
UPDATE {prefix}runs
   SET wanted_key = CASE WHEN wanted_key = 'o/' || overlap_key THEN 'c/' || concurrency_key END,
       state = CASE WHEN wanted_key = 'o/' || overlap_key AND concurrency_key IS NOT NULL
                    THEN 'held' ELSE 'queued' END
 WHERE seq = :seq AND state = 'held' AND wanted_key = :key
RETURNING wanted_key;

-------------------------------------------------------------------------------------- claim

-- name: open_queues
-- Pauses of a queue and of all dispatch are durable and seen by the next claim of any process.
SELECT name FROM {prefix}queues
 WHERE paused = 0 AND (:queues = '[]' OR name IN (SELECT value FROM json_each(:queues)))
   AND NOT EXISTS (SELECT 1 FROM {prefix}meta WHERE key = 'dispatch' AND value <> 'on');

-- name: pick_runs
SELECT json_group_array(json_array(-priority, due_at, seq)) AS "place,due,seq"
  FROM (SELECT priority, due_at, seq FROM {prefix}runs
         WHERE state = 'queued' AND queue = :queue AND job IN (SELECT value FROM json_each(:jobs))
         ORDER BY priority DESC, due_at, seq LIMIT :limit);

-- name: pick_whole_runs
-- pick_runs and claimed_runs at once, where one queue is open: its line is the order of all.
SELECT json_group_array(json_array(
           seq, id, job, queue, attempt + 1, failures, lost, max_attempts, args, timeout, backoff,
           overlap_key, concurrency_key, schedule_id, occurrence, due_at, missed_count,
           cancel_requested_at, correlation_id, trace, priority))
       AS "seq,id,job,queue,attempt,failures,lost,max_attempts,args,timeout,backoff,overlap_key,concurrency_key,schedule_id,occurrence,due_at,missed_count,cancel_requested_at,correlation_id,trace,priority"
  FROM {prefix}runs
 WHERE seq IN (SELECT seq FROM {prefix}runs
                WHERE state = 'queued' AND queue = :queue AND job IN (SELECT value FROM json_each(:jobs))
                ORDER BY priority DESC, due_at, seq LIMIT :limit);

-- name: claim_runs
UPDATE {prefix}runs
   SET state = 'running', attempt = attempt + 1, worker_id = :worker_id, claimed_at = {now},
       started_at = {now}, lease_until = {now} + CAST(:lease_seconds * 1000000 AS INTEGER)
 WHERE seq IN (SELECT value FROM json_each(:seqs)) AND state = 'queued';

-- name: claimed_runs
SELECT json_group_array(json_array(
           seq, id, job, queue, attempt, failures, lost, max_attempts, args, timeout, backoff,
           overlap_key, concurrency_key, schedule_id, occurrence, due_at, missed_count,
           cancel_requested_at, correlation_id, trace, priority))
       AS "seq,id,job,queue,attempt,failures,lost,max_attempts,args,timeout,backoff,overlap_key,concurrency_key,schedule_id,occurrence,due_at,missed_count,cancel_requested_at,correlation_id,trace,priority"
  FROM {prefix}runs WHERE seq IN (SELECT value FROM json_each(:seqs));

-- name: let_go_unknown
-- After a claim whose answer was lost: runs this worker owns without knowing it.
UPDATE {prefix}runs
   SET state = 'queued', worker_id = NULL, lease_until = NULL
 WHERE state = 'running' AND worker_id = :worker_id
   AND seq NOT IN (SELECT value FROM json_each(:known))
RETURNING seq;

-------------------------------------------------------------------------------------- renew

-- name: renew_runs
UPDATE {prefix}runs SET lease_until = {now} + CAST(:lease_seconds * 1000000 AS INTEGER)
 WHERE seq = :seq AND state = 'running' AND attempt = :attempt
RETURNING seq, cancel_requested_at, pause_requested_at, true AS renewed;

-- name: cancel_requests
SELECT seq FROM {prefix}runs
 WHERE seq IN (SELECT value FROM json_each(:seqs)) AND state = 'running'
   AND cancel_requested_at IS NOT NULL;

-- name: set_progress
UPDATE {prefix}runs SET progress = :progress
 WHERE seq = :seq AND state = 'running' AND attempt = :attempt;

-- name: insert_logs
INSERT INTO {prefix}logs (run_seq, attempt, at, level, text)
VALUES (:run_seq, :attempt, :at, :level, :text);

------------------------------------------------------------------------------------- settle

-- name: lost_first_attempts
-- Those of :seqs that are somebody else's by now, or ended: hardly ever any.
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

-- name: succeed_runs
-- settle_runs for what most runs do: succeed at the first attempt and hold no slot.
UPDATE {prefix}runs
   SET state = 'succeeded', finished_at = {now}, result = a.result, error = NULL,
       started_at = coalesce({now} - CAST(a.ran_seconds * 1000000 AS INTEGER), started_at),
       reason = CASE WHEN cancel_requested_at IS NOT NULL OR pause_requested_at IS NOT NULL
                     THEN reason END,
       pause_requested_at = NULL, lease_until = NULL
  FROM (SELECT value ->> 0 AS seq, value ->> 1 AS ran_seconds, value ->> 2 AS result
          FROM json_each(:rows)) AS a
 WHERE {prefix}runs.seq = a.seq AND attempt = 1 AND state = 'running';

-- name: settle_runs
-- Fenced by the attempt number: a worker that lost its lease matches no row and drops its result.
-- A cancel that came meanwhile wins over all but success, a pause over every state that is no end.
UPDATE {prefix}runs
   SET state = CASE WHEN cancel_requested_at IS NOT NULL AND :state <> 'succeeded' THEN 'cancelled'
                    WHEN :terminal THEN :state
                    WHEN pause_requested_at IS NOT NULL THEN 'paused'
                    ELSE :state END,
       finished_at = CASE WHEN :terminal OR cancel_requested_at IS NOT NULL THEN {now} END,
       due_at = CASE WHEN :state = 'waiting'
                     THEN {now} + CAST(:delay_seconds * 1000000 AS INTEGER) ELSE due_at END,
       started_at = coalesce({now} - CAST(:ran_seconds * 1000000 AS INTEGER), started_at),
       wanted_key = CASE WHEN :gives_back
                         THEN coalesce('o/' || overlap_key, 'c/' || concurrency_key) END,
       failures = :failures, lost = :lost, error = :error, result = :result,
       reason = coalesce(:reason, CASE WHEN cancel_requested_at IS NOT NULL
                                         OR pause_requested_at IS NOT NULL THEN reason END),
       pause_requested_at = NULL, lease_until = NULL
 WHERE seq = :seq AND state = 'running' AND attempt = :attempt
   AND (NOT :expired_only OR lease_until <= {now})
RETURNING seq, state, worker_id, started_at;

-- name: insert_attempts
INSERT INTO {prefix}attempts (run_seq, number, worker_id, started_at, finished_at, outcome, error)
VALUES (:run_seq, :number, :worker_id, :started_at, {now}, :outcome, :error)
ON CONFLICT (run_seq, number) DO NOTHING;

-- name: release_slots
DELETE FROM {prefix}slots WHERE owner_run = :seq RETURNING key;

-- name: delay_schedules
SELECT id, expr, last_fired_at FROM {prefix}schedules
 WHERE id IN (SELECT value FROM json_each(:ids)) AND next_fire_at = :waiting_at;

-- name: restart_delay_schedule
-- A schedule that counts from the end of its run: the run has ended, the clock starts. After a step
-- of the clock it may say less than when the run was fired: the cursor does not go back with it.
UPDATE {prefix}schedules
   SET next_fire_at = CASE WHEN max({now}, coalesce(last_fired_at, {now}))
                                + CAST(:interval_seconds * 1000000 AS INTEGER) > ends_at
                           THEN NULL
                           ELSE max({now}, coalesce(last_fired_at, {now}))
                                + CAST(:interval_seconds * 1000000 AS INTEGER) END
 WHERE id = :id AND next_fire_at = :waiting_at
RETURNING id, name, next_fire_at;

-- name: lock_schedules
SELECT {columns schedules} FROM {prefix}schedules WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY id;

-- name: recent_ends
SELECT state FROM {prefix}runs
 WHERE schedule_id = :schedule_id AND occurrence IS NOT NULL AND state IN ('succeeded', 'dead')
 ORDER BY seq DESC LIMIT :limit;

-- name: set_schedule_state
UPDATE {prefix}schedules SET state = :state WHERE id = :id;

-- name: insert_events
INSERT INTO {prefix}events (at, kind, run_id, name, detail)
VALUES ({now}, :kind, :run_id, :name, :detail);

-------------------------------------------------------------------------------------- steps

-- name: fence_run
-- Whether an attempt is still its worker's. Our write transaction is the only one there is.
SELECT seq FROM {prefix}runs WHERE seq = :seq AND attempt = :attempt AND state = 'running';

-- name: lock_run_by_seq
SELECT seq FROM {prefix}runs WHERE seq = :seq;

-- name: put_texts
INSERT INTO {prefix}job_texts (hash, text, names, kept_at) VALUES (:hash, :text, :names, {now})
ON CONFLICT (hash) DO UPDATE SET kept_at = excluded.kept_at;

-- name: texts_of
SELECT hash, text FROM {prefix}job_texts WHERE hash IN (SELECT value FROM json_each(:hashes));

-- name: insert_run_files
INSERT INTO {prefix}run_files (run_seq, number, name, hash) VALUES (:seq, :number, :name, :hash)
ON CONFLICT (run_seq, number) DO NOTHING;

-- name: run_files
SELECT f.number, f.name, t.text, t.names
  FROM {prefix}run_files f JOIN {prefix}job_texts t ON t.hash = f.hash
 WHERE f.run_seq = :seq ORDER BY f.number;

-- name: done_steps
-- An attempt that starts over does not look at what the others did, only at what an operator told it
-- to pass over: see pin_marks.
SELECT DISTINCT number FROM {prefix}step_marks
 WHERE run_seq = :seq AND void = 0 AND (:attempt IS NULL OR attempt IN (0, :attempt));

-- name: put_step
INSERT INTO {prefix}steps (run_seq, attempt, number, name, hash, started_at, status)
VALUES (:seq, :attempt, :number, :name, :hash, {now}, 'running')
ON CONFLICT (run_seq, attempt, number) DO NOTHING;

-- name: end_step
UPDATE {prefix}steps SET status = :status, error = :error, finished_at = {now}
 WHERE run_seq = :seq AND attempt = :attempt AND number = :number AND status = 'running';

-- name: note_step
UPDATE {prefix}steps SET note = :note
 WHERE run_seq = :seq AND attempt = :attempt AND number = :number;

-- name: insert_mark
INSERT INTO {prefix}step_marks (run_seq, number, attempt, finished_at, rows, result)
VALUES (:seq, :number, :attempt, {now}, :rows, :result)
ON CONFLICT (run_seq, number, attempt) DO NOTHING;

-- name: step_mark
SELECT number FROM {prefix}step_marks
 WHERE run_seq = :seq AND number = :number AND attempt = :attempt;

-- name: renew_worker
-- A step that kept everybody from writing kept its worker from renewing, too.
UPDATE {prefix}runs SET lease_until = {now} + CAST(:lease_seconds * 1000000 AS INTEGER)
 WHERE state = 'running'
   AND worker_id = (SELECT worker_id FROM {prefix}runs WHERE seq = :seq);

-- name: pause_request
SELECT pause_requested_at FROM {prefix}runs
 WHERE seq = :seq AND attempt = :attempt AND state = 'running';

-- name: view_jobs
SELECT name, schedule, enabled, queue_max, timeout, file_count, queued, running, error
  FROM {views}jobs ORDER BY name LIMIT :limit;

-- name: view_job_queue
-- The instants have other names: here they are what the view shows, text where it shows text.
SELECT job_name, queued_at AS queued, started_at AS started
  FROM {views}job_queue LIMIT :limit;

-- name: latest_seq
SELECT coalesce(max(seq), 0) AS seq FROM {prefix}runs;

-- name: view_job_runs
-- The latest, and what failed before them: a busy store must not hide that from an alert. Plain
-- conditions, no subquery: only such go into the branches of the view.
SELECT id, run_id, job_name, record_type, file_name, started_at AS started,
       finished_at AS finished, status, error_message
  FROM {views}job_runs
 WHERE id >= :first_id OR status = 'failed'
 ORDER BY id DESC LIMIT :limit;

-- name: void_marks
UPDATE {prefix}step_marks SET void = 1 WHERE run_seq = :seq AND number >= :number AND void = 0;

-- name: unpin_marks
DELETE FROM {prefix}step_marks WHERE run_seq = :seq AND attempt = 0;

-- name: pin_marks
-- Passed over, done or not, whoever asks, also an attempt that starts over: as if attempt 0, which
-- never is, had done them.
WITH RECURSIVE passed (number) AS (
    SELECT 1 WHERE :number > 1 UNION ALL SELECT number + 1 FROM passed WHERE number + 1 < :number
)
INSERT INTO {prefix}step_marks (run_seq, number, attempt, finished_at)
SELECT :seq, number, 0, {now} FROM passed;

-- name: list_steps
SELECT s.attempt, s.number, s.name, s.hash, s.started_at,
       coalesce(m.finished_at, s.finished_at) AS finished_at,
       CASE WHEN m.number IS NOT NULL THEN 'succeeded' ELSE s.status END AS status,
       m.rows, m.result, s.error, s.note
  FROM {prefix}steps s
  LEFT JOIN {prefix}step_marks m
         ON m.run_seq = s.run_seq AND m.attempt = s.attempt AND m.number = s.number
 WHERE s.run_seq = :seq ORDER BY s.attempt, s.number LIMIT :limit;

-- name: delete_run_files
DELETE FROM {prefix}run_files WHERE run_seq = :seq;

-- name: delete_steps
DELETE FROM {prefix}steps WHERE run_seq = :seq;

-- name: delete_marks
DELETE FROM {prefix}step_marks WHERE run_seq = :seq;

-- name: old_texts
SELECT t.hash FROM {prefix}job_texts t
 WHERE t.kept_at < {now} - CAST(:age_seconds * 1000000 AS INTEGER)
   AND NOT EXISTS (SELECT 1 FROM {prefix}run_files f WHERE f.hash = t.hash)
 LIMIT :limit;

-- name: delete_texts
DELETE FROM {prefix}job_texts WHERE hash = :hash;

-------------------------------------------------------------------------------------- files

-- name: insert_file
INSERT INTO {prefix}files (id, name, content_type, size, sha256, job, run_id, created_at, until, content)
VALUES (:id, :name, :content_type, :size, :digest, :job, :run_id, {now},
        {now} + CAST(:ttl_seconds * 1000000 AS INTEGER), :content)
RETURNING id, name, content_type, size, sha256, job, run_id, created_at, until;

-- name: lock_files
-- Nothing to lock: a transaction that writes is alone until its end.
SELECT 1 AS locked;

-- name: file_usage
-- What has run out takes no room, though its row goes a little later.
SELECT count(*) AS files, coalesce(sum(size), 0) AS bytes
  FROM {prefix}files WHERE until IS NULL OR until > {now};

-- name: kept_file
SELECT id, name, content_type, size, sha256, job, run_id, created_at, until
  FROM {prefix}files WHERE id = :id AND (until IS NULL OR until > {now});

-- name: file_content
SELECT content FROM {prefix}files WHERE id = :id AND (until IS NULL OR until > {now});

-- name: list_files
SELECT id, name, content_type, size, sha256, job, run_id, created_at, until
  FROM {prefix}files
 WHERE id > :after AND substr(name, 1, length(:prefix)) = :prefix
   AND (until IS NULL OR until > {now})
 ORDER BY id LIMIT :limit;

-- name: delete_file
DELETE FROM {prefix}files WHERE id = :id RETURNING name;

-- name: expired_files
SELECT id FROM {prefix}files WHERE until <= {now} ORDER BY until LIMIT :limit;

------------------------------------------------------------------------------------- rescue

-- name: expired_runs
SELECT seq, id, job, queue, attempt, failures, lost, max_attempts, args, timeout, backoff,
       overlap_key, concurrency_key, schedule_id, occurrence, due_at, missed_count,
       cancel_requested_at, correlation_id, trace, priority
  FROM {prefix}runs
 WHERE state = 'running' AND lease_until <= {now}
   AND seq NOT IN (SELECT value FROM json_each(:without))
 ORDER BY lease_until LIMIT :limit;

-- name: expired_leases
SELECT count(*) AS runs, min(lease_until) AS oldest_at FROM {prefix}runs
 WHERE state = 'running' AND lease_until <= {now};

-- name: slot_owners_after
SELECT owner_run FROM {prefix}slots WHERE owner_run > :after ORDER BY owner_run LIMIT :limit;

-- name: sweep_slots
-- Slots whose owner has ended or is gone. Nothing should leave one behind; this repairs it.
DELETE FROM {prefix}slots
 WHERE owner_run IN (SELECT value FROM json_each(:owners))
   AND NOT EXISTS (SELECT 1 FROM {prefix}runs r
                    WHERE r.seq = owner_run AND r.state NOT IN ('succeeded', 'dead', 'cancelled'))
RETURNING key;

-- name: stranded_delay_schedules
-- Delay schedules that wait for a run which no longer exists (deleted, or never admitted).
SELECT id, expr FROM {prefix}schedules AS s
 WHERE enabled = 1 AND paused = 0 AND next_fire_at = :waiting_at
   AND NOT EXISTS (SELECT 1 FROM {prefix}runs r WHERE r.schedule_id = s.id
                      AND r.state IN ('waiting', 'held', 'queued', 'running', 'paused'))
 LIMIT :limit;

------------------------------------------------------------------------- jobs and schedules

-- name: put_jobs
-- Of two versions the later one wins; the same version keeps its instant.
INSERT INTO {prefix}jobs (name, executor, source, origin, spec, args_schema, description, queue,
       priority, timeout, policies, enabled, error, version, version_at)
VALUES (:name, :executor, :source, :origin, :spec, :args_schema, :description, :queue,
       :priority, :timeout, :policies, :enabled, :error, :version, {now})
ON CONFLICT (name) DO UPDATE
   SET executor = excluded.executor, source = excluded.source, origin = excluded.origin,
       spec = excluded.spec, args_schema = excluded.args_schema,
       description = excluded.description, queue = excluded.queue, priority = excluded.priority,
       timeout = excluded.timeout, policies = excluded.policies, enabled = excluded.enabled,
       error = excluded.error, version = excluded.version, version_at = excluded.version_at
 WHERE {prefix}jobs.version <> excluded.version OR {prefix}jobs.error IS NOT excluded.error
    OR {prefix}jobs.enabled <> excluded.enabled;

-- name: jobs_named
SELECT * FROM {prefix}jobs WHERE name IN (SELECT value FROM json_each(:names));

-- name: list_jobs
SELECT * FROM {prefix}jobs WHERE name > :after ORDER BY name LIMIT :limit;

-- name: insert_schedules
INSERT INTO {prefix}schedules (name, job, kind, expr, next_fire_at, enabled, paused, overlap_key,
       ends_at, args, priority, options, plan_key, created_at, state, error, registered)
VALUES (:name, :job, :kind, :expr, :next_fire_at, :enabled, 0, :overlap_key, :ends_at, :args,
       :priority, :options, :plan_key, {now}, :state, :error, :registered)
ON CONFLICT (name) DO NOTHING
RETURNING {columns schedules};

-- name: update_schedule
-- Pause bits and last_fired_at are not here: a definition never touches what the operator set.
UPDATE {prefix}schedules
   SET job = :job, kind = :kind, expr = :expr, next_fire_at = :next_fire_at, enabled = :enabled,
       overlap_key = :overlap_key, ends_at = :ends_at, args = :args, priority = :priority,
       options = :options, plan_key = :plan_key, state = :state, error = :error,
       registered = :registered, revision = revision + 1
 WHERE id = :id
RETURNING {columns schedules};

-- name: set_registered
-- What code or a file says of it, where that changes nothing else.
UPDATE {prefix}schedules SET registered = :registered WHERE id = :id;

-- name: schedule_named
SELECT {columns schedules} FROM {prefix}schedules WHERE name = :name;

-- name: schedules_named
SELECT {columns schedules} FROM {prefix}schedules WHERE name IN (SELECT value FROM json_each(:names));

-- name: lock_schedule
SELECT {columns schedules} FROM {prefix}schedules WHERE name = :name;

-- name: list_schedules
SELECT {columns schedules} FROM {prefix}schedules
 WHERE name > :after AND (:job IS NULL OR job = :job) ORDER BY name LIMIT :limit;

-- name: pause_schedule
UPDATE {prefix}schedules
   SET paused = 1, paused_by = :by, paused_at = {now}, paused_reason = :reason, state = :state
 WHERE id = :id AND paused = 0
RETURNING {columns schedules};

-- name: pause_again
-- The word of who paused it last, though it had not been resumed yet.
UPDATE {prefix}schedules
   SET paused = 1, paused_by = :by, paused_at = {now}, paused_reason = :reason, state = :state
 WHERE id = :id AND paused = 1
RETURNING {columns schedules};

-- name: resume_schedule
UPDATE {prefix}schedules
   SET paused = 0, paused_by = NULL, paused_at = NULL, paused_reason = NULL,
       next_fire_at = :next_fire_at, state = :state
 WHERE id = :id AND paused = 1
RETURNING {columns schedules};

-- name: active_schedules
SELECT {columns schedules}
  FROM {prefix}schedules WHERE paused = 0 ORDER BY id LIMIT :limit;

-- name: paused_because
SELECT id, name FROM {prefix}schedules
 WHERE paused = 1 AND paused_reason LIKE :mark AND id > :after ORDER BY id LIMIT :limit;

-- name: drop_schedule
DELETE FROM {prefix}schedules WHERE id = :id RETURNING id;

-- name: insert_schedule_changes
INSERT INTO {prefix}schedule_changes (schedule_id, name, at, by, action, reason, before, after)
VALUES (:schedule_id, :name, {now}, :by, :action, :reason, :before, :after);

-- name: list_schedule_changes
SELECT id, schedule_id, name, at, by, action, reason, before, after FROM {prefix}schedule_changes
 WHERE schedule_id = :schedule_id AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: dropped_schedule
-- The last of its name that was dropped.
SELECT id, schedule_id, name, at, by, action, reason, before, after
  FROM {prefix}schedule_changes
 WHERE name = :name AND action = 'drop' ORDER BY id DESC LIMIT 1;

-- name: occurrence_at
SELECT schedule_id, occurrence, last_occurrence, count, outcome, reason, run_id, recorded_at
  FROM {prefix}occurrences
 WHERE schedule_id = :schedule_id AND occurrence <= :instant AND last_occurrence >= :instant
 ORDER BY occurrence DESC LIMIT 1;

-- name: slot_owners
SELECT * FROM {prefix}runs
 WHERE seq IN (SELECT owner_run FROM {prefix}slots WHERE key = :key ORDER BY number LIMIT 100);

-- name: list_occurrences
SELECT schedule_id, occurrence, last_occurrence, count, outcome, reason, run_id, recorded_at
  FROM {prefix}occurrences
 WHERE schedule_id = :schedule_id AND occurrence < :before ORDER BY occurrence DESC LIMIT :limit;

------------------------------------------------------------------------------- jobs of files

-- name: lock_job
SELECT * FROM {prefix}jobs WHERE name = :name;

-- name: see_versions
-- A version that comes back keeps its instant, unless somebody saw the files change to it.
INSERT INTO {prefix}job_versions (job, version, seen_at) VALUES (:job, :version, {now})
ON CONFLICT (job, version) DO UPDATE
   SET seen_at = CASE WHEN :anew = excluded.job THEN excluded.seen_at ELSE {prefix}job_versions.seen_at END
RETURNING job, seen_at;

-- name: forget_versions
DELETE FROM {prefix}job_versions
 WHERE job = :job AND version NOT IN (SELECT version FROM {prefix}job_versions
                                       WHERE job = :job ORDER BY seen_at DESC LIMIT :keep);

-- name: put_file_jobs
INSERT INTO {prefix}jobs (name, executor, source, origin, spec, args_schema, description, queue,
       priority, timeout, policies, enabled, error, version, version_at)
VALUES (:name, :executor, :source, :origin, :spec, :args_schema, :description, :queue,
       :priority, :timeout, :policies, :enabled, :error, :version, :version_at)
ON CONFLICT (name) DO UPDATE
   SET executor = excluded.executor, source = excluded.source, origin = excluded.origin,
       spec = excluded.spec, args_schema = excluded.args_schema,
       description = excluded.description, queue = excluded.queue, priority = excluded.priority,
       timeout = excluded.timeout, policies = excluded.policies, enabled = excluded.enabled,
       error = excluded.error, version = excluded.version, version_at = excluded.version_at;

-- name: set_job_error
UPDATE {prefix}jobs SET error = :error, version_at = :version_at
 WHERE name = :name AND source = 'file';

-- name: retire_job
UPDATE {prefix}jobs SET enabled = 0, error = :error, version_at = {now}
 WHERE name = :name AND source = 'file' AND origin = :origin;

-- name: file_jobs
SELECT name, version, error, version_at FROM {prefix}jobs
 WHERE source = 'file' AND origin = :origin AND name > :after ORDER BY name LIMIT :limit;

-- name: live_workers
SELECT id, origin, jobs FROM {prefix}workers
 WHERE seen_at >= {now} - CAST(:live_seconds * 1000000 AS INTEGER) ORDER BY id LIMIT :limit;

-- name: unstarted_retired_runs
-- Runs that nobody will ever work on, newest first: to end the first in line would let in the next.
SELECT r.id FROM {prefix}jobs j JOIN {prefix}runs r ON r.job = j.name
 WHERE j.source = 'file' AND j.origin = :origin AND j.error LIKE 'retired: %'
   AND r.state IN ('waiting', 'held', 'queued', 'paused')
 ORDER BY r.seq DESC LIMIT :limit;

-- name: shared_jobs
-- SQL jobs that a statement made. Every worker may serve them.
SELECT * FROM {prefix}jobs WHERE source = 'api' AND executor = 'sql' ORDER BY name LIMIT :limit;

-- name: retired_shared_jobs
SELECT name FROM {prefix}jobs
 WHERE source = 'api' AND executor = 'sql' AND error LIKE 'retired: %' ORDER BY name LIMIT :limit;

-- name: retire_shared_job
UPDATE {prefix}jobs SET enabled = 0, error = :error, version_at = {now}
 WHERE name = :name AND source = 'api' AND executor = 'sql';

-- name: delete_shared_job
DELETE FROM {prefix}jobs WHERE name = :name AND source = 'api' AND executor = 'sql';

-- name: delete_bench_job
-- Only what `rota bench` made, whatever it is asked for.
DELETE FROM {prefix}jobs WHERE name = :name AND name LIKE 'rota-bench-%';

-- name: delete_bench_queue
DELETE FROM {prefix}queues WHERE name = :name AND name LIKE 'rota-bench-%';

-- name: unfinished_run
-- A branch for each state: each walks the index of that state, never the history.
SELECT 1 AS found FROM {prefix}runs WHERE state = 'queued' AND job = :job
UNION ALL SELECT 1 FROM {prefix}runs WHERE state = 'running' AND job = :job
UNION ALL SELECT 1 FROM {prefix}runs WHERE state = 'waiting' AND job = :job
UNION ALL SELECT 1 FROM {prefix}runs WHERE state = 'held' AND job = :job
UNION ALL SELECT 1 FROM {prefix}runs WHERE state = 'paused' AND job = :job
 LIMIT 1;

-- name: running_by_schedule
SELECT schedule_id, count(*) AS running FROM {prefix}runs INDEXED BY {prefix}runs_lease
 WHERE state = 'running' AND schedule_id IS NOT NULL GROUP BY schedule_id;

-------------------------------------------------------------------- control: what operators do

-- name: run_by_id
SELECT * FROM {prefix}runs WHERE id = :id;

-- name: run_ids_between
SELECT id FROM {prefix}runs WHERE id BETWEEN :low AND :high ORDER BY id LIMIT :limit;

-- name: lock_run
-- Our write transaction is the only one there is, so reading is locking.
SELECT * FROM {prefix}runs WHERE id = :id;

-- name: run_by_seq
SELECT * FROM {prefix}runs WHERE seq = :seq;

-- name: cancel_run
UPDATE {prefix}runs
   SET state = 'cancelled', finished_at = {now}, reason = :reason, cancel_requested_at = {now},
       wanted_key = coalesce('o/' || overlap_key, 'c/' || concurrency_key)
 WHERE seq = :seq AND state IN ('waiting', 'held', 'queued', 'paused')
RETURNING state;

-- name: request_cancel
-- Its worker ends it, or whoever rescues it.
UPDATE {prefix}runs SET cancel_requested_at = coalesce(cancel_requested_at, {now}), reason = :reason
 WHERE seq = :seq AND state = 'running'
RETURNING state;

-- name: pause_run
UPDATE {prefix}runs SET state = 'paused', reason = :reason
 WHERE seq = :seq AND state IN ('waiting', 'held', 'queued')
RETURNING state;

-- name: request_pause
UPDATE {prefix}runs SET pause_requested_at = coalesce(pause_requested_at, {now}), reason = :reason
 WHERE seq = :seq AND state = 'running'
RETURNING state;

-- name: resume_run
UPDATE {prefix}runs SET state = 'waiting', reason = :reason
 WHERE seq = :seq AND state = 'paused'
RETURNING state;

-- name: redo_run
UPDATE {prefix}runs
   SET state = 'waiting', due_at = {now}, finished_at = NULL, failures = 0, lost = 0,
       redo = redo + 1, cancel_requested_at = NULL, pause_requested_at = NULL, reason = :reason,
       result = NULL, progress = NULL,
       wanted_key = coalesce('o/' || overlap_key, 'c/' || concurrency_key)
 WHERE seq = :seq AND state IN ('succeeded', 'dead', 'cancelled')
RETURNING state;

-- name: delete_runs
DELETE FROM {prefix}runs WHERE seq = :seq AND state <> 'running' RETURNING seq, id;

-- name: delete_attempts
DELETE FROM {prefix}attempts WHERE run_seq = :seq;

-- name: delete_logs
DELETE FROM {prefix}logs WHERE run_seq = :seq;

-- name: delete_keys
DELETE FROM {prefix}run_keys WHERE run_id = :id;

-- name: pause_queue
INSERT INTO {prefix}queues (name, paused, reason, paused_by, paused_at)
VALUES (:name, 1, :reason, :by, {now})
ON CONFLICT (name) DO UPDATE
   SET paused = 1, reason = excluded.reason, paused_by = excluded.paused_by,
       paused_at = excluded.paused_at;

-- name: resume_queue
UPDATE {prefix}queues SET paused = 0, reason = NULL, paused_by = NULL, paused_at = NULL
 WHERE name = :name AND paused = 1
RETURNING name;

-- name: queue_named
SELECT name FROM {prefix}queues WHERE name = :name;

-- name: list_queues
SELECT q.name, q.paused, q.reason, q.paused_by, q.paused_at,
       (SELECT count(*) FROM (SELECT 1 AS one FROM {prefix}runs r
                               WHERE r.state = 'queued' AND r.queue = q.name LIMIT :depth) AS waiting) AS queued
  FROM {prefix}queues q WHERE q.name > :after ORDER BY q.name LIMIT :limit;

-- name: set_meta
INSERT INTO {prefix}meta (key, value) VALUES (:key, :value)
ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: swap_meta
UPDATE {prefix}meta SET value = :value WHERE key = :key AND value = :expected RETURNING key;

-- name: all_meta
SELECT key, value FROM {prefix}meta;

-- name: insert_audit
INSERT INTO {prefix}audit (at, by, via, action, thing, reason, before, after)
VALUES ({now}, :by, :via, :action, :thing, :reason, :before, :after);

-- name: list_audit
SELECT id, at, by, via, action, thing, reason, before, after FROM {prefix}audit
 WHERE id < :before ORDER BY id DESC LIMIT :limit;

------------------------------------------------------------------------------- control rows

-- name: ask
INSERT INTO {views}control (statement, requested_by) VALUES (:statement, :requested_by);

-- name: asked_rows
SELECT id, statement, requested_by, role FROM {views}control
 WHERE status = 'asked' ORDER BY id LIMIT :limit;

-- name: lock_asked_row
SELECT id FROM {views}control WHERE id = :id AND status = 'asked';

-- name: lock_words
-- One writer at a time: nobody else can say anything meanwhile.
SELECT 1 AS locked;

-- name: waiting_words
-- Rows that may ask for this of a schedule; what they say is read by who asks for them.
SELECT id, statement, requested_by, role FROM {views}control
 WHERE status = 'asked' AND length(statement) <= :longest
   AND statement LIKE '%' || :verb || '%SCHEDULE%' ORDER BY id LIMIT :limit;

-- name: answer_row
UPDATE {views}control
   SET status = :status, statement = :kept, rows = :rows, more = :more, error = :error,
       answered_at = strftime('%Y-%m-%d %H:%M:%S', {now} / 1000000, 'unixepoch')
                     || printf('.%06dZ', {now} % 1000000)
 WHERE id = :id AND status = 'asked'
RETURNING id;

-- name: old_answered_rows
SELECT id FROM {views}control
 WHERE status <> 'asked'
   AND (answered_at < strftime('%Y-%m-%d %H:%M:%S', {now} / 1000000 - :age_seconds, 'unixepoch')
        OR id <= (SELECT id FROM {views}control ORDER BY id DESC LIMIT 1 OFFSET :keep))
 ORDER BY id LIMIT :limit;

-- name: delete_answered_rows
DELETE FROM {views}control WHERE id = :id AND status <> 'asked';

-------------------------------------------------------------------------- workers and locks

-- name: put_worker
INSERT INTO {prefix}workers (id, host, pid, version, tzdata, origin, jobs, queues, slots, stuck,
       started_at, seen_at)
VALUES (:id, :host, :pid, :version, :tzdata, :origin, :jobs, :queues, :slots, :stuck, {now}, {now})
ON CONFLICT (id) DO UPDATE
   SET jobs = excluded.jobs, queues = excluded.queues, slots = excluded.slots,
       stuck = excluded.stuck, seen_at = excluded.seen_at;

-- name: forget_worker
DELETE FROM {prefix}workers WHERE id = :id;

-- name: forget_old_workers
DELETE FROM {prefix}workers WHERE seen_at < {now} - CAST(:age_seconds * 1000000 AS INTEGER)
RETURNING id;

-- name: list_workers
SELECT id, host, pid, version, tzdata, origin, jobs, queues, slots, stuck, started_at, seen_at,
       (SELECT count(*) FROM {prefix}runs r WHERE r.state = 'running' AND r.worker_id = w.id) AS running
  FROM {prefix}workers w WHERE id > :after ORDER BY id LIMIT :limit;

-- name: acquire_lock
-- The token rises with each holder, also after a release: the row stays.
INSERT INTO {prefix}locks (name, owner, token, until)
VALUES (:name, :owner, 1, {now} + CAST(:ttl_seconds * 1000000 AS INTEGER))
ON CONFLICT (name) DO UPDATE
   SET owner = excluded.owner, token = {prefix}locks.token + 1, until = excluded.until
 WHERE {prefix}locks.until <= {now}
RETURNING token;

-- name: extend_lock
UPDATE {prefix}locks SET until = {now} + CAST(:ttl_seconds * 1000000 AS INTEGER)
 WHERE name = :name AND token = :token AND until > {now}
RETURNING token;

-- name: release_lock
UPDATE {prefix}locks SET until = {now}, owner = NULL
 WHERE name = :name AND token = :token AND until > {now}
RETURNING token;

-- name: list_locks
SELECT name, owner, token, until FROM {prefix}locks
 WHERE name > :after AND until > {now} ORDER BY name LIMIT :limit;

--------------------------------------------------------------------------------------- read

-- name: list_runs
SELECT * FROM {prefix}runs
 WHERE seq < :before AND (:state IS NULL OR state = :state) AND (:queue IS NULL OR queue = :queue)
 ORDER BY seq DESC LIMIT :limit;

-- name: recent_runs_of_job
-- Among the newest runs of all: where a job has many, they are here.
SELECT * FROM (SELECT * FROM {prefix}runs WHERE seq < :before ORDER BY seq DESC LIMIT :recent)
 WHERE job = :job AND (:state IS NULL OR state = :state) AND (:queue IS NULL OR queue = :queue)
 ORDER BY seq DESC LIMIT :limit;

-- name: list_runs_of_job
-- The index by job does not know what runs, which is little, and what is queued, which is looked
-- for in its line (`seq + 0`: not among all runs that ever were).
WITH found AS (
    SELECT * FROM (
        SELECT seq FROM {prefix}runs
         WHERE job = :job AND seq < :before AND state <> 'queued' AND state <> 'running'
           AND (:state IS NULL OR state = :state) AND (:queue IS NULL OR queue = :queue)
         ORDER BY seq DESC LIMIT :limit)
    UNION ALL
    SELECT seq FROM {prefix}runs INDEXED BY {prefix}runs_lease
     WHERE state = 'running' AND job = :job AND seq + 0 < :before
       AND coalesce(:state, 'running') = 'running' AND (:queue IS NULL OR queue = :queue)
    UNION ALL
    SELECT seq FROM {prefix}runs INDEXED BY {prefix}runs_claim
     WHERE state = 'queued' AND job = :job AND seq + 0 < :before
       AND coalesce(:state, 'queued') = 'queued' AND (:queue IS NULL OR queue = :queue)
)
SELECT * FROM {prefix}runs
 WHERE seq IN (SELECT seq FROM found ORDER BY seq DESC LIMIT :limit)
 ORDER BY seq DESC;

-- name: list_runs_of_schedule
SELECT * FROM {prefix}runs
 WHERE schedule_id = :schedule_id AND seq < :before AND (:state IS NULL OR state = :state)
   AND (:queue IS NULL OR queue = :queue)
   AND (:job IS NULL OR job = :job)
 ORDER BY seq DESC LIMIT :limit;

-- name: count_matching_runs
-- No further than the limit: who asks wants to know how many, and not to wait for it.
SELECT count(*) AS runs FROM (
    SELECT 1 FROM {prefix}runs
     WHERE state = :state AND (:job IS NULL OR job = :job)
       AND (:queue IS NULL OR queue = :queue)
       AND (:schedule_id IS NULL OR schedule_id = :schedule_id)
     LIMIT :limit);

-- name: list_attempts
SELECT run_seq, number, worker_id, started_at, finished_at, outcome, error
  FROM {prefix}attempts WHERE run_seq = :seq ORDER BY number LIMIT :limit;

-- name: attempts_above
-- Those of several runs, each above a number of its own, in their order.
SELECT a.run_seq, a.number, a.worker_id, a.started_at, a.finished_at, a.outcome, a.error
  FROM json_each(:seqs) AS s
  JOIN json_each(:numbers) AS n ON n.key = s.key
  JOIN {prefix}attempts AS a ON a.run_seq = s.value AND a.number > n.value
 ORDER BY a.run_seq, a.number LIMIT :limit;

-- name: list_logs
SELECT id, attempt, at, level, text FROM {prefix}logs
 WHERE run_seq = :seq AND id > :after ORDER BY id LIMIT :limit;

-- name: tail_logs
SELECT id, attempt, at, level, text FROM {prefix}logs
 WHERE run_seq = :seq AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: list_events
SELECT id, at, kind, run_id, name, detail FROM {prefix}events
 WHERE id < :before AND (:run_id IS NULL OR run_id = :run_id) ORDER BY id DESC LIMIT :limit;

-- name: count_runs
SELECT state, count(*) AS runs FROM {prefix}runs GROUP BY state;

-- name: count_schedules
SELECT count(*) AS schedules, coalesce(sum(paused), 0) AS paused,
       coalesce(sum(error IS NOT NULL), 0) AS broken FROM {prefix}schedules;

------------------------------------------------------------------------------------- figures

-- name: queue_names
SELECT name FROM {prefix}queues ORDER BY name LIMIT :limit;

-- name: queue_depths
-- What waits or runs, each state from its own index and no further than `depth`.
SELECT queue, state, count(*) AS runs FROM (
    SELECT * FROM (SELECT queue, 'waiting' AS state FROM {prefix}runs WHERE state = 'waiting' LIMIT :depth)
    UNION ALL SELECT * FROM (SELECT queue, 'held' AS state FROM {prefix}runs WHERE state = 'held' LIMIT :depth)
    UNION ALL SELECT * FROM (SELECT queue, 'queued' AS state FROM {prefix}runs WHERE state = 'queued' LIMIT :depth)
    UNION ALL SELECT * FROM (SELECT queue, 'running' AS state FROM {prefix}runs WHERE state = 'running' LIMIT :depth)
    UNION ALL SELECT * FROM (SELECT queue, 'paused' AS state FROM {prefix}runs WHERE state = 'paused' LIMIT :depth)
) AS counted GROUP BY queue, state;

-- name: oldest_queued
-- From one priority of a queue to the next by the index of claims: it takes as long as there are
-- priorities, not runs.
WITH RECURSIVE line(queue, priority) AS (
    SELECT q.name, (SELECT priority FROM {prefix}runs WHERE state = 'queued' AND queue = q.name
                     ORDER BY priority DESC LIMIT 1)
      FROM {prefix}queues q
    UNION ALL
    SELECT l.queue, (SELECT priority FROM {prefix}runs
                      WHERE state = 'queued' AND queue = l.queue AND priority < l.priority
                      ORDER BY priority DESC LIMIT 1)
      FROM line l WHERE l.priority IS NOT NULL
)
SELECT queue, min((SELECT due_at FROM {prefix}runs r
                    WHERE r.state = 'queued' AND r.queue = l.queue AND r.priority = l.priority
                    ORDER BY due_at LIMIT 1)) AS due_at
  FROM line l WHERE l.priority IS NOT NULL GROUP BY queue;

-- name: schedule_statuses
SELECT status, count(*) AS schedules FROM (
    SELECT CASE WHEN error IS NOT NULL THEN 'BROKEN' WHEN NOT enabled THEN 'DISABLED'
            WHEN paused THEN 'PAUSED' WHEN next_fire_at IS NULL THEN 'FINISHED'
            ELSE 'ACTIVE' END AS status
      FROM {prefix}schedules
) AS told GROUP BY status;

-- name: last_successes
-- Of each job's latest runs only: one that has failed for long is not searched through.
SELECT j.name AS job,
       (SELECT max(finished_at) FROM (
            SELECT state, finished_at FROM {prefix}runs r
             WHERE r.job = j.name AND r.state <> 'queued' AND r.state <> 'running'
             ORDER BY r.seq DESC LIMIT :recent) WHERE state = 'succeeded') AS finished_at
  FROM (SELECT name FROM {prefix}jobs ORDER BY name LIMIT :jobs) AS j;

-- name: count_live_workers
SELECT count(*) AS workers FROM {prefix}workers
 WHERE seen_at >= {now} - CAST(:live_seconds * 1000000 AS INTEGER);

-------------------------------------------------------------------------------------- prune

-- name: old_runs
-- Older than its state's retention and not among the last of its job that wait or have ended.
SELECT r.seq FROM {prefix}runs r
 WHERE r.state = :state AND r.finished_at < {now} - CAST(:age_seconds * 1000000 AS INTEGER)
   AND (r.state = 'succeeded' OR r.state = 'dead' OR r.state = 'cancelled')
   AND (SELECT count(*) FROM (SELECT 1 FROM {prefix}runs newer
                               WHERE newer.job = r.job AND newer.seq > r.seq
                                 AND newer.state <> 'queued' AND newer.state <> 'running'
                               LIMIT :keep_last)) >= :keep_last
 ORDER BY r.finished_at LIMIT :limit;

-- name: ledger_ids
-- One index step per schedule, however long its ledger is.
WITH RECURSIVE ids(id) AS (
    SELECT min(schedule_id) FROM {prefix}occurrences WHERE schedule_id > :after
    UNION ALL
    SELECT (SELECT min(schedule_id) FROM {prefix}occurrences WHERE schedule_id > ids.id)
      FROM ids WHERE ids.id IS NOT NULL
)
SELECT id AS schedule_id FROM ids WHERE id IS NOT NULL LIMIT :limit;

-- name: uncounted_occurrence
SELECT schedule_id, occurrence, last_occurrence, outcome, run_id
  FROM {prefix}occurrences WHERE count IS NULL LIMIT 1;

-- name: schedules_by_id
SELECT {columns schedules}
  FROM {prefix}schedules WHERE id IN (SELECT value FROM json_each(:ids));

-- name: count_occurrences
UPDATE {prefix}occurrences SET count = :count
 WHERE schedule_id = :schedule_id AND occurrence = :occurrence AND count IS NULL;

-- name: count_run
UPDATE {prefix}runs SET missed_count = :count WHERE id = :run_id;

-- name: foldable_occurrences
-- The ledger outlives the runs, and is never touched past the cursor.
SELECT o.occurrence, o.last_occurrence, o.count, o.outcome, o.reason
  FROM {prefix}occurrences o
 WHERE o.schedule_id = :schedule_id
   AND o.count IS NOT NULL
   AND (o.recorded_at < {now} - CAST(:age_seconds * 1000000 AS INTEGER)
        OR o.occurrence <= (SELECT occurrence FROM {prefix}occurrences
                            WHERE schedule_id = :schedule_id
                            ORDER BY occurrence DESC LIMIT 1 OFFSET :keep_rows))
   AND o.last_occurrence < coalesce((SELECT next_fire_at FROM {prefix}schedules
                                      WHERE id = :schedule_id), o.last_occurrence + 1)
 ORDER BY o.occurrence LIMIT :limit;

-- name: delete_occurrences
DELETE FROM {prefix}occurrences WHERE schedule_id = :schedule_id AND occurrence = :occurrence;

-- name: stretch_occurrences
UPDATE {prefix}occurrences
   SET last_occurrence = :last_occurrence, count = :count, reason = :reason, run_id = NULL
 WHERE schedule_id = :schedule_id AND occurrence = :occurrence;

-------------------------------------------------------------------- surfaces: what they show

-- name: follow_position
SELECT coalesce((SELECT max(seq) FROM {prefix}runs), 0) AS seq,
       coalesce((SELECT max(id) FROM {prefix}audit), 0) AS audit_id;

-- name: brief_runs_after
SELECT seq, id, job, queue, state, schedule_id, occurrence, due_at, started_at, finished_at,
       attempt, redo, progress, error, reason
  FROM {prefix}runs WHERE seq > :after ORDER BY seq LIMIT :limit;

-- name: brief_running
SELECT seq, id, job, queue, state, schedule_id, occurrence, due_at, started_at, finished_at,
       attempt, redo, progress, error, reason
  FROM {prefix}runs WHERE state = 'running' ORDER BY lease_until LIMIT :limit;

-- name: brief_runs
SELECT seq, id, job, queue, state, schedule_id, occurrence, due_at, started_at, finished_at,
       attempt, redo, progress, error, reason
  FROM {prefix}runs WHERE seq IN (SELECT value FROM json_each(:seqs));

-- name: brief_ended
-- Those that ended in a stretch of time, the latest first; each state by its part of the index.
SELECT seq, id, job, queue, state, schedule_id, occurrence, due_at, started_at, finished_at,
       attempt, redo, progress, error, reason FROM (
    SELECT * FROM (SELECT seq, id, job, queue, state, schedule_id, occurrence, due_at, started_at,
                          finished_at, attempt, redo, progress, error, reason
                     FROM {prefix}runs INDEXED BY {prefix}runs_finished
                    WHERE state = 'succeeded'
                      AND finished_at >= :since_at AND finished_at < :until_at
                    ORDER BY finished_at DESC LIMIT :limit) AS succeeded
    UNION ALL
    SELECT * FROM (SELECT seq, id, job, queue, state, schedule_id, occurrence, due_at, started_at,
                          finished_at, attempt, redo, progress, error, reason
                     FROM {prefix}runs INDEXED BY {prefix}runs_finished
                    WHERE state = 'dead'
                      AND finished_at >= :since_at AND finished_at < :until_at
                    ORDER BY finished_at DESC LIMIT :limit) AS dead
    UNION ALL
    SELECT * FROM (SELECT seq, id, job, queue, state, schedule_id, occurrence, due_at, started_at,
                          finished_at, attempt, redo, progress, error, reason
                     FROM {prefix}runs INDEXED BY {prefix}runs_finished
                    WHERE state = 'cancelled'
                      AND finished_at >= :since_at AND finished_at < :until_at
                    ORDER BY finished_at DESC LIMIT :limit) AS cancelled
) AS ended ORDER BY finished_at DESC LIMIT :limit;

-- name: ended_from
-- Those that ended first from an instant on, of which some had begun before it. No index knows both
-- ends of a run, so no more than the limit are looked at.
SELECT seq, started_at, finished_at FROM (
    SELECT * FROM (SELECT seq, started_at, finished_at
                     FROM {prefix}runs INDEXED BY {prefix}runs_finished
                    WHERE state = 'succeeded'
                      AND finished_at >= :from_at
                    ORDER BY finished_at LIMIT :limit) AS succeeded
    UNION ALL
    SELECT * FROM (SELECT seq, started_at, finished_at
                     FROM {prefix}runs INDEXED BY {prefix}runs_finished
                    WHERE state = 'dead'
                      AND finished_at >= :from_at
                    ORDER BY finished_at LIMIT :limit) AS dead
    UNION ALL
    SELECT * FROM (SELECT seq, started_at, finished_at
                     FROM {prefix}runs INDEXED BY {prefix}runs_finished
                    WHERE state = 'cancelled'
                      AND finished_at >= :from_at
                    ORDER BY finished_at LIMIT :limit) AS cancelled
) AS ended ORDER BY finished_at LIMIT :limit;

-- name: audit_after
SELECT id, at, by, via, action, thing, reason FROM {prefix}audit
 WHERE id > :after ORDER BY id LIMIT :limit;

-- name: list_runs_of_state
-- For states that few runs are in: each by its own index, and not along all runs that ever were.
SELECT *
  FROM {prefix}runs WHERE seq IN (SELECT seq FROM (
    SELECT * FROM (SELECT seq FROM {prefix}runs
                    WHERE :state = 'dead' AND state = 'dead' AND seq < :before
                      AND (:queue IS NULL OR queue = :queue)
                    ORDER BY seq DESC LIMIT :limit) AS dead
    UNION ALL
    SELECT * FROM (SELECT seq FROM {prefix}runs
                    WHERE :state = 'cancelled' AND state = 'cancelled' AND seq < :before
                      AND (:queue IS NULL OR queue = :queue)
                    ORDER BY seq DESC LIMIT :limit) AS cancelled
    UNION ALL
    SELECT * FROM (SELECT seq FROM {prefix}runs
                    WHERE :state = 'paused' AND state = 'paused' AND seq < :before
                      AND (:queue IS NULL OR queue = :queue)
                    ORDER BY seq DESC LIMIT :limit) AS paused
    UNION ALL
    SELECT seq FROM {prefix}runs INDEXED BY {prefix}runs_lease
     WHERE :state = 'running' AND state = 'running' AND seq + 0 < :before
       AND (:queue IS NULL OR queue = :queue)
    UNION ALL
    SELECT seq FROM {prefix}runs INDEXED BY {prefix}runs_claim
     WHERE :state = 'queued' AND state = 'queued' AND seq + 0 < :before
       AND (:queue IS NULL OR queue = :queue)
    UNION ALL
    SELECT seq FROM {prefix}runs INDEXED BY {prefix}runs_due
     WHERE :state = 'waiting' AND state = 'waiting' AND seq + 0 < :before
       AND (:queue IS NULL OR queue = :queue)
    UNION ALL
    SELECT seq FROM {prefix}runs INDEXED BY {prefix}runs_held
     WHERE :state = 'held' AND state = 'held' AND seq + 0 < :before
       AND (:queue IS NULL OR queue = :queue)
    ) AS found ORDER BY seq DESC LIMIT :limit)
 ORDER BY seq DESC;

-- name: count_open
-- No further than the limit, each from the index of its state.
SELECT 'waiting' AS state, count(*) AS runs
  FROM (SELECT 1 FROM {prefix}runs WHERE state = 'waiting'
         ORDER BY due_at LIMIT :limit) AS waiting
UNION ALL
SELECT 'held' AS state, count(*) AS runs
  FROM (SELECT 1 FROM {prefix}runs WHERE state = 'held'
         ORDER BY wanted_key, priority DESC, seq LIMIT :limit) AS held
UNION ALL
SELECT 'queued' AS state, count(*) AS runs
  FROM (SELECT 1 FROM {prefix}runs WHERE state = 'queued'
         ORDER BY queue, priority DESC, due_at, seq LIMIT :limit) AS queued
UNION ALL
SELECT 'running' AS state, count(*) AS runs
  FROM (SELECT 1 FROM {prefix}runs WHERE state = 'running'
         ORDER BY lease_until LIMIT :limit) AS running
UNION ALL
SELECT 'paused' AS state, count(*) AS runs
  FROM (SELECT 1 FROM {prefix}runs WHERE state = 'paused'
         ORDER BY seq LIMIT :limit) AS paused;

-- name: count_ended
SELECT 'succeeded' AS state, count(*) AS runs
  FROM (SELECT 1 FROM {prefix}runs INDEXED BY {prefix}runs_finished
         WHERE state = 'succeeded' AND finished_at >= :since_at LIMIT :limit) AS succeeded
UNION ALL
SELECT 'dead' AS state, count(*) AS runs
  FROM (SELECT 1 FROM {prefix}runs INDEXED BY {prefix}runs_finished
         WHERE state = 'dead' AND finished_at >= :since_at LIMIT :limit) AS dead
UNION ALL
SELECT 'cancelled' AS state, count(*) AS runs
  FROM (SELECT 1 FROM {prefix}runs INDEXED BY {prefix}runs_finished
         WHERE state = 'cancelled' AND finished_at >= :since_at LIMIT :limit) AS cancelled;

-- name: count_rare_runs
-- For states that few runs are in: along the index of the state, whatever else is asked.
SELECT count(*) AS runs FROM (SELECT 1 FROM (
    SELECT 1 FROM {prefix}runs INDEXED BY {prefix}runs_dead
     WHERE :state = 'dead' AND state = 'dead' AND (:job IS NULL OR job = :job)
       AND (:queue IS NULL OR queue = :queue)
       AND (:schedule_id IS NULL OR schedule_id = :schedule_id)
    UNION ALL
    SELECT 1 FROM {prefix}runs INDEXED BY {prefix}runs_cancelled
     WHERE :state = 'cancelled' AND state = 'cancelled' AND (:job IS NULL OR job = :job)
       AND (:queue IS NULL OR queue = :queue)
       AND (:schedule_id IS NULL OR schedule_id = :schedule_id)
    UNION ALL
    SELECT 1 FROM {prefix}runs INDEXED BY {prefix}runs_paused
     WHERE :state = 'paused' AND state = 'paused' AND (:job IS NULL OR job = :job)
       AND (:queue IS NULL OR queue = :queue)
       AND (:schedule_id IS NULL OR schedule_id = :schedule_id)
    UNION ALL
    SELECT 1 FROM {prefix}runs INDEXED BY {prefix}runs_lease
     WHERE :state = 'running' AND state = 'running' AND (:job IS NULL OR job = :job)
       AND (:queue IS NULL OR queue = :queue)
       AND (:schedule_id IS NULL OR schedule_id = :schedule_id)
    UNION ALL
    SELECT 1 FROM {prefix}runs INDEXED BY {prefix}runs_claim
     WHERE :state = 'queued' AND state = 'queued' AND (:job IS NULL OR job = :job)
       AND (:queue IS NULL OR queue = :queue)
       AND (:schedule_id IS NULL OR schedule_id = :schedule_id)
    UNION ALL
    SELECT 1 FROM {prefix}runs INDEXED BY {prefix}runs_due
     WHERE :state = 'waiting' AND state = 'waiting' AND (:job IS NULL OR job = :job)
       AND (:queue IS NULL OR queue = :queue)
       AND (:schedule_id IS NULL OR schedule_id = :schedule_id)
    UNION ALL
    SELECT 1 FROM {prefix}runs INDEXED BY {prefix}runs_held
     WHERE :state = 'held' AND state = 'held' AND (:job IS NULL OR job = :job)
       AND (:queue IS NULL OR queue = :queue)
       AND (:schedule_id IS NULL OR schedule_id = :schedule_id)
    ) AS found LIMIT :limit) AS counted;

-- name: dead_runs
SELECT seq, id, job, error, finished_at FROM {prefix}runs
 WHERE state = 'dead' AND seq < :before ORDER BY seq DESC LIMIT :limit;

-- name: schedule_ids_due
SELECT id FROM {prefix}schedules
 WHERE enabled = 1 AND paused = 0 AND next_fire_at IS NOT NULL AND next_fire_at <= :until_at
 ORDER BY next_fire_at LIMIT :limit;

-- name: recent_durations
-- What the last runs of each job took that succeeded.
SELECT j.value AS job, avg((r.finished_at - r.started_at) / 1000000.0) AS seconds, count(*) AS runs
  FROM json_each(:names) j
  JOIN {prefix}runs r ON r.seq IN (
       SELECT x.seq FROM {prefix}runs x
        WHERE x.job = j.value AND x.state <> 'queued' AND x.state <> 'running'
        ORDER BY x.seq DESC LIMIT :limit)
 WHERE r.state = 'succeeded' AND r.started_at IS NOT NULL
 GROUP BY j.value;

-- name: recent_outcomes
-- What became of the last occurrences of each schedule, and of their runs.
SELECT o.schedule_id, o.occurrence, o.last_occurrence, o.count, o.outcome, o.reason, o.run_id,
       r.state, r.started_at, r.finished_at
  FROM json_each(:ids) i
  JOIN {prefix}occurrences o ON o.schedule_id = i.value
   AND o.occurrence IN (SELECT x.occurrence FROM {prefix}occurrences x
                         WHERE x.schedule_id = i.value ORDER BY x.occurrence DESC LIMIT :limit)
  LEFT JOIN {prefix}runs r ON r.id = o.run_id
 ORDER BY o.schedule_id, o.occurrence DESC;

-- name: broken_schedules
SELECT id, name, error FROM {prefix}schedules
 WHERE error IS NOT NULL AND id > 0 ORDER BY id LIMIT :limit;

-- name: paused_schedules
SELECT id, name, paused_by, paused_at, paused_reason, state FROM {prefix}schedules
 WHERE paused = 1 AND id > 0 ORDER BY id LIMIT :limit;

-- name: broken_jobs
-- A job whose files were taken away is not broken: it has a history and no future.
SELECT name, error FROM {prefix}jobs WHERE error NOT LIKE 'retired: %' ORDER BY name LIMIT :limit;

-- name: queued_jobs
-- Which jobs wait for a worker, among the first of the line.
SELECT job, queue, count(*) AS runs, min(due_at) AS oldest_at
  FROM (SELECT job, queue, due_at FROM {prefix}runs WHERE state = 'queued'
         ORDER BY queue, priority DESC, due_at, seq LIMIT :limit) AS line
 GROUP BY job, queue ORDER BY job, queue;

-- name: stuck_leases
SELECT count(*) AS runs, min(lease_until) AS oldest_at FROM {prefix}runs
 WHERE state = 'running' AND lease_until < :before_at;

-------------------------------------------------------------------------------------- tokens

-- name: insert_token
INSERT INTO {prefix}tokens (id, name, role, hash, created_at, created_by, expires_at)
VALUES (:id, :name, :role, :hash, {now}, :created_by, :expires_at)
RETURNING id, name, role, created_at, created_by, expires_at, revoked_at, revoked_by;

-- name: lock_tokens
-- Held until the end of the transaction: two tokens of one name are made one after the other.
SELECT 1 AS locked;

-- name: live_token_named
SELECT id FROM {prefix}tokens
 WHERE name = :name AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > {now});

-- name: retire_token_name
-- One that has expired gives its name back.
UPDATE {prefix}tokens SET revoked_at = expires_at, revoked_by = 'expired'
 WHERE name = :name AND revoked_at IS NULL AND expires_at <= {now};

-- name: token_by_id
SELECT id, name, role, hash, created_at, created_by, expires_at, revoked_at, revoked_by,
       (revoked_at IS NULL AND (expires_at IS NULL OR expires_at > {now})) AS live
  FROM {prefix}tokens WHERE id = :id;

-- name: list_tokens
SELECT id, name, role, created_at, created_by, expires_at, revoked_at, revoked_by
  FROM {prefix}tokens WHERE id > :after ORDER BY id LIMIT :limit;

-- name: revoke_token
UPDATE {prefix}tokens SET revoked_at = {now}, revoked_by = :by
 WHERE id = :id AND revoked_at IS NULL
RETURNING id, name, role, created_at, created_by, expires_at, revoked_at, revoked_by;

-- name: any_token
-- `live`: whether one of them may be used now.
SELECT count(*) AS tokens,
       coalesce(max(CASE WHEN revoked_at IS NULL AND (expires_at IS NULL OR expires_at > {now})
                         THEN 1 ELSE 0 END), 0) AS live
  FROM {prefix}tokens;

------------------------------------------------------------------------------------- charts

-- name: ended_in_buckets
-- Exact, however many there are: along the index of what has ended, and nothing else is read.
SELECT state, bucket, count(*) AS runs FROM (
    SELECT state, CAST((finished_at - :since_at) / (1000000 * :seconds) AS INTEGER) AS bucket
      FROM {prefix}runs
     WHERE (state = 'succeeded' OR state = 'dead' OR state = 'cancelled')
       AND finished_at >= :since_at AND finished_at < :until_at
) AS ended GROUP BY state, bucket;

-- name: ended_by_job_in_buckets
SELECT job, state, bucket, count(*) AS runs, sum(took) AS seconds FROM (
    SELECT job, state, CAST((finished_at - :since_at) / (1000000 * :seconds) AS INTEGER) AS bucket,
           (finished_at - coalesce(started_at, finished_at)) / 1000000.0 AS took
      FROM {prefix}runs
     WHERE (state = 'succeeded' OR state = 'dead' OR state = 'cancelled')
       AND finished_at >= :since_at AND finished_at < :until_at
) AS ended GROUP BY job, state, bucket ORDER BY job, bucket LIMIT :limit;

-- name: recent_fires
SELECT occurrence, created_at, due_at, started_at
  FROM (SELECT * FROM {prefix}runs WHERE seq > 0 ORDER BY seq DESC LIMIT :limit) AS newest
 WHERE occurrence IS NOT NULL AND retry_of IS NULL;

-- name: durations_of_schedule
SELECT id, state, occurrence, due_at, started_at, finished_at, attempt
  FROM {prefix}runs WHERE schedule_id = :schedule_id ORDER BY seq DESC LIMIT :limit;

-- name: find_schedules
-- The key is a number in every order, so that a page begins after the last one's (key, name).
SELECT id, name, sort_key FROM (
    SELECT id, name, status, CASE :sort
           WHEN 'next' THEN CASE WHEN status = 'ACTIVE' THEN min(next_fire_at, 9007199254740990) ELSE 9007199254740991 END
           WHEN 'last' THEN -coalesce(last_fired_at, 0)
           ELSE 0 END AS sort_key
      FROM (SELECT id, name, next_fire_at, last_fired_at,
                CASE WHEN error IS NOT NULL THEN 'BROKEN' WHEN NOT enabled THEN 'DISABLED'
                WHEN paused THEN 'PAUSED' WHEN next_fire_at IS NULL THEN 'FINISHED'
                ELSE 'ACTIVE' END AS status
              FROM {prefix}schedules
             WHERE (:job IS NULL OR job = :job)
               AND (:words IS NULL OR instr(lower(name), :words) > 0 OR instr(lower(job), :words) > 0)) AS told
) AS sorted
 WHERE (:status IS NULL OR status = :status)
   AND (sort_key > :after_key OR (sort_key = :after_key AND name > :after))
 ORDER BY sort_key, name LIMIT :limit;

------------------------------------------------------------------------------- lists that are searched

-- name: find_jobs
-- Retired jobs are found by that status alone. Which are broken, only who reads the rows can say.
SELECT *
  FROM {prefix}jobs
 WHERE name > :after
   AND (:words IS NULL OR instr(lower(name), :words) > 0 OR instr(lower(description), :words) > 0)
   AND (:queue IS NULL OR queue = :queue)
   AND (:executor IS NULL OR executor = :executor)
   AND (coalesce(error, '') LIKE 'retired: %') = (coalesce(:status, '') = 'retired')
   AND (:status IS NULL OR :status = 'retired'
        OR (:status = 'disabled' AND NOT enabled)
        OR (:status = 'enabled' AND enabled AND error IS NULL))
 ORDER BY name LIMIT :limit;

-- name: schedule_ids_of_jobs
-- The first `each` of every job by name, and how many it has.
SELECT id, job, schedules FROM (
    SELECT id, job, name, count(*) OVER (PARTITION BY job) AS schedules,
           row_number() OVER (PARTITION BY job ORDER BY name) AS place
      FROM {prefix}schedules WHERE job IN (SELECT value FROM json_each(:names))
) AS placed WHERE place <= :each ORDER BY job, name;

-- name: good_versions
-- An error leaves the version of a job as it was: the last good one.
SELECT v.job, v.seen_at FROM {prefix}job_versions v
  JOIN {prefix}jobs j ON j.name = v.job AND j.version = v.version
 WHERE j.name IN (SELECT value FROM json_each(:names));

-- name: ended_by_queue
-- The latest of each state from the index of what has ended, then the latest of all of them.
SELECT queue, count(*) AS runs, min(finished_at) AS first_at FROM (
    SELECT * FROM (
        SELECT * FROM (SELECT queue, finished_at FROM {prefix}runs INDEXED BY {prefix}runs_finished
                        WHERE state = 'succeeded'
                          AND finished_at >= :since_at
                        ORDER BY finished_at DESC LIMIT :limit) AS succeeded
        UNION ALL SELECT * FROM (SELECT queue, finished_at FROM {prefix}runs INDEXED BY {prefix}runs_finished
                        WHERE state = 'dead'
                          AND finished_at >= :since_at
                        ORDER BY finished_at DESC LIMIT :limit) AS dead
        UNION ALL SELECT * FROM (SELECT queue, finished_at FROM {prefix}runs INDEXED BY {prefix}runs_finished
                        WHERE state = 'cancelled'
                          AND finished_at >= :since_at
                        ORDER BY finished_at DESC LIMIT :limit) AS cancelled
    ) AS each ORDER BY finished_at DESC LIMIT :limit
) AS ended GROUP BY queue;

-- name: find_audit
-- Down the numbers, until a page is full.
SELECT id, at, by, via, action, thing, reason, before, after FROM {prefix}audit
 WHERE id < :before
   AND (:by IS NULL OR by = :by)
   AND (:action IS NULL OR action = :action)
   AND (:words IS NULL OR instr(lower(thing), :words) > 0 OR instr(lower(coalesce(reason, '')), :words) > 0)
 ORDER BY id DESC LIMIT :limit;
