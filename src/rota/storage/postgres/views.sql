-- What the public views read on PostgreSQL. One branch per state, so that the planner can use the partial
-- index of each, and leaves out the branches that a condition excludes.
--
-- {runs} joins the table of ids: a query that asks for an id finds it by the index there, and a query
-- that does not ask leaves that table unread.

-- Every job with its files counted, and with the schedule of the same name, else its oldest one.
CREATE OR REPLACE VIEW {prefix}scheduled_jobs AS
SELECT j.name, j.enabled, j.timeout, j.error,
       CASE WHEN json_typeof(j.spec -> 'files') = 'array' THEN json_array_length(j.spec -> 'files')
            WHEN j.spec -> 'file' IS NOT NULL THEN 1
            ELSE 0 END AS file_count,
       s.kind, s.expr, s.queue_max, s.enabled AS schedule_enabled, s.error AS schedule_error
  FROM {prefix}jobs j
  -- By id for each job, and not joined with all schedules: OFFSET 0 keeps it apart.
  LEFT JOIN LATERAL (
        SELECT kind, expr, enabled, {option queue_max} AS queue_max, error FROM {prefix}schedules
         WHERE id = coalesce((SELECT id FROM {prefix}schedules WHERE name = j.name AND job = j.name),
                             (SELECT min(id) FROM {prefix}schedules WHERE job = j.name))
        OFFSET 0) s ON true;

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

-- Runs in every state. The index by job leaves out what is queued or runs; the indexes of these states
-- find them.
CREATE OR REPLACE VIEW {prefix}all_runs AS
SELECT seq, {run_id} AS id, job, state, attempt, created_at, created_by
  FROM {runs} WHERE state <> 'queued' AND state <> 'running'
UNION ALL
SELECT seq, {run_id} AS id, job, state, attempt, created_at, created_by
  FROM {runs} WHERE state = 'queued'
UNION ALL
SELECT seq, {run_id} AS id, job, state, attempt, created_at, created_by
  FROM {runs} WHERE state = 'running';

-- Runs that have begun, with the word that job_runs has for their state.
CREATE OR REPLACE VIEW {prefix}begun AS
SELECT seq, {run_id} AS id, job, state, attempt, redo, started_at, finished_at, error, reason, 'success' AS status
  FROM {runs} WHERE attempt > 0 AND state = 'succeeded'
UNION ALL
SELECT seq, {run_id} AS id, job, state, attempt, redo, started_at, finished_at, error, reason, 'failed'
  FROM {runs} WHERE attempt > 0 AND state = 'dead'
UNION ALL
SELECT seq, {run_id} AS id, job, state, attempt, redo, started_at, finished_at, error, reason, 'failed'
  FROM {runs} WHERE attempt > 0 AND state = 'cancelled'
UNION ALL
SELECT seq, {run_id} AS id, job, state, attempt, redo, started_at, finished_at, error, reason, 'running'
  FROM {runs} WHERE attempt > 0 AND state = 'waiting'
UNION ALL
SELECT seq, {run_id} AS id, job, state, attempt, redo, started_at, finished_at, error, reason, 'running'
  FROM {runs} WHERE attempt > 0 AND state = 'held'
UNION ALL
SELECT seq, {run_id} AS id, job, state, attempt, redo, started_at, finished_at, error, reason, 'running'
  FROM {runs} WHERE attempt > 0 AND state = 'paused'
UNION ALL
SELECT seq, {run_id} AS id, job, state, attempt, redo, started_at, finished_at, error, reason, 'running'
  FROM {runs} WHERE attempt > 0 AND state = 'queued'
UNION ALL
SELECT seq, {run_id} AS id, job, state, attempt, redo, started_at, finished_at, error, reason, 'running'
  FROM {runs} WHERE state = 'running';

-- Runs that have ended, with the name of the event.
CREATE OR REPLACE VIEW {prefix}ended_runs AS
SELECT finished_at, 'job.completed' AS kind, {run_id} AS id, job, attempt, coalesce(error, reason) AS detail
  FROM {runs} WHERE state = 'succeeded'
UNION ALL
SELECT finished_at, 'job.failed', {run_id} AS id, job, attempt, coalesce(error, reason)
  FROM {runs} WHERE state = 'dead'
UNION ALL
SELECT finished_at, 'job.cancelled', {run_id} AS id, job, attempt, coalesce(error, reason)
  FROM {runs} WHERE state = 'cancelled';

-- A run that succeeded at its first attempt has no row in attempts, nor has an attempt that runs. The join
-- is in each branch, so that the planner begins it with a run, an attempt or an id, whichever is asked for.
CREATE OR REPLACE VIEW {prefix}all_attempts AS
SELECT {run_id} AS id, job, a.number, a.worker_id, a.started_at, a.finished_at, a.outcome, a.error
  FROM {runs} JOIN {prefix}attempts a ON a.run_seq = seq WHERE state <> 'queued' AND state <> 'running'
UNION ALL
SELECT {run_id} AS id, job, a.number, a.worker_id, a.started_at, a.finished_at, a.outcome, a.error
  FROM {runs} JOIN {prefix}attempts a ON a.run_seq = seq WHERE state = 'queued'
UNION ALL
SELECT {run_id} AS id, job, a.number, a.worker_id, a.started_at, a.finished_at, a.outcome, a.error
  FROM {runs} JOIN {prefix}attempts a ON a.run_seq = seq WHERE state = 'running'
UNION ALL
SELECT {run_id}, job, attempt, worker_id, started_at, finished_at, 'succeeded', NULL
  FROM {runs} WHERE state = 'succeeded' AND attempt = 1
UNION ALL
SELECT {run_id}, job, attempt, worker_id, started_at, NULL, NULL, NULL
  FROM {runs} WHERE state = 'running';

-- Every step that was begun. `marked`: it is done, whatever its own row says.
CREATE OR REPLACE VIEW {prefix}all_steps AS
SELECT r.seq, {run_id} AS id, r.job, s.attempt, s.number, s.name, s.started_at,
       coalesce(m.finished_at, s.finished_at, a.finished_at) AS finished_at,
       m.number IS NOT NULL AS marked,
       s.status = 'running' AND s.attempt = r.attempt AND r.state = 'running' AS running,
       s.status, a.outcome, m.rows, m.result,
       CASE WHEN m.number IS NULL THEN coalesce(s.error, a.error) END AS error, s.note
  FROM {runs}
  JOIN {prefix}steps s ON s.run_seq = r.seq
  LEFT JOIN {prefix}step_marks m
         ON m.run_seq = s.run_seq AND m.number = s.number AND m.attempt = s.attempt
  LEFT JOIN {prefix}attempts a ON a.run_seq = s.run_seq AND a.number = s.attempt
 WHERE r.state <> 'queued' AND r.state <> 'running'
UNION ALL
SELECT r.seq, {run_id} AS id, r.job, s.attempt, s.number, s.name, s.started_at,
       coalesce(m.finished_at, s.finished_at, a.finished_at) AS finished_at,
       m.number IS NOT NULL AS marked,
       s.status = 'running' AND s.attempt = r.attempt AND r.state = 'running' AS running,
       s.status, a.outcome, m.rows, m.result,
       CASE WHEN m.number IS NULL THEN coalesce(s.error, a.error) END AS error, s.note
  FROM {runs}
  JOIN {prefix}steps s ON s.run_seq = r.seq
  LEFT JOIN {prefix}step_marks m
         ON m.run_seq = s.run_seq AND m.number = s.number AND m.attempt = s.attempt
  LEFT JOIN {prefix}attempts a ON a.run_seq = s.run_seq AND a.number = s.attempt
 WHERE r.state = 'queued'
UNION ALL
SELECT r.seq, {run_id} AS id, r.job, s.attempt, s.number, s.name, s.started_at,
       coalesce(m.finished_at, s.finished_at, a.finished_at) AS finished_at,
       m.number IS NOT NULL AS marked,
       s.status = 'running' AND s.attempt = r.attempt AND r.state = 'running' AS running,
       s.status, a.outcome, m.rows, m.result,
       CASE WHEN m.number IS NULL THEN coalesce(s.error, a.error) END AS error, s.note
  FROM {runs}
  JOIN {prefix}steps s ON s.run_seq = r.seq
  LEFT JOIN {prefix}step_marks m
         ON m.run_seq = s.run_seq AND m.number = s.number AND m.attempt = s.attempt
  LEFT JOIN {prefix}attempts a ON a.run_seq = s.run_seq AND a.number = s.attempt
 WHERE r.state = 'running';
