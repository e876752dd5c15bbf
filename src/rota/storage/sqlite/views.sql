-- What the public views read on SQLite. It uses a partial index where a query contains the index's
-- condition word for word: hence one branch per state, and `state <> 'queued' AND state <> 'running'`,
-- the condition of the index by job.

-- Every job with its files counted, and with the schedule of the same name, else its oldest one.
CREATE OR REPLACE VIEW {prefix}scheduled_jobs AS
SELECT j.name, j.enabled, j.timeout, j.error,
       CASE WHEN json_type(j.spec, '$.files') = 'array' THEN json_array_length(j.spec, '$.files')
            WHEN json_type(j.spec, '$.file') IS NOT NULL THEN 1
            ELSE 0 END AS file_count,
       s.kind, s.expr, s.queue_max, s.enabled AS schedule_enabled, s.error AS schedule_error
  FROM {prefix}jobs j
  LEFT JOIN {prefix}schedules s
         ON s.id = coalesce((SELECT id FROM {prefix}schedules WHERE name = j.name AND job = j.name),
                            (SELECT min(id) FROM {prefix}schedules WHERE job = j.name));

-- The runs that the view job_queue shows. A branch walks the index of its state, never the history.
CREATE OR REPLACE VIEW {prefix}open_runs AS
SELECT job, attempt, coalesce(queued_at, created_at) AS entered_at,
       CASE WHEN attempt > 0 THEN started_at END AS started_at
  FROM {prefix}runs WHERE state = 'queued'
UNION ALL
SELECT job, attempt, coalesce(queued_at, created_at), CASE WHEN attempt > 0 THEN started_at END
  FROM {prefix}runs WHERE state = 'held'
UNION ALL
SELECT job, attempt, coalesce(queued_at, created_at), started_at
  FROM {prefix}runs WHERE state = 'running'
UNION ALL
SELECT job, attempt, coalesce(queued_at, created_at), started_at
  FROM {prefix}runs WHERE state = 'waiting' AND attempt > 0;

-- Runs in every state.
CREATE OR REPLACE VIEW {prefix}all_runs AS
SELECT seq, id, job, state, attempt, created_at, created_by
  FROM {prefix}runs WHERE state <> 'queued' AND state <> 'running'
UNION ALL
SELECT seq, id, job, state, attempt, created_at, created_by
  FROM {prefix}runs WHERE state = 'queued'
UNION ALL
SELECT seq, id, job, state, attempt, created_at, created_by
  FROM {prefix}runs WHERE state = 'running';

-- Runs that have begun, with the word that job_runs has for their state.
CREATE OR REPLACE VIEW {prefix}begun AS
SELECT seq, id, job, state, attempt, redo, started_at, finished_at, error, reason, 'success' AS status
  FROM {prefix}runs WHERE attempt > 0 AND state = 'succeeded' AND state <> 'queued' AND state <> 'running'
UNION ALL
SELECT seq, id, job, state, attempt, redo, started_at, finished_at, error, reason, 'failed'
  FROM {prefix}runs WHERE attempt > 0 AND state = 'dead' AND state <> 'queued' AND state <> 'running'
UNION ALL
SELECT seq, id, job, state, attempt, redo, started_at, finished_at, error, reason, 'failed'
  FROM {prefix}runs WHERE attempt > 0 AND state = 'cancelled' AND state <> 'queued' AND state <> 'running'
UNION ALL
SELECT seq, id, job, state, attempt, redo, started_at, finished_at, error, reason, 'running'
  FROM {prefix}runs WHERE attempt > 0 AND state = 'waiting' AND state <> 'queued' AND state <> 'running'
UNION ALL
SELECT seq, id, job, state, attempt, redo, started_at, finished_at, error, reason, 'running'
  FROM {prefix}runs WHERE attempt > 0 AND state = 'held'
UNION ALL
SELECT seq, id, job, state, attempt, redo, started_at, finished_at, error, reason, 'running'
  FROM {prefix}runs WHERE attempt > 0 AND state = 'paused' AND state <> 'queued' AND state <> 'running'
UNION ALL
SELECT seq, id, job, state, attempt, redo, started_at, finished_at, error, reason, 'running'
  FROM {prefix}runs WHERE attempt > 0 AND state = 'queued'
UNION ALL
SELECT seq, id, job, state, attempt, redo, started_at, finished_at, error, reason, 'running'
  FROM {prefix}runs WHERE state = 'running';

-- Runs that have ended, with the name of the event.
CREATE OR REPLACE VIEW {prefix}ended_runs AS
SELECT finished_at, 'job.completed' AS kind, id, job, attempt, coalesce(error, reason) AS detail
  FROM {prefix}runs WHERE state = 'succeeded' AND state <> 'queued' AND state <> 'running'
UNION ALL
SELECT finished_at, 'job.failed', id, job, attempt, coalesce(error, reason)
  FROM {prefix}runs WHERE state = 'dead' AND state <> 'queued' AND state <> 'running'
UNION ALL
SELECT finished_at, 'job.cancelled', id, job, attempt, coalesce(error, reason)
  FROM {prefix}runs WHERE state = 'cancelled' AND state <> 'queued' AND state <> 'running';

-- A run that succeeded at its first attempt has no row in attempts, nor has an attempt that runs. The first
-- and the last branch have columns of tables: SQLite takes the type of a view's column from one of these.
CREATE OR REPLACE VIEW {prefix}all_attempts AS
SELECT r.id, r.job, a.number, a.worker_id, a.started_at, a.finished_at, a.outcome, a.error
  FROM {prefix}runs r JOIN {prefix}attempts a ON a.run_seq = r.seq
 WHERE r.state <> 'queued' AND r.state <> 'running'
UNION ALL
SELECT id, job, attempt, worker_id, started_at, finished_at, 'succeeded', NULL
  FROM {prefix}runs
 WHERE state = 'succeeded' AND attempt = 1 AND state <> 'queued' AND state <> 'running'
UNION ALL
SELECT id, job, attempt, worker_id, started_at, NULL, NULL, NULL
  FROM {prefix}runs WHERE state = 'running'
UNION ALL
-- CROSS JOIN: from the few runs in this state to their attempts, never the other way round.
SELECT r.id, r.job, a.number, a.worker_id, a.started_at, a.finished_at, a.outcome, a.error
  FROM {prefix}runs r CROSS JOIN {prefix}attempts a ON a.run_seq = r.seq
 WHERE r.state = 'queued' AND r.attempt > 0
UNION ALL
SELECT r.id, r.job, a.number, a.worker_id, a.started_at, a.finished_at, a.outcome, a.error
  FROM {prefix}runs r CROSS JOIN {prefix}attempts a ON a.run_seq = r.seq
 WHERE r.state = 'running';

-- Every step that was begun. `marked`: it is done, whatever its own row says.
CREATE OR REPLACE VIEW {prefix}all_steps AS
SELECT r.seq, r.id, r.job, s.attempt, s.number, s.name, s.started_at,
       coalesce(m.finished_at, s.finished_at, a.finished_at) AS finished_at,
       m.number IS NOT NULL AS marked,
       s.status = 'running' AND s.attempt = r.attempt AND r.state = 'running' AS running,
       s.status, a.outcome, m.rows, m.result,
       CASE WHEN m.number IS NULL THEN coalesce(s.error, a.error) END AS error, s.note
  FROM {prefix}all_runs r
  JOIN {prefix}steps s ON s.run_seq = r.seq
  LEFT JOIN {prefix}step_marks m
         ON m.run_seq = s.run_seq AND m.number = s.number AND m.attempt = s.attempt
  LEFT JOIN {prefix}attempts a ON a.run_seq = s.run_seq AND a.number = s.attempt;
