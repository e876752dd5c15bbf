-- Every statement that is the same on all engines, in the order of a run's path; dialects.py has the
-- macros. A statement of this name in an engine's queries.sql replaces the one here, and says why.
-- {now} is volatile on PostgreSQL. Where a row is found by it, it stands in a subquery, which is evaluated
-- once and can use an index; where two places must agree, it is {moment}.

-- name: now
SELECT {now} AS now_at;

---------------------------------------------------------------------------------------- fire

-- name: due_schedules
-- By plan key: schedules of one plan stand together.
SELECT {columns schedules}
  FROM {prefix}schedules
 WHERE enabled AND NOT paused AND next_fire_at IS NOT NULL
   AND next_fire_at <= (SELECT {now} + {seconds :ahead_seconds})
 ORDER BY next_fire_at, plan_key LIMIT :limit;

-- name: newest_due_schedules
SELECT {columns schedules}
  FROM {prefix}schedules
 WHERE enabled AND NOT paused AND next_fire_at IS NOT NULL
   AND next_fire_at <= (SELECT {now} + {seconds :ahead_seconds})
 ORDER BY next_fire_at DESC, plan_key DESC LIMIT :limit;

-- name: next_fire_at
SELECT min(next_fire_at) AS next_fire_at FROM {prefix}schedules
 WHERE enabled AND NOT paused AND next_fire_at IS NOT NULL;

-- name: advance_schedules
-- Compare-and-set of the cursor: no row means that another process fired it, or that the schedule was
-- edited, and nothing is inserted. A locked row means that another process is just doing so: it is passed
-- over. A plan that was made ahead waits if the clock was set back.
UPDATE {prefix}schedules AS s
   SET next_fire_at = a.next_fire_at, last_fired_at = coalesce(a.last_fired_at, s.last_fired_at)
  FROM {rows a: id bigint, cursor_at instant, revision bigint, next_fire_at instant, last_fired_at instant}
 WHERE s.id = (SELECT x.id FROM {prefix}schedules AS x
                WHERE x.id = a.id AND x.next_fire_at = a.cursor_at AND x.revision = a.revision
                  AND x.enabled AND NOT x.paused AND x.next_fire_at <= (SELECT {now}) {skip locked})
RETURNING s.id;

-- name: insert_group_occurrences
INSERT INTO {prefix}occurrences (schedule_id, occurrence, last_occurrence, count, outcome, run_id,
       recorded_at)
SELECT schedule_id, occurrence, occurrence, 1, 'fired', id, {now}
  FROM {prefix}runs WHERE seq BETWEEN :first_seq AND :last_seq;

-- name: take_group_slots
INSERT INTO {prefix}slots (key, number, owner_run)
SELECT 'o/' || overlap_key, 1, seq FROM {prefix}runs WHERE seq BETWEEN :first_seq AND :last_seq;

-- name: advance_group
UPDATE {prefix}schedules SET next_fire_at = :next_fire_at, last_fired_at = :cursor_at
 WHERE id IN (SELECT schedule_id FROM {prefix}runs WHERE seq BETWEEN :first_seq AND :last_seq);

-- name: disable_broken_schedules
-- A schedule that cannot be planned leaves the due index, visibly, and delays no other. One that another
-- transaction has locked is left to a later tick.
UPDATE {prefix}schedules AS s
   SET next_fire_at = NULL, error = a.error, state = a.error
  FROM {rows a: id bigint, cursor_at instant, revision bigint, error text}
 WHERE s.id = (SELECT x.id FROM {prefix}schedules AS x
                WHERE x.id = a.id AND x.next_fire_at = a.cursor_at AND x.revision = a.revision {skip locked})
RETURNING s.id;

-- name: allocate_seqs
SELECT nextval('{prefix}runs_seq') AS seq FROM generate_series(1, :count::integer) ORDER BY seq;

-- name: take_slots
-- A key that a run already waits for is not free: the line is first in, first out. A fired run whose
-- jitter or spread has not passed, or that was not promoted yet, stands in line as well.
INSERT INTO {prefix}slots (key, number, owner_run)
SELECT a.key, 1, a.seq
  FROM {rows a: key text, seq bigint}
 WHERE NOT EXISTS (SELECT 1 FROM {prefix}runs AS r WHERE r.state = 'held' AND r.wanted_key = a.key)
   AND NOT EXISTS (SELECT 1 FROM {prefix}runs AS r WHERE r.state = 'waiting' AND r.wanted_key = a.key
                      AND r.attempt = 0 AND r.occurrence IS NOT NULL AND r.retry_of IS NULL)
   AND NOT EXISTS (SELECT 1 FROM {prefix}slots AS s WHERE s.key = a.key AND s.number = 1)
RETURNING owner_run;

-- name: count_held
-- A fired run whose jitter or spread has not passed stands in line as well.
SELECT key, sum(held)::bigint AS held
  FROM (SELECT wanted_key AS key, count(*) AS held FROM {prefix}runs
         WHERE state = 'held' AND wanted_key {in :keys text}
         GROUP BY wanted_key
        UNION ALL
        SELECT wanted_key, count(*) FROM {prefix}runs
         WHERE state = 'waiting' AND attempt = 0 AND occurrence IS NOT NULL AND retry_of IS NULL
           AND wanted_key {in :keys text}
         GROUP BY wanted_key) AS line
 GROUP BY key;

-- name: insert_fired_runs
INSERT INTO {prefix}runs (seq, {names new_run}, {names placed})
SELECT a.seq, {values a.new_run}, {placed a.due_at, {now}, a.wanted_key}
  FROM {rows a: seq bigint, due_at instant, new_run};

-- name: merge_into_held
-- overlap = wait: the one held run stands for this occurrence too. One that is locked is being admitted,
-- paused or cancelled: no row, and the caller holds a run of its own.
UPDATE {prefix}runs AS r SET missed_count = r.missed_count + a.missed_count
  FROM {rows a: key text, missed_count bigint}
 WHERE r.seq = coalesce(
           (SELECT h.seq FROM {prefix}runs AS h WHERE h.state = 'held' AND h.wanted_key = a.key
             ORDER BY h.priority DESC, h.seq LIMIT 1 {skip locked}),
           (SELECT w.seq FROM {prefix}runs AS w
             WHERE w.state = 'waiting' AND w.attempt = 0 AND w.occurrence IS NOT NULL
               AND w.retry_of IS NULL AND w.wanted_key = a.key
             ORDER BY w.seq LIMIT 1 {skip locked}))
RETURNING r.id::text, r.wanted_key AS key;

-- name: insert_occurrences
-- The ledger is the second line of defence; it outlives the run rows.
INSERT INTO {prefix}occurrences ({names occurrences})
SELECT a.schedule_id, a.occurrence, a.last_occurrence, a.count, a.outcome, a.reason, a.run_id, {now}
  FROM {rows a: schedule_id bigint, occurrence instant, last_occurrence instant, count bigint, outcome text,
               reason text, run_id uuid}
{ignore conflicts and repeats occurrences: schedule_id = a.schedule_id, occurrence = a.occurrence};

------------------------------------------------------------------------------------- enqueue

-- name: take_keys
-- On PostgreSQL a key that is not taken is locked all the same, so that it is still there for find_keys.
INSERT INTO {prefix}run_keys AS k (job, key, run_id, until)
SELECT a.job, a.key, a.run_id, {moment} + {seconds a.ttl_seconds}
  FROM {rows a: job text, key text, run_id uuid, ttl_seconds float}
ON CONFLICT (job, key) DO UPDATE SET run_id = excluded.run_id, until = excluded.until
 WHERE k.until <= {moment}
RETURNING job, key, run_id::text;

-- name: find_keys
SELECT k.job, k.key, k.run_id::text FROM {prefix}run_keys AS k
 WHERE (k.job, k.key) IN (SELECT a.jobs, a.keys FROM {lists a: :jobs text, :keys text});

-- name: insert_queues
INSERT INTO {prefix}queues (name) SELECT a.name FROM {rows a: name text}
{ignore conflicts and repeats queues: name = a.name};

------------------------------------------------------------------------------------- promote

-- name: promote_runs
-- A run that still wants a slot goes to held; admit does the rest. The subquery names the state and locks
-- the rows; the UPDATE goes by seq alone, so that no other index can tempt a planner.
UPDATE {prefix}runs
   SET state = CASE WHEN wanted_key IS NULL THEN 'queued' ELSE 'held' END, queued_at = {now}
 WHERE seq {in SELECT seq FROM {prefix}runs WHERE state = 'waiting' AND due_at <= (SELECT {now})
                ORDER BY due_at LIMIT :limit {skip locked}}
RETURNING wanted_key;

-- name: next_due_at
SELECT min(due_at) AS next_due_at FROM {prefix}runs WHERE state = 'waiting';

--------------------------------------------------------------------------------------- admit

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
INSERT INTO {prefix}slots (key, number, owner_run) VALUES (:key, :number, :seq) RETURNING owner_run;

-- name: admit_run
UPDATE {prefix}runs
   SET wanted_key = CASE WHEN wanted_key = 'o/' || overlap_key THEN 'c/' || concurrency_key END,
       state = CASE WHEN wanted_key = 'o/' || overlap_key AND concurrency_key IS NOT NULL
                    THEN 'held' ELSE 'queued' END
 WHERE seq = :seq AND state = 'held' AND wanted_key = :key
RETURNING wanted_key;

-- name: open_queues
-- Pauses of a queue and of all dispatch are durable and seen by the next claim of any process.
SELECT name FROM {prefix}queues
 WHERE NOT paused AND ({empty :queues} OR name {in :queues text})
   AND NOT EXISTS (SELECT 1 FROM {prefix}meta WHERE key = 'dispatch' AND value <> 'on');

-- name: pick_runs
SELECT -priority AS rank, due_at, seq FROM {prefix}runs
 WHERE state = 'queued' AND queue = :queue AND job {in :jobs text}
 ORDER BY priority DESC, due_at, seq LIMIT :limit {skip locked};

-- name: pick_whole_runs
-- pick_runs and claimed_runs at once, where one queue is open: its line is the order of all.
SELECT seq, id::text, job, queue, attempt + 1 AS attempt, failures, lost, max_attempts, args::text, timeout,
       backoff::text, overlap_key, concurrency_key, schedule_id, occurrence, due_at, missed_count,
       cancel_requested_at, correlation_id, trace, priority
  FROM {prefix}runs
 WHERE state = 'queued' AND queue = :queue AND job {in :jobs text}
 ORDER BY priority DESC, due_at, seq LIMIT :limit {skip locked};

--------------------------------------------------------------------------------------- claim

-- name: claim_runs
UPDATE {prefix}runs
   SET state = 'running', attempt = attempt + 1, worker_id = :worker_id, claimed_at = {moment},
       started_at = {moment}, lease_until = {moment} + {seconds :lease_seconds}
 WHERE seq {in :seqs bigint} AND state = 'queued';

-- name: claimed_runs
SELECT {columns claimed_runs} FROM {prefix}runs WHERE seq {in :seqs bigint};

-- name: release_forgotten_runs
-- After a claim whose reply was lost: this worker owns runs that it does not know of.
UPDATE {prefix}runs
   SET state = 'queued', worker_id = NULL, lease_until = NULL
 WHERE state = 'running' AND worker_id = :worker_id AND seq {not in :known bigint}
RETURNING seq;

--------------------------------------------------------------------------------------- renew

-- name: renew_runs
UPDATE {prefix}runs AS r SET lease_until = {now} + {seconds a.lease_seconds}
  FROM {rows a: seq bigint, attempt integer, lease_seconds float}
 WHERE r.seq = a.seq AND {fence r.state = 'running' AND r.attempt = a.attempt}
RETURNING r.seq, r.cancel_requested_at, r.pause_requested_at, true AS renewed;

-- name: cancel_requests
SELECT seq FROM {prefix}runs
 WHERE seq {in fenced :seqs bigint} AND {fence state = 'running' AND cancel_requested_at IS NOT NULL};

-- name: set_progress
-- A row that another transaction has locked keeps the progress it has: the next one says more.
UPDATE {prefix}runs AS r SET progress = a.progress
  FROM {rows a: seq bigint, attempt integer, progress text}
 WHERE r.seq = (SELECT x.seq FROM {prefix}runs AS x
                 WHERE x.seq = a.seq AND {fence x.state = 'running' AND x.attempt = a.attempt} {skip locked});

-- name: insert_logs
INSERT INTO {prefix}logs (run_seq, attempt, "at", level, text)
SELECT a.run_seq, a.attempt, a."at", a.level, a.text
  FROM {rows a: run_seq bigint, attempt integer, at instant, level text, text text};

-- name: lost_first_attempts
-- Those of :seqs that another process has taken over by now, or that have ended: hardly ever any.
SELECT a.seqs AS seq FROM {lists a: :seqs bigint}
 WHERE NOT EXISTS (SELECT 1 FROM {prefix}runs WHERE seq = a.seqs AND attempt = 1 AND state = 'running');

-------------------------------------------------------------------------------------- settle

-- name: succeed_runs
-- settle_runs for what most runs do: succeed at the first attempt and hold no slot.
UPDATE {prefix}runs AS r
   SET state = 'succeeded', finished_at = {moment}, result = a.result, error = NULL,
       started_at = coalesce({moment} - {seconds a.ran_seconds}, r.started_at),
       reason = CASE WHEN r.cancel_requested_at IS NOT NULL OR r.pause_requested_at IS NOT NULL
                     THEN r.reason END,
       pause_requested_at = NULL, lease_until = NULL
  FROM {rows a: seq bigint, ran_seconds float, result json}
 WHERE r.seq = a.seq AND r.attempt = 1 AND r.state = 'running';

-- name: settle_runs
-- Fenced by the attempt number: a worker that lost its lease matches no row and drops its result.
-- A cancel that came meanwhile wins over all but success, a pause over every state that is no end.
UPDATE {prefix}runs AS r
   SET state = CASE WHEN r.cancel_requested_at IS NOT NULL AND a.state <> 'succeeded' THEN 'cancelled'
                    WHEN a.terminal THEN a.state
                    WHEN r.pause_requested_at IS NOT NULL THEN 'paused'
                    ELSE a.state END,
       finished_at = CASE WHEN a.terminal OR r.cancel_requested_at IS NOT NULL THEN {moment} END,
       due_at = CASE WHEN a.state = 'waiting' THEN {moment} + {seconds a.delay_seconds} ELSE r.due_at END,
       started_at = coalesce({moment} - {seconds a.ran_seconds}, r.started_at),
       wanted_key = CASE WHEN a.gives_back
                         THEN coalesce('o/' || r.overlap_key, 'c/' || r.concurrency_key) END,
       failures = a.failures, lost = a.lost, error = a.error, result = a.result,
       reason = coalesce(a.reason, CASE WHEN r.cancel_requested_at IS NOT NULL
                                          OR r.pause_requested_at IS NOT NULL THEN r.reason END),
       pause_requested_at = NULL, lease_until = NULL
  FROM {rows a: seq bigint, attempt integer, state text, terminal boolean, delay_seconds float,
               ran_seconds float, gives_back boolean, failures integer, lost integer, error text,
               reason text, result json, expired_only boolean}
 WHERE r.seq = a.seq AND {fence r.state = 'running' AND r.attempt = a.attempt}
   AND (NOT a.expired_only OR r.lease_until <= {moment})
RETURNING r.seq, r.state, r.worker_id, r.started_at;

-- name: insert_attempts
INSERT INTO {prefix}attempts (run_seq, number, worker_id, started_at, finished_at, outcome, error)
SELECT a.run_seq, a.number, a.worker_id, a.started_at, {now}, a.outcome, a.error
  FROM {rows a: run_seq bigint, number integer, worker_id text, started_at instant, outcome text, error text}
{ignore conflicts attempts: run_seq = a.run_seq, number = a.number};

-- name: release_slots
DELETE FROM {prefix}slots WHERE owner_run {in rows: seq bigint} RETURNING key;

-- name: delay_schedules
SELECT id, expr, last_fired_at FROM {prefix}schedules
 WHERE id {in :ids bigint} AND next_fire_at = :waiting_at;

-- name: restart_delay_schedule
-- A schedule that counts from the end of its run: the run has ended, the clock starts. After a step
-- of the clock it may say less than when the run was fired: the cursor does not go back with it.
UPDATE {prefix}schedules
   SET next_fire_at = CASE WHEN {greatest}({moment}, coalesce(last_fired_at, {moment}))
                                + {seconds :interval_seconds} > ends_at
                           THEN NULL
                           ELSE {greatest}({moment}, coalesce(last_fired_at, {moment}))
                                + {seconds :interval_seconds} END
 WHERE id = :id AND next_fire_at = :waiting_at
RETURNING id, name, next_fire_at;

-- name: recent_ends
SELECT state FROM {prefix}runs
 WHERE schedule_id = :schedule_id AND occurrence IS NOT NULL AND state IN ('succeeded', 'dead')
 ORDER BY seq DESC LIMIT :limit;

-- name: set_schedule_state
UPDATE {prefix}schedules SET state = :state WHERE id = :id;

-- name: insert_events
INSERT INTO {prefix}events ("at", kind, run_id, name, detail)
SELECT {now}, a.kind, a.run_id, a.name, a.detail
  FROM {rows a: kind text, run_id uuid, name text, detail text};

--------------------------------------------------------------------------------------- steps

-- name: fence_run
-- Whether an attempt is still its worker's; no process can rescue it until we commit.
SELECT seq FROM {prefix}runs
 WHERE seq = :seq AND attempt = :attempt AND state = 'running' {lock};

-- name: lock_run_by_seq
SELECT seq FROM {prefix}runs WHERE seq = :seq {lock};

-- name: put_texts
INSERT INTO {prefix}job_texts (hash, text, names, kept_at)
SELECT a.hash, a.text, a.names, {now} FROM {rows a: hash text, text text, names json}
ON CONFLICT (hash) DO UPDATE SET kept_at = excluded.kept_at;

-- name: texts_of
SELECT hash, text FROM {prefix}job_texts WHERE hash {in :hashes text};

-- name: insert_run_files
INSERT INTO {prefix}run_files (run_seq, number, name, hash)
SELECT a.seq, a.number, a.name, a.hash FROM {rows a: seq bigint, number integer, name text, hash text}
{ignore conflicts run_files: run_seq = a.seq, number = a.number};

-- name: run_files
SELECT f.number, f.name, t.text, t.names::text
  FROM {prefix}run_files f JOIN {prefix}job_texts t ON t.hash = f.hash
 WHERE f.run_seq = :seq ORDER BY f.number;

-- name: done_steps
-- An attempt that starts over does not count what other attempts did, only the steps that an operator
-- told it to pass over: see pin_marks.
SELECT DISTINCT number FROM {prefix}step_marks
 WHERE run_seq = :seq AND NOT void AND (:attempt::integer IS NULL OR attempt IN (0, :attempt::integer));

-- name: put_step
INSERT INTO {prefix}steps (run_seq, attempt, number, name, hash, started_at, status)
SELECT :seq::bigint, :attempt::integer, :number::integer, :name::text, :hash::text, {now}, 'running'
{ignore conflicts steps: run_seq = :seq, attempt = :attempt, number = :number};

-- name: end_step
UPDATE {prefix}steps SET status = :status, error = :error, finished_at = {now}
 WHERE run_seq = :seq AND attempt = :attempt AND number = :number AND status = 'running';

-- name: note_step
UPDATE {prefix}steps SET note = :note
 WHERE run_seq = :seq AND attempt = :attempt AND number = :number;

-- name: insert_mark
-- On DuckDB the one statement of ours in the transaction of a step, whose snapshot may be old: an insert
-- and nothing else. A second one would come from the same attempt, which ends its steps one by one.
INSERT INTO {prefix}step_marks (run_seq, number, attempt, finished_at, rows, result)
SELECT :seq::bigint, :number::integer, :attempt::integer, {now}, :rows::bigint, :result::json
{ignore conflicts step_marks: run_seq = :seq, number = :number, attempt = :attempt};

-- name: step_mark
SELECT number FROM {prefix}step_marks
 WHERE run_seq = :seq AND number = :number AND attempt = :attempt;

-- name: renew_worker
-- A step that kept all others from writing kept its worker from renewing, too.
UPDATE {prefix}runs SET lease_until = {now} + {seconds :lease_seconds}
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
SELECT id, run_id::text, job_name, record_type, file_name, started_at AS started,
       finished_at AS finished, status, error_message
  FROM {views}job_runs
 WHERE id >= :first_id OR status = 'failed'
 ORDER BY id DESC LIMIT :limit;

-- name: void_marks
UPDATE {prefix}step_marks SET void = true
 WHERE run_seq = :seq AND number >= :number AND NOT void;

-- name: unpin_marks
DELETE FROM {prefix}step_marks WHERE run_seq = :seq AND attempt = 0;

-- name: pin_marks
-- Passed over, done or not, also by an attempt that starts over: as if attempt 0, which never is, had done
-- them.
INSERT INTO {prefix}step_marks (run_seq, number, attempt, finished_at)
SELECT :seq::bigint, passed.number, 0, {now} FROM generate_series(1, :number::integer - 1) AS passed(number);

-- name: list_steps
SELECT s.attempt, s.number, s.name, s.hash, s.started_at,
       coalesce(m.finished_at, s.finished_at) AS finished_at,
       CASE WHEN m.number IS NOT NULL THEN 'succeeded' ELSE s.status END AS status,
       m.rows, m.result::text, s.error, s.note
  FROM {prefix}steps s
  LEFT JOIN {prefix}step_marks m
         ON m.run_seq = s.run_seq AND m.attempt = s.attempt AND m.number = s.number
 WHERE s.run_seq = :seq ORDER BY s.attempt, s.number LIMIT :limit;

-- name: delete_run_files
DELETE FROM {prefix}run_files WHERE run_seq {in rows: seq bigint};

-- name: delete_steps
DELETE FROM {prefix}steps WHERE run_seq {in rows: seq bigint};

-- name: delete_marks
DELETE FROM {prefix}step_marks WHERE run_seq {in rows: seq bigint};

-- name: old_texts
-- Locked: a run that keeps the same text meanwhile waits, and then makes its own row.
SELECT t.hash FROM {prefix}job_texts AS t
 WHERE t.kept_at < {now} - {seconds :age_seconds}
   AND NOT EXISTS (SELECT 1 FROM {prefix}run_files AS f WHERE f.hash = t.hash)
 LIMIT :limit {skip locked t};

-- name: delete_texts
DELETE FROM {prefix}job_texts WHERE hash {in rows: hash text};

--------------------------------------------------------------------------------------- files

-- name: insert_file
INSERT INTO {prefix}files ({names files}, content)
SELECT :id::text, :name::text, :content_type::text, :size::bigint, :digest::text, :job::text, :run_id::uuid,
       {moment}, {moment} + {seconds :ttl_seconds}, :content::bytea
RETURNING {columns files};

-- name: lock_files
-- Nothing to lock where a transaction that writes is alone until its end.
SELECT 1 AS locked;

-- name: file_usage
-- What has run out takes no room, though its row goes a little later.
SELECT count(*) AS files, coalesce(sum(size), 0)::bigint AS bytes
  FROM {prefix}files WHERE until IS NULL OR until > {now};

-- name: kept_file
SELECT {columns files}
  FROM {prefix}files WHERE id = :id AND (until IS NULL OR until > {now});

-- name: file_content
SELECT content FROM {prefix}files WHERE id = :id AND (until IS NULL OR until > {now});

-- name: list_files
SELECT {columns files} FROM {prefix}files
 WHERE id > :after AND substr(name, 1, length(:prefix::text)) = :prefix
   AND (until IS NULL OR until > {now})
 ORDER BY id LIMIT :limit;

-- name: delete_file
DELETE FROM {prefix}files WHERE id = :id RETURNING name;

-- name: expired_files
SELECT id FROM {prefix}files WHERE until <= (SELECT {now}) ORDER BY until LIMIT :limit;

-------------------------------------------------------------------------------------- rescue

-- name: expired_runs
SELECT {columns claimed_runs}
  FROM {prefix}runs
 WHERE state = 'running' AND lease_until <= (SELECT {now})
   AND seq {not in :without bigint}
 ORDER BY lease_until LIMIT :limit;

-- name: expired_leases
SELECT count(*) AS runs, min(lease_until) AS oldest_at FROM {prefix}runs
 WHERE state = 'running' AND lease_until <= (SELECT {now});

-- name: slot_owners_after
SELECT owner_run FROM {prefix}slots WHERE owner_run > :after ORDER BY owner_run LIMIT :limit;

-- name: sweep_slots
-- Slots whose owner has ended or is gone. Nothing should leave one behind; this repairs it.
DELETE FROM {prefix}slots
 WHERE owner_run {in :owners bigint}
   AND NOT EXISTS (SELECT 1 FROM {prefix}runs AS r
                    WHERE r.seq = owner_run AND r.state NOT IN ('succeeded', 'dead', 'cancelled'))
RETURNING key;

-- name: stranded_delay_schedules
-- Delay schedules that wait for a run which no longer exists (deleted, or never admitted).
SELECT id, expr FROM {prefix}schedules AS s
 WHERE enabled AND NOT paused AND next_fire_at = :waiting_at
   AND NOT EXISTS (SELECT 1 FROM {prefix}runs r WHERE r.schedule_id = s.id
                      AND r.state IN ('waiting', 'held', 'queued', 'running', 'paused'))
 LIMIT :limit;

-------------------------------------------------------------------------- jobs and schedules

-- name: put_jobs
-- Of two versions the later one wins; the same version keeps its instant.
INSERT INTO {prefix}jobs AS j ({names new_job}, version_at)
SELECT {values a.new_job}, {now} FROM {rows a: new_job}
ON CONFLICT (name) DO UPDATE SET {set new_job from excluded}, version_at = excluded.version_at
 WHERE j.version <> excluded.version OR j.error IS DISTINCT FROM excluded.error
    OR j.enabled <> excluded.enabled;

-- name: jobs_named
SELECT {columns jobs}
  FROM {prefix}jobs WHERE name {in :names text};

-- name: list_jobs
SELECT {columns jobs}
  FROM {prefix}jobs WHERE name > :after ORDER BY name LIMIT :limit;

-- name: insert_schedules
INSERT INTO {prefix}schedules ({names new_schedule}, paused, created_at)
SELECT {values a.new_schedule}, false, {now} FROM {rows a: new_schedule}
{ignore conflicts schedules: name = a.name}
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
SELECT {columns schedules} FROM {prefix}schedules WHERE name {in :names text};

-- name: schedules_by_id
SELECT {columns schedules} FROM {prefix}schedules WHERE id {in :ids bigint};

-- name: lock_schedule
SELECT {columns schedules} FROM {prefix}schedules WHERE name = :name {lock};

-- name: lock_schedules
SELECT {columns schedules} FROM {prefix}schedules WHERE id {in :ids bigint} ORDER BY id {lock};

-- name: active_schedules
SELECT {columns schedules} FROM {prefix}schedules WHERE NOT paused ORDER BY id LIMIT :limit {lock};

-- name: list_schedules
SELECT {columns schedules} FROM {prefix}schedules
 WHERE name > :after AND (:job::text IS NULL OR job = :job::text) ORDER BY name LIMIT :limit;

-- name: pause_schedule
UPDATE {prefix}schedules
   SET paused = true, paused_by = :by, paused_at = {now}, paused_reason = :reason, state = :state
 WHERE id = :id AND NOT paused
RETURNING {columns schedules};

-- name: pause_again
-- The latest pause counts, also of a schedule that was not resumed since the one before.
UPDATE {prefix}schedules
   SET paused = true, paused_by = :by, paused_at = {now}, paused_reason = :reason, state = :state
 WHERE id = :id AND paused
RETURNING {columns schedules};

-- name: resume_schedule
UPDATE {prefix}schedules
   SET paused = false, paused_by = NULL, paused_at = NULL, paused_reason = NULL,
       next_fire_at = :next_fire_at, state = :state
 WHERE id = :id AND paused
RETURNING {columns schedules};

-- name: paused_because
SELECT id, name FROM {prefix}schedules
 WHERE paused AND paused_reason LIKE :mark AND id > :after ORDER BY id LIMIT :limit;

-- name: drop_schedule
DELETE FROM {prefix}schedules WHERE id = :id RETURNING id;

-- name: insert_schedule_changes
INSERT INTO {prefix}schedule_changes (schedule_id, name, "at", "by", action, reason, before, after)
SELECT a.schedule_id, a.name, {now}, a."by", a.action, a.reason, a.before, a.after
  FROM {rows a: schedule_id bigint, name text, by text, action text, reason text, before json, after json};

-- name: list_schedule_changes
SELECT id, schedule_id, name, "at", "by", action, reason, before::text, after::text
  FROM {prefix}schedule_changes
 WHERE schedule_id = :schedule_id AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: dropped_schedule
-- The last of its name that was dropped.
SELECT id, schedule_id, name, "at", "by", action, reason, before::text, after::text
  FROM {prefix}schedule_changes
 WHERE name = :name AND action = 'drop' ORDER BY id DESC LIMIT 1;

-- name: occurrence_at
SELECT {columns occurrences}
  FROM {prefix}occurrences
 WHERE schedule_id = :schedule_id AND occurrence <= :instant AND last_occurrence >= :instant
 ORDER BY occurrence DESC LIMIT 1;

-- name: slot_owners
SELECT {columns runs}
  FROM {prefix}runs
 WHERE seq IN (SELECT owner_run FROM {prefix}slots WHERE key = :key ORDER BY number LIMIT 100);

-- name: list_occurrences
SELECT {columns occurrences}
  FROM {prefix}occurrences
 WHERE schedule_id = :schedule_id AND occurrence < :before ORDER BY occurrence DESC LIMIT :limit;

------------------------------------------------------------------------------- jobs of files

-- name: lock_job
SELECT {columns jobs} FROM {prefix}jobs WHERE name = :name {lock};

-- name: forget_versions
DELETE FROM {prefix}job_versions
 WHERE job = :job AND version NOT IN (SELECT version FROM {prefix}job_versions
                                       WHERE job = :job ORDER BY seen_at DESC LIMIT :keep);

-- name: put_file_jobs
INSERT INTO {prefix}jobs ({names new_job}, version_at)
SELECT {values a.new_job}, a.version_at FROM {rows a: new_job, version_at instant}
ON CONFLICT (name) DO UPDATE SET {set new_job from excluded}, version_at = excluded.version_at;

-- name: set_job_error
UPDATE {prefix}jobs SET error = :error, version_at = :version_at
 WHERE name = :name AND source = 'file';

-- name: retire_job
UPDATE {prefix}jobs SET enabled = false, error = :error, version_at = {now}
 WHERE name = :name AND source = 'file' AND origin = :origin;

-- name: file_jobs
SELECT name, version, error, version_at FROM {prefix}jobs
 WHERE source = 'file' AND origin = :origin AND name > :after ORDER BY name LIMIT :limit;

-- name: live_workers
SELECT id, origin, jobs::text FROM {prefix}workers
 WHERE seen_at >= (SELECT {now}) - {seconds :live_seconds} ORDER BY id LIMIT :limit;

-- name: unstarted_retired_runs
-- Runs that no worker will ever take, newest first: to end the first in line would let in the next.
SELECT r.id::text FROM {prefix}jobs AS j JOIN {prefix}runs AS r ON r.job = j.name
 WHERE j.source = 'file' AND j.origin = :origin AND j.error LIKE 'retired: %'
   AND r.state IN ('waiting', 'held', 'queued', 'paused')
 ORDER BY r.seq DESC LIMIT :limit;

-- name: shared_jobs
-- SQL jobs that a statement made. Every worker may serve them.
SELECT {columns jobs}
  FROM {prefix}jobs WHERE source = 'api' AND executor = 'sql' ORDER BY name LIMIT :limit;

-- name: retired_shared_jobs
SELECT name FROM {prefix}jobs
 WHERE source = 'api' AND executor = 'sql' AND error LIKE 'retired: %' ORDER BY name LIMIT :limit;

-- name: retire_shared_job
UPDATE {prefix}jobs SET enabled = false, error = :error, version_at = {now}
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
SELECT schedule_id, count(*) AS running FROM {prefix}runs {index runs_lease}
 WHERE state = 'running' AND schedule_id IS NOT NULL GROUP BY schedule_id;

------------------------------------------------------------------ control: what operators do

-- name: run_by_id
SELECT {columns runs} FROM {prefix}runs WHERE {run :id};

-- name: run_ids_between
SELECT id FROM {prefix}runs WHERE id BETWEEN :low AND :high ORDER BY id LIMIT :limit;

-- name: lock_run
SELECT {columns runs} FROM {prefix}runs WHERE {run :id} {lock};

-- name: run_by_seq
SELECT {columns runs}
  FROM {prefix}runs WHERE seq = :seq;

-- name: cancel_run
UPDATE {prefix}runs
   SET state = 'cancelled', finished_at = {now}, reason = :reason, cancel_requested_at = {now},
       wanted_key = coalesce('o/' || overlap_key, 'c/' || concurrency_key)
 WHERE seq = :seq AND state IN ('waiting', 'held', 'queued', 'paused')
RETURNING state;

-- name: request_cancel
-- Its worker ends it, or the process that rescues it.
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
DELETE FROM {prefix}runs WHERE seq {in rows: seq bigint} AND state <> 'running'
RETURNING seq, id::text;

-- name: delete_attempts
DELETE FROM {prefix}attempts WHERE run_seq {in rows: seq bigint};

-- name: delete_logs
DELETE FROM {prefix}logs WHERE run_seq {in rows: seq bigint};

-- name: delete_keys
DELETE FROM {prefix}run_keys WHERE run_id {in rows: id uuid};

-- name: pause_queue
INSERT INTO {prefix}queues (name, paused, reason, paused_by, paused_at)
VALUES (:name, true, :reason, :by, {now})
ON CONFLICT (name) DO UPDATE
   SET paused = true, reason = excluded.reason, paused_by = excluded.paused_by,
       paused_at = excluded.paused_at;

-- name: resume_queue
UPDATE {prefix}queues SET paused = false, reason = NULL, paused_by = NULL, paused_at = NULL
 WHERE name = :name AND paused
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
INSERT INTO {prefix}audit ("at", "by", via, action, thing, reason, before, after)
SELECT {now}, a."by", a.via, a.action, a.thing, a.reason, a.before, a.after
  FROM {rows a: by text, via text, action text, thing text, reason text, before text, after text};

-- name: list_audit
SELECT id, "at", "by", via, action, thing, reason, before, after FROM {prefix}audit
 WHERE id < :before ORDER BY id DESC LIMIT :limit;

-------------------------------------------------------------------------------- control rows

-- name: ask
INSERT INTO {views}control (statement, requested_by) VALUES (:statement, :requested_by);

-- name: asked_rows
SELECT id, statement, requested_by, role FROM {views}control
 WHERE status = 'asked' ORDER BY id LIMIT :limit;

-- name: lock_asked_row
SELECT id FROM {views}control WHERE id = :id AND status = 'asked';

-- name: lock_words
-- Nothing to lock where a transaction that writes is alone until its end.
SELECT 1 AS locked;

-- name: waiting_words
-- Rows that may ask for this of a schedule; the caller reads what exactly they ask for.
SELECT id, statement, requested_by, role FROM {views}control
 WHERE status = 'asked' AND length(statement) <= :longest
   AND lower(statement) LIKE '%' || lower(:verb::text) || '%schedule%' ORDER BY id LIMIT :limit;

-- name: answer_row
UPDATE {views}control
   SET status = :status, answered_at = {now}, statement = :kept, rows = :rows::json, more = :more,
       error = :error
 WHERE id = :id AND status = 'asked'
RETURNING id;

-- name: old_answered_rows
SELECT id FROM {views}control
 WHERE status <> 'asked'
   AND (answered_at < (SELECT {now}) - {seconds :age_seconds}
        OR id <= (SELECT id FROM {views}control ORDER BY id DESC LIMIT 1 OFFSET :keep))
 ORDER BY id LIMIT :limit;

-- name: delete_answered_rows
DELETE FROM {views}control WHERE id {in rows: id bigint} AND status <> 'asked';

--------------------------------------------------------------------------- workers and locks

-- name: put_worker
INSERT INTO {prefix}workers (id, host, pid, version, tzdata, origin, jobs, queues, slots, stuck,
       started_at, seen_at)
SELECT a.id, a.host, a.pid, a.version, a.tzdata, a.origin, a.jobs, a.queues, a.slots, a.stuck,
       {moment}, {moment}
  FROM {rows a: id text, host text, pid bigint, version text, tzdata text, origin text, jobs json,
               queues json, slots integer, stuck integer}
ON CONFLICT (id) DO UPDATE
   SET jobs = excluded.jobs, queues = excluded.queues, slots = excluded.slots,
       stuck = excluded.stuck, seen_at = excluded.seen_at;

-- name: forget_worker
DELETE FROM {prefix}workers WHERE id {in rows: id text};

-- name: forget_old_workers
DELETE FROM {prefix}workers AS w USING {rows a: age_seconds float}
 WHERE w.seen_at < (SELECT {now}) - {seconds a.age_seconds}
RETURNING w.id;

-- name: list_workers
SELECT id, host, pid, version, tzdata, origin, jobs::text, queues::text, slots, stuck, started_at,
       seen_at,
       (SELECT count(*) FROM {prefix}runs r WHERE r.state = 'running' AND r.worker_id = w.id) AS running
  FROM {prefix}workers w WHERE id > :after ORDER BY id LIMIT :limit;

-- name: acquire_lock
-- The token rises with each holder, also after a release: the row stays.
INSERT INTO {prefix}locks AS l (name, owner, token, until)
SELECT a.name, a.owner, 1, {moment} + {seconds a.ttl_seconds}
  FROM {rows a: name text, owner text, ttl_seconds float}
ON CONFLICT (name) DO UPDATE
   SET owner = excluded.owner, token = l.token + 1, until = excluded.until
 WHERE l.until <= {moment}
RETURNING token;

-- name: extend_lock
UPDATE {prefix}locks AS l SET until = {moment} + {seconds a.ttl_seconds}
  FROM {rows a: name text, token bigint, ttl_seconds float}
 WHERE l.name = a.name AND l.token = a.token AND l.until > {moment}
RETURNING l.token;

-- name: release_lock
UPDATE {prefix}locks AS l SET until = {moment}, owner = NULL
  FROM {rows a: name text, token bigint}
 WHERE l.name = a.name AND l.token = a.token AND l.until > {moment}
RETURNING l.token;

-- name: list_locks
SELECT name, owner, token, until FROM {prefix}locks
 WHERE name > :after AND until > (SELECT {now}) ORDER BY name LIMIT :limit;

---------------------------------------------------------------------------------------- read

-- name: list_runs
SELECT {columns runs}
  FROM {prefix}runs
 WHERE seq < :before AND (:state::text IS NULL OR state = :state)
   AND (:queue::text IS NULL OR queue = :queue)
 ORDER BY seq DESC LIMIT :limit;

-- name: recent_runs_of_job
-- Among the newest runs of all: where a job has many, they are here.
SELECT {columns runs}
  FROM (SELECT * FROM {prefix}runs WHERE seq < :before ORDER BY seq DESC LIMIT :recent) AS r
 WHERE job = :job AND (:state::text IS NULL OR state = :state) AND (:queue::text IS NULL OR queue = :queue)
 ORDER BY seq DESC LIMIT :limit;

-- name: list_runs_of_job
-- The index by job does not know what runs, which is little, and what is queued, which is looked
-- for in its line (`seq + 0`: not among all runs that ever were).
WITH recent AS (
    SELECT * FROM (
        SELECT seq FROM {prefix}runs
         WHERE job = :job AND seq < :before AND state <> 'queued' AND state <> 'running'
           AND (:state::text IS NULL OR state = :state) AND (:queue::text IS NULL OR queue = :queue)
         ORDER BY seq DESC LIMIT :limit) AS ended
    UNION ALL
    SELECT seq FROM {prefix}runs {index runs_lease}
     WHERE state = 'running' AND job = :job AND seq + 0 < :before
       AND coalesce(:state::text, 'running') = 'running' AND (:queue::text IS NULL OR queue = :queue)
    UNION ALL
    SELECT seq FROM {prefix}runs {index runs_claim}
     WHERE state = 'queued' AND job = :job AND seq + 0 < :before
       AND coalesce(:state::text, 'queued') = 'queued' AND (:queue::text IS NULL OR queue = :queue)
)
SELECT {columns runs}
  FROM {prefix}runs
 WHERE seq IN (SELECT seq FROM recent ORDER BY seq DESC LIMIT :limit)
 ORDER BY seq DESC;

-- name: list_runs_of_schedule
SELECT {columns runs}
  FROM {prefix}runs
 WHERE schedule_id = :schedule_id AND seq < :before AND (:state::text IS NULL OR state = :state)
   AND (:queue::text IS NULL OR queue = :queue)
   AND (:job::text IS NULL OR job = :job)
 ORDER BY seq DESC LIMIT :limit;

-- name: count_matching_runs
-- No further than the limit: the caller wants to know how many, and not to wait for it.
SELECT count(*) AS runs FROM (
    SELECT 1 FROM {prefix}runs
     WHERE state = :state AND (:job::text IS NULL OR job = :job)
       AND (:queue::text IS NULL OR queue = :queue)
       AND (:schedule_id::bigint IS NULL OR schedule_id = :schedule_id)
     LIMIT :limit) AS matching;

-- name: list_attempts
SELECT run_seq, number, worker_id, started_at, finished_at, outcome, error
  FROM {prefix}attempts WHERE run_seq = :seq ORDER BY number LIMIT :limit;

-- name: attempts_above
-- Those of several runs, each above a number of its own, in their order.
SELECT a.run_seq, a.number, a.worker_id, a.started_at, a.finished_at, a.outcome, a.error
  FROM {lists s: :seqs bigint, :numbers bigint}
  JOIN {prefix}attempts AS a ON a.run_seq = s.seqs AND a.number > s.numbers
 ORDER BY a.run_seq, a.number LIMIT :limit;

-- name: list_logs
SELECT id, attempt, "at", level, text FROM {prefix}logs
 WHERE run_seq = :seq AND id > :after ORDER BY id LIMIT :limit;

-- name: tail_logs
SELECT id, attempt, "at", level, text FROM {prefix}logs
 WHERE run_seq = :seq AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: list_events
SELECT id, "at", kind, run_id::text, name, detail FROM {prefix}events
 WHERE id < :before AND (:run_id::uuid IS NULL OR run_id = :run_id) ORDER BY id DESC LIMIT :limit;

-- name: count_runs
-- One count per state, each from the index of that state where there is one.
SELECT state, runs FROM (
    SELECT 'waiting' AS state, count(*) AS runs FROM {prefix}runs WHERE state = 'waiting'
    UNION ALL SELECT 'held', count(*) FROM {prefix}runs WHERE state = 'held'
    UNION ALL SELECT 'queued', count(*) FROM {prefix}runs WHERE state = 'queued'
    UNION ALL SELECT 'running', count(*) FROM {prefix}runs WHERE state = 'running'
    UNION ALL SELECT 'paused', count(*) FROM {prefix}runs WHERE state = 'paused'
    UNION ALL SELECT 'succeeded', count(*) FROM {prefix}runs WHERE state = 'succeeded'
    UNION ALL SELECT 'dead', count(*) FROM {prefix}runs WHERE state = 'dead'
    UNION ALL SELECT 'cancelled', count(*) FROM {prefix}runs WHERE state = 'cancelled'
) AS counted WHERE runs > 0;

-- name: count_schedules
SELECT count(*) AS schedules, count(*) FILTER (WHERE paused) AS paused,
       count(*) FILTER (WHERE error IS NOT NULL) AS broken FROM {prefix}schedules;

------------------------------------------------------------------------------------- figures

-- name: queue_names
SELECT name FROM {prefix}queues ORDER BY name LIMIT :limit;

-- name: queue_depths
-- What waits or runs, each state from its own index and no further than `depth`.
SELECT queue, state, count(*) AS runs FROM (
    SELECT * FROM (SELECT queue, state FROM {prefix}runs WHERE state = 'waiting' LIMIT :depth) AS waiting
    UNION ALL
    SELECT * FROM (SELECT queue, state FROM {prefix}runs WHERE state = 'held' LIMIT :depth) AS held
    UNION ALL
    SELECT * FROM (SELECT queue, state FROM {prefix}runs WHERE state = 'queued' LIMIT :depth) AS queued
    UNION ALL
    SELECT * FROM (SELECT queue, state FROM {prefix}runs WHERE state = 'running' LIMIT :depth) AS running
    UNION ALL
    SELECT * FROM (SELECT queue, state FROM {prefix}runs WHERE state = 'paused' LIMIT :depth) AS paused
) AS counted GROUP BY queue, state;

-- name: oldest_queued
-- From one priority of a queue to the next by the index of claims: it takes as long as there are
-- priorities, not runs.
WITH RECURSIVE line(queue, priority) AS (
    SELECT q.name, (SELECT priority FROM {prefix}runs WHERE state = 'queued' AND queue = q.name
                     ORDER BY priority DESC LIMIT 1)
      FROM {prefix}queues AS q
    UNION ALL
    SELECT l.queue, (SELECT priority FROM {prefix}runs
                      WHERE state = 'queued' AND queue = l.queue AND priority < l.priority
                      ORDER BY priority DESC LIMIT 1)
      FROM line AS l WHERE l.priority IS NOT NULL
)
SELECT queue, min((SELECT due_at FROM {prefix}runs AS r
                    WHERE r.state = 'queued' AND r.queue = l.queue AND r.priority = l.priority
                    ORDER BY due_at LIMIT 1)) AS due_at
  FROM line AS l WHERE l.priority IS NOT NULL GROUP BY queue;

-- name: schedule_statuses
SELECT status, count(*) AS schedules FROM (
    SELECT CASE WHEN error IS NOT NULL THEN 'BROKEN' WHEN NOT enabled THEN 'DISABLED'
            WHEN paused THEN 'PAUSED' WHEN next_fire_at IS NULL THEN 'FINISHED'
            ELSE 'ACTIVE' END AS status
      FROM {prefix}schedules
) AS counted GROUP BY status;

-- name: last_successes
-- Of each job's latest runs only: one that has failed for long is not searched through.
SELECT j.name AS job,
       (SELECT max(finished_at) FROM (
            SELECT state, finished_at FROM {prefix}runs AS r
             WHERE r.job = j.name AND r.state <> 'queued' AND r.state <> 'running'
             ORDER BY r.seq DESC LIMIT :recent) AS latest WHERE state = 'succeeded') AS finished_at
  FROM (SELECT name FROM {prefix}jobs ORDER BY name LIMIT :jobs) AS j;

-- name: count_live_workers
SELECT count(*) AS workers FROM {prefix}workers
 WHERE seen_at >= (SELECT {now}) - {seconds :live_seconds};

--------------------------------------------------------------------------------------- prune

-- name: old_runs
-- Older than its state's retention and not among the last of its job that wait or have ended.
SELECT r.seq FROM {prefix}runs AS r
 WHERE r.state = :state AND r.finished_at < (SELECT {now}) - {seconds :age_seconds}
   AND {terminal r.state}
   AND (SELECT count(*) FROM (SELECT 1 FROM {prefix}runs AS newer
                               WHERE newer.job = r.job AND newer.seq > r.seq
                                 AND newer.state <> 'queued' AND newer.state <> 'running'
                               LIMIT :keep_last) AS n) >= :keep_last
 ORDER BY r.finished_at LIMIT :limit {skip locked};

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
SELECT schedule_id, occurrence, last_occurrence, outcome, run_id::text
  FROM {prefix}occurrences WHERE count IS NULL LIMIT 1;

-- name: count_occurrences
UPDATE {prefix}occurrences AS o SET count = a.count
  FROM {rows a: schedule_id bigint, occurrence instant, count bigint}
 WHERE o.schedule_id = a.schedule_id AND o.occurrence = a.occurrence AND o.count IS NULL;

-- name: count_run
UPDATE {prefix}runs SET missed_count = :count WHERE {run :run_id};

-- name: foldable_occurrences
-- The ledger outlives the runs, and is never touched past the cursor.
SELECT o.occurrence, o.last_occurrence, o.count, o.outcome, o.reason
  FROM {prefix}occurrences AS o
 WHERE o.schedule_id = :schedule_id
   AND o.count IS NOT NULL
   AND (o.recorded_at < (SELECT {now}) - {seconds :age_seconds}
        OR o.occurrence <= (SELECT occurrence FROM {prefix}occurrences
                             WHERE schedule_id = :schedule_id
                             ORDER BY occurrence DESC LIMIT 1 OFFSET :keep_rows))
   AND o.last_occurrence < coalesce((SELECT next_fire_at FROM {prefix}schedules WHERE id = :schedule_id),
                                    o.last_occurrence + {seconds 1})
 ORDER BY o.occurrence LIMIT :limit {lock o};

-- name: delete_occurrences
DELETE FROM {prefix}occurrences AS o USING {rows a: schedule_id bigint, occurrence instant}
 WHERE o.schedule_id = a.schedule_id AND o.occurrence = a.occurrence;

-- name: stretch_occurrences
UPDATE {prefix}occurrences AS o
   SET last_occurrence = a.last_occurrence, count = a.count, reason = a.reason, run_id = NULL
  FROM {rows a: schedule_id bigint, occurrence instant, last_occurrence instant, count bigint, reason text}
 WHERE o.schedule_id = a.schedule_id AND o.occurrence = a.occurrence;

-------------------------------------------------------------------- surfaces: what they show

-- name: follow_position
SELECT coalesce((SELECT max(seq) FROM {prefix}runs), 0) AS seq,
       coalesce((SELECT max(id) FROM {prefix}audit), 0) AS audit_id;

-- name: brief_runs_after
SELECT {columns brief_runs}
  FROM {prefix}runs WHERE seq > :after ORDER BY seq LIMIT :limit;

-- name: brief_running
SELECT {columns brief_runs}
  FROM {prefix}runs WHERE state = 'running' ORDER BY lease_until LIMIT :limit;

-- name: brief_runs
SELECT {columns brief_runs}
  FROM {prefix}runs WHERE seq {in :seqs bigint};

-- name: brief_ended
-- Those that ended in a range of time, the latest first; each state by its part of the index.
SELECT {columns brief_runs} FROM (
    SELECT * FROM (SELECT {names brief_runs} FROM {prefix}runs {index runs_finished}
                    WHERE state = 'succeeded' AND {terminal state}
                      AND finished_at >= :since_at AND finished_at < :until_at
                    ORDER BY finished_at DESC LIMIT :limit) AS succeeded
    UNION ALL
    SELECT * FROM (SELECT {names brief_runs} FROM {prefix}runs {index runs_finished}
                    WHERE state = 'dead' AND {terminal state}
                      AND finished_at >= :since_at AND finished_at < :until_at
                    ORDER BY finished_at DESC LIMIT :limit) AS dead
    UNION ALL
    SELECT * FROM (SELECT {names brief_runs} FROM {prefix}runs {index runs_finished}
                    WHERE state = 'cancelled' AND {terminal state}
                      AND finished_at >= :since_at AND finished_at < :until_at
                    ORDER BY finished_at DESC LIMIT :limit) AS cancelled
) AS ended ORDER BY finished_at DESC LIMIT :limit;

-- name: ended_from
-- Those that ended first from an instant on, of which some had begun before it. No index knows both
-- ends of a run, so no more than the limit are read.
SELECT seq, started_at, finished_at FROM (
    SELECT * FROM (SELECT seq, started_at, finished_at FROM {prefix}runs {index runs_finished}
                    WHERE state = 'succeeded' AND {terminal state} AND finished_at >= :from_at
                    ORDER BY finished_at LIMIT :limit) AS succeeded
    UNION ALL
    SELECT * FROM (SELECT seq, started_at, finished_at FROM {prefix}runs {index runs_finished}
                    WHERE state = 'dead' AND {terminal state} AND finished_at >= :from_at
                    ORDER BY finished_at LIMIT :limit) AS dead
    UNION ALL
    SELECT * FROM (SELECT seq, started_at, finished_at FROM {prefix}runs {index runs_finished}
                    WHERE state = 'cancelled' AND {terminal state} AND finished_at >= :from_at
                    ORDER BY finished_at LIMIT :limit) AS cancelled
) AS ended ORDER BY finished_at LIMIT :limit;

-- name: audit_after
SELECT id, "at", "by", via, action, thing, reason FROM {prefix}audit
 WHERE id > :after ORDER BY id LIMIT :limit;

-- name: list_runs_of_state
-- For states that few runs are in: each by its own index, and not along all runs that ever were.
SELECT {columns runs}
  FROM {prefix}runs WHERE seq IN (SELECT seq FROM (
    SELECT * FROM (SELECT seq FROM {prefix}runs
                    WHERE :state = 'dead' AND state = 'dead' AND seq < :before
                      AND (:queue::text IS NULL OR queue = :queue)
                    ORDER BY seq DESC LIMIT :limit) AS dead
    UNION ALL
    SELECT * FROM (SELECT seq FROM {prefix}runs
                    WHERE :state = 'cancelled' AND state = 'cancelled' AND seq < :before
                      AND (:queue::text IS NULL OR queue = :queue)
                    ORDER BY seq DESC LIMIT :limit) AS cancelled
    UNION ALL
    SELECT * FROM (SELECT seq FROM {prefix}runs
                    WHERE :state = 'paused' AND state = 'paused' AND seq < :before
                      AND (:queue::text IS NULL OR queue = :queue)
                    ORDER BY seq DESC LIMIT :limit) AS paused
    UNION ALL
    SELECT seq FROM {prefix}runs {index runs_lease}
     WHERE :state = 'running' AND state = 'running' AND seq + 0 < :before
       AND (:queue::text IS NULL OR queue = :queue)
    UNION ALL
    SELECT seq FROM {prefix}runs {index runs_claim}
     WHERE :state = 'queued' AND state = 'queued' AND seq + 0 < :before
       AND (:queue::text IS NULL OR queue = :queue)
    UNION ALL
    SELECT seq FROM {prefix}runs {index runs_due}
     WHERE :state = 'waiting' AND state = 'waiting' AND seq + 0 < :before
       AND (:queue::text IS NULL OR queue = :queue)
    UNION ALL
    SELECT seq FROM {prefix}runs {index runs_held}
     WHERE :state = 'held' AND state = 'held' AND seq + 0 < :before
       AND (:queue::text IS NULL OR queue = :queue)
    ) AS listed ORDER BY seq DESC LIMIT :limit)
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
  FROM (SELECT 1 FROM {prefix}runs {index runs_finished}
         WHERE state = 'succeeded' AND {terminal state}
           AND finished_at >= :since_at LIMIT :limit) AS succeeded
UNION ALL
SELECT 'dead' AS state, count(*) AS runs
  FROM (SELECT 1 FROM {prefix}runs {index runs_finished}
         WHERE state = 'dead' AND {terminal state}
           AND finished_at >= :since_at LIMIT :limit) AS dead
UNION ALL
SELECT 'cancelled' AS state, count(*) AS runs
  FROM (SELECT 1 FROM {prefix}runs {index runs_finished}
         WHERE state = 'cancelled' AND {terminal state}
           AND finished_at >= :since_at LIMIT :limit) AS cancelled;

-- name: count_rare_runs
-- For states that few runs are in: along the index of the state, whatever else is asked.
SELECT count(*) AS runs FROM (SELECT 1 FROM (
    SELECT job, queue, schedule_id FROM {prefix}runs {index runs_dead}
     WHERE :state = 'dead' AND state = 'dead'
    UNION ALL
    SELECT job, queue, schedule_id FROM {prefix}runs {index runs_cancelled}
     WHERE :state = 'cancelled' AND state = 'cancelled'
    UNION ALL
    SELECT job, queue, schedule_id FROM {prefix}runs {index runs_paused}
     WHERE :state = 'paused' AND state = 'paused'
    UNION ALL
    SELECT job, queue, schedule_id FROM {prefix}runs {index runs_lease}
     WHERE :state = 'running' AND state = 'running'
    UNION ALL
    SELECT job, queue, schedule_id FROM {prefix}runs {index runs_claim}
     WHERE :state = 'queued' AND state = 'queued'
    UNION ALL
    SELECT job, queue, schedule_id FROM {prefix}runs {index runs_due}
     WHERE :state = 'waiting' AND state = 'waiting'
    UNION ALL
    SELECT job, queue, schedule_id FROM {prefix}runs {index runs_held}
     WHERE :state = 'held' AND state = 'held'
    ) AS rare
    WHERE (:job::text IS NULL OR job = :job) AND (:queue::text IS NULL OR queue = :queue)
      AND (:schedule_id::bigint IS NULL OR schedule_id = :schedule_id)
    LIMIT :limit) AS counted;

-- name: dead_runs
SELECT seq, id::text, job, error, finished_at FROM {prefix}runs
 WHERE state = 'dead' AND seq < :before ORDER BY seq DESC LIMIT :limit;

-- name: schedule_ids_due
SELECT id FROM {prefix}schedules
 WHERE enabled AND NOT paused AND next_fire_at IS NOT NULL AND next_fire_at <= :until_at
 ORDER BY next_fire_at LIMIT :limit;

-- name: recent_durations
-- What the last runs of each job took that succeeded. An array, so that only the index by job has
-- the order: along all runs that ever were, a rare job would be searched for long.
SELECT j.names AS job, avg(({micros r.finished_at} - {micros r.started_at}) / 1000000.0)::float8 AS seconds,
       count(*) AS runs
  FROM {lists j: :names text}
  JOIN LATERAL (SELECT state, started_at, finished_at FROM {prefix}runs
                 WHERE job = ANY (ARRAY[j.names]) AND state <> 'queued' AND state <> 'running'
                 ORDER BY job DESC, seq DESC LIMIT :limit) AS r ON true
 WHERE r.state = 'succeeded' AND r.started_at IS NOT NULL
 GROUP BY j.names;

-- name: recent_outcomes
-- What became of the last occurrences of each schedule, and of their runs: each is looked up, where
-- a plain join would go along the whole index of runs.
SELECT o.schedule_id, o.occurrence, o.last_occurrence, o.count, o.outcome, o.reason,
       o.run_id::text, r.state, r.started_at, r.finished_at
  FROM {lists i: :ids bigint}
  JOIN LATERAL (SELECT * FROM {prefix}occurrences WHERE schedule_id = i.ids
                 ORDER BY occurrence DESC LIMIT :limit) AS o ON true
  LEFT JOIN LATERAL (SELECT state, started_at, finished_at FROM {prefix}runs
                      WHERE {run o.run_id}) AS r ON true
 ORDER BY o.schedule_id, o.occurrence DESC;

-- name: broken_schedules
SELECT id, name, error FROM {prefix}schedules
 WHERE error IS NOT NULL AND id > 0 ORDER BY id LIMIT :limit;

-- name: paused_schedules
SELECT id, name, paused_by, paused_at, paused_reason, state FROM {prefix}schedules
 WHERE paused AND id > 0 ORDER BY id LIMIT :limit;

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
VALUES (:id, :name, :role, :hash, {now}, :created_by, :expires_at::timestamptz)
RETURNING id, name, role, created_at, created_by, expires_at, revoked_at, revoked_by;

-- name: lock_tokens
-- Nothing to lock where a transaction that writes is alone until its end.
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

-------------------------------------------------------------------------------------- charts

-- name: ended_in_buckets
-- Exact, however many there are: along the index of what has ended, and nothing else is read.
SELECT state, bucket, count(*) AS runs FROM (
    SELECT state,
           {whole ({micros finished_at} - {micros :since_at::timestamptz}) / (1000000 * :seconds::float8)} AS bucket
      FROM {prefix}runs
     WHERE {terminal state} AND finished_at >= :since_at AND finished_at < :until_at
) AS ended GROUP BY state, bucket;

-- name: ended_by_job_in_buckets
SELECT job, state, bucket, count(*) AS runs, sum(seconds) AS seconds FROM (
    SELECT job, state,
           {whole ({micros finished_at} - {micros :since_at::timestamptz}) / (1000000 * :seconds::float8)} AS bucket,
           ({micros finished_at} - {micros coalesce(started_at, finished_at)}) / 1000000.0::float8 AS seconds
      FROM {prefix}runs
     WHERE {terminal state} AND finished_at >= :since_at AND finished_at < :until_at
) AS ended GROUP BY job, state, bucket ORDER BY job, bucket LIMIT :limit;

-- name: recent_fires
SELECT occurrence, created_at, due_at, started_at
  FROM (SELECT * FROM {prefix}runs WHERE seq > 0 ORDER BY seq DESC LIMIT :limit) AS newest
 WHERE occurrence IS NOT NULL AND retry_of IS NULL;

-- name: durations_of_schedule
-- Asked for as a range and in the order of its index: else a plan may walk all runs from the newest.
SELECT id::text, state, occurrence, due_at, started_at, finished_at, attempt
  FROM {prefix}runs WHERE schedule_id BETWEEN :schedule_id AND :schedule_id
 ORDER BY schedule_id DESC, seq DESC LIMIT :limit;

-- name: find_schedules
-- The key is a number in every order, so that a page begins after the last one's (key, name).
SELECT id, name, sort_key FROM (
    SELECT id, name, status, CASE :sort::text
           WHEN 'next' THEN CASE WHEN status = 'ACTIVE'
                                 THEN {least}({micros next_fire_at}, 9007199254740990)
                                 ELSE 9007199254740991 END
           WHEN 'last' THEN -coalesce({micros last_fired_at}, 0)
           ELSE 0 END AS sort_key
      FROM (SELECT id, name, next_fire_at, last_fired_at,
                CASE WHEN error IS NOT NULL THEN 'BROKEN' WHEN NOT enabled THEN 'DISABLED'
                WHEN paused THEN 'PAUSED' WHEN next_fire_at IS NULL THEN 'FINISHED'
                ELSE 'ACTIVE' END AS status
              FROM {prefix}schedules
             WHERE (:job::text IS NULL OR job = :job)
               AND (:words::text IS NULL OR {position}(lower(name), :words) > 0
                    OR {position}(lower(job), :words) > 0)) AS matching
) AS sorted
 WHERE (:status::text IS NULL OR status = :status)
   AND (sort_key > :after_key OR (sort_key = :after_key AND name > :after))
 ORDER BY sort_key, name LIMIT :limit;

--------------------------------------------------------------------- lists that are searched

-- name: find_jobs
-- Retired jobs are found by that status alone. Which are broken, only the caller, who reads the rows, can say.
SELECT {columns jobs}
  FROM {prefix}jobs
 WHERE name > :after
   AND (:words::text IS NULL OR {position}(lower(name), :words) > 0
        OR {position}(lower(description), :words) > 0)
   AND (:queue::text IS NULL OR queue = :queue)
   AND (:executor::text IS NULL OR executor = :executor)
   AND (coalesce(error, '') LIKE 'retired: %') = (coalesce(:status::text, '') = 'retired')
   AND (:status::text IS NULL OR :status = 'retired'
        OR (:status = 'disabled' AND NOT enabled)
        OR (:status = 'enabled' AND enabled AND error IS NULL))
 ORDER BY name LIMIT :limit;

-- name: schedule_ids_of_jobs
-- The first `each` of every job by name, and how many it has.
SELECT id, job, schedules FROM (
    SELECT id, job, name, count(*) OVER (PARTITION BY job) AS schedules,
           row_number() OVER (PARTITION BY job ORDER BY name) AS place
      FROM {prefix}schedules WHERE job {in :names text}
) AS placed WHERE place <= :each ORDER BY job, name;

-- name: good_versions
-- An error leaves the version of a job as it was: the last good one.
SELECT v.job, v.seen_at FROM {prefix}job_versions v
  JOIN {prefix}jobs j ON j.name = v.job AND j.version = v.version
 WHERE j.name {in :names text};

-- name: ended_by_queue
-- The latest of each state from the index of what has ended, then the latest of all of them.
SELECT queue, count(*) AS runs, min(finished_at) AS first_at FROM (
    SELECT * FROM (
        SELECT * FROM (SELECT queue, finished_at FROM {prefix}runs {index runs_finished}
                        WHERE state = 'succeeded' AND {terminal state} AND finished_at >= :since_at
                        ORDER BY finished_at DESC LIMIT :limit) AS succeeded
        UNION ALL
        SELECT * FROM (SELECT queue, finished_at FROM {prefix}runs {index runs_finished}
                        WHERE state = 'dead' AND {terminal state} AND finished_at >= :since_at
                        ORDER BY finished_at DESC LIMIT :limit) AS dead
        UNION ALL
        SELECT * FROM (SELECT queue, finished_at FROM {prefix}runs {index runs_finished}
                        WHERE state = 'cancelled' AND {terminal state} AND finished_at >= :since_at
                        ORDER BY finished_at DESC LIMIT :limit) AS cancelled
    ) AS each ORDER BY finished_at DESC LIMIT :limit
) AS ended GROUP BY queue;

-- name: find_audit
-- Down the numbers, until a page is full.
SELECT id, "at", "by", via, action, thing, reason, before, after FROM {prefix}audit
 WHERE id < :before
   AND (:by::text IS NULL OR "by" = :by)
   AND (:action::text IS NULL OR action = :action)
   AND (:words::text IS NULL OR {position}(lower(thing), :words) > 0
        OR {position}(lower(coalesce(reason, '')), :words) > 0)
 ORDER BY id DESC LIMIT :limit;
