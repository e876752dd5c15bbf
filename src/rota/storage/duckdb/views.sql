-- What the public views read on DuckDB. It has no indexes: each view scans its table once.

-- Every job with its files counted, and with the schedule of the same name, else its oldest one.
CREATE OR REPLACE VIEW {prefix}scheduled_jobs AS
SELECT j.name, j.enabled, j.timeout, j.error,
       CAST(CASE WHEN json_type(j.spec, '$.files') = 'ARRAY' THEN json_array_length(j.spec, '$.files')
                 WHEN json_type(j.spec, '$.file') IS NOT NULL THEN 1
                 ELSE 0 END AS integer) AS file_count,
       s.kind, s.expr, s.queue_max, s.enabled AS schedule_enabled, s.error AS schedule_error
  FROM {prefix}jobs j
  LEFT JOIN (SELECT job, kind, expr, enabled, {option queue_max} AS queue_max, error FROM {prefix}schedules
            QUALIFY row_number() OVER (PARTITION BY job ORDER BY name <> job, id) = 1) s ON s.job = j.name;

-- The runs that the view job_queue shows.
CREATE OR REPLACE VIEW {prefix}open_runs AS
SELECT job, attempt, coalesce(queued_at, created_at) AS entered_at,
       CASE WHEN attempt > 0 THEN started_at END AS started_at
  FROM {prefix}runs
 WHERE state IN ('queued', 'held', 'running') OR (state = 'waiting' AND attempt > 0);

-- Runs in every state.
CREATE OR REPLACE VIEW {prefix}all_runs AS
SELECT seq, id, job, state, attempt, created_at, created_by FROM {prefix}runs;

-- Runs that have begun, with the word that job_runs has for their state.
CREATE OR REPLACE VIEW {prefix}begun AS
SELECT seq, id, job, state, attempt, redo, started_at, finished_at, error, reason,
       CASE state WHEN 'succeeded' THEN 'success' WHEN 'dead' THEN 'failed'
                  WHEN 'cancelled' THEN 'failed' ELSE 'running' END AS status
  FROM {prefix}runs WHERE attempt > 0;

-- Runs that have ended, with the name of the event.
CREATE OR REPLACE VIEW {prefix}ended_runs AS
SELECT finished_at,
       CASE state WHEN 'succeeded' THEN 'job.completed' WHEN 'dead' THEN 'job.failed'
                  ELSE 'job.cancelled' END AS kind,
       id, job, attempt, coalesce(error, reason) AS detail
  FROM {prefix}runs WHERE state IN ('succeeded', 'dead', 'cancelled');

-- A run that succeeded at its first attempt has no row in attempts, nor has an attempt that runs.
CREATE OR REPLACE VIEW {prefix}all_attempts AS
SELECT r.id, r.job, a.number, a.worker_id, a.started_at, a.finished_at, a.outcome, a.error
  FROM {prefix}attempts a JOIN {prefix}runs r ON r.seq = a.run_seq
UNION ALL
SELECT id, job, attempt, worker_id, started_at, finished_at, 'succeeded', NULL
  FROM {prefix}runs WHERE state = 'succeeded' AND attempt = 1
UNION ALL
SELECT id, job, attempt, worker_id, started_at, NULL, NULL, NULL
  FROM {prefix}runs WHERE state = 'running';

-- Every step that was begun. `marked`: it is done, whatever its own row says.
CREATE OR REPLACE VIEW {prefix}all_steps AS
SELECT r.seq, r.id, r.job, s.attempt, s.number, s.name, s.started_at,
       coalesce(m.finished_at, s.finished_at, a.finished_at) AS finished_at,
       m.number IS NOT NULL AS marked,
       s.status = 'running' AND s.attempt = r.attempt AND r.state = 'running' AS running,
       s.status, a.outcome, m.rows, m.result,
       CASE WHEN m.number IS NULL THEN coalesce(s.error, a.error) END AS error, s.note
  FROM {prefix}steps s
  JOIN {prefix}runs r ON r.seq = s.run_seq
  LEFT JOIN {prefix}step_marks m
         ON m.run_seq = s.run_seq AND m.number = s.number AND m.attempt = s.attempt
  LEFT JOIN {prefix}attempts a ON a.run_seq = s.run_seq AND a.number = s.attempt;
