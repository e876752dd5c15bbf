-- What people read: views over the private tables. They hold no clock and no function of ours, so
-- that any client may ask them. Instants are text in UTC that sorts and that SQLite's own date
-- functions read: 2026-01-04 03:00:00.000000Z.

-- One row per job, with the schedule that bears its name, else its oldest one. `queued` are runs
-- that could start but for a slot or a worker; `running` also holds between two attempts.
CREATE VIEW {views}jobs AS
WITH open_runs AS (
    -- A branch for each state: each walks the index of that state, never the history.
    SELECT job, attempt = 0 AS waits FROM {prefix}runs WHERE state = 'queued'
    UNION ALL
    SELECT job, attempt = 0 FROM {prefix}runs WHERE state = 'held'
    UNION ALL
    SELECT job, 0 FROM {prefix}runs WHERE state = 'running'
    UNION ALL
    SELECT job, 0 FROM {prefix}runs WHERE state = 'waiting' AND attempt > 0
), counted AS (
    SELECT job, sum(waits) AS queued, max(NOT waits) AS running FROM open_runs GROUP BY job
)
SELECT j.name,
       CASE WHEN s.kind = 'cron' THEN s.expr ELSE s.kind || ' ' || s.expr END AS schedule,
       j.enabled AND coalesce(s.enabled, 1) AS enabled,
       s.queue_max,
       j.timeout,
       CASE WHEN json_type(j.spec, '$.files') = 'array' THEN json_array_length(j.spec, '$.files')
            WHEN json_type(j.spec, '$.file') IS NOT NULL THEN 1
            ELSE 0 END AS file_count,
       coalesce(c.queued, 0) AS queued,
       coalesce(c.running, 0) AS running,
       coalesce(j.error, s.error) AS error
  FROM {prefix}jobs j
  LEFT JOIN {prefix}schedules s
         ON s.id = coalesce((SELECT id FROM {prefix}schedules WHERE name = j.name AND job = j.name),
                            (SELECT min(id) FROM {prefix}schedules WHERE job = j.name))
  LEFT JOIN counted c ON c.job = j.name;

-- The runs that wait for their turn, and those that have begun and are not over.
CREATE VIEW {views}job_queue AS
SELECT job_name,
       strftime('%Y-%m-%d %H:%M:%S', q.queued_at / 1000000, 'unixepoch')
           || printf('.%06dZ', q.queued_at % 1000000) AS queued_at,
       strftime('%Y-%m-%d %H:%M:%S', q.started_at / 1000000, 'unixepoch')
           || printf('.%06dZ', q.started_at % 1000000) AS started_at
  FROM (SELECT job AS job_name, coalesce(queued_at, created_at) AS queued_at,
               CASE WHEN attempt > 0 THEN started_at END AS started_at
          FROM {prefix}runs WHERE state = 'queued'
        UNION ALL
        SELECT job, coalesce(queued_at, created_at), CASE WHEN attempt > 0 THEN started_at END
          FROM {prefix}runs WHERE state = 'held'
        UNION ALL
        SELECT job, coalesce(queued_at, created_at), started_at
          FROM {prefix}runs WHERE state = 'running'
        UNION ALL
        SELECT job, coalesce(queued_at, created_at), started_at
          FROM {prefix}runs WHERE state = 'waiting' AND attempt > 0) q;

-- Runs that have begun, not for people. The index by job leaves out what is queued or runs, which
-- the indexes of these states find.
CREATE VIEW {prefix}begun AS
SELECT seq, id, job, state, attempt, redo, started_at, finished_at, error, reason
  FROM {prefix}runs WHERE attempt > 0 AND state <> 'queued' AND state <> 'running'
UNION ALL
SELECT seq, id, job, state, attempt, redo, started_at, finished_at, error, reason
  FROM {prefix}runs WHERE attempt > 0 AND state = 'queued'
UNION ALL
SELECT seq, id, job, state, attempt, redo, started_at, finished_at, error, reason
  FROM {prefix}runs WHERE state = 'running';

-- A row for every run that began, and one for every step of each of its attempts. `id` is made of
-- the run's number, the attempt and the step, so that it never changes: ten thousand attempts of a
-- thousand files have room.
CREATE VIEW {views}job_runs AS
SELECT id,
       run_id,
       job_name,
       record_type,
       file_name,
       strftime('%Y-%m-%d %H:%M:%S', q.started_at / 1000000, 'unixepoch')
           || printf('.%06dZ', q.started_at % 1000000) AS started_at,
       strftime('%Y-%m-%d %H:%M:%S', q.finished_at / 1000000, 'unixepoch')
           || printf('.%06dZ', q.finished_at % 1000000) AS finished_at,
       status,
       error_message
  FROM (SELECT r.seq * 10000000 AS id,
               r.id AS run_id,
               r.job AS job_name,
               'run' AS record_type,
               NULL AS file_name,
               -- The row of a run knows the start of its latest attempt only. After a redo that
               -- is right.
               CASE WHEN r.attempt > 1 AND r.redo = 0
                    THEN coalesce((SELECT min(a.started_at) FROM {prefix}attempts a
                                    WHERE a.run_seq = r.seq), r.started_at)
                    ELSE r.started_at END AS started_at,
               r.finished_at AS finished_at,
               CASE r.state WHEN 'succeeded' THEN 'success' WHEN 'dead' THEN 'failed'
                            WHEN 'cancelled' THEN 'failed' ELSE 'running' END AS status,
               CASE WHEN r.state IN ('dead', 'cancelled') THEN coalesce(r.error, r.reason)
                    END AS error_message
          FROM {prefix}begun r
        UNION ALL
        SELECT r.seq * 10000000 + min(s.attempt, 9998) * 1000 + s.number,
               r.id,
               r.job,
               'step',
               s.name,
               s.started_at,
               coalesce(m.finished_at, s.finished_at, a.finished_at),
               CASE WHEN m.number IS NOT NULL THEN 'success'
                    WHEN s.status = 'running' AND s.attempt = r.attempt AND r.state = 'running'
                    THEN 'running' ELSE 'failed' END,
               -- A step that still says 'running' after its attempt went down with its worker.
               CASE WHEN m.number IS NULL THEN coalesce(s.error, a.error) END
          FROM {prefix}begun r
          JOIN {prefix}steps s ON s.run_seq = r.seq
          LEFT JOIN {prefix}step_marks m
                 ON m.run_seq = s.run_seq AND m.number = s.number AND m.attempt = s.attempt
          LEFT JOIN {prefix}attempts a ON a.run_seq = s.run_seq AND a.number = s.attempt) q;

-- What became of every occurrence, also of schedules that were dropped. A row may stand for a
-- stretch of `count` occurrences, up to `last_occurrence`.
CREATE VIEW {views}occurrences AS
SELECT o.schedule_id,
       coalesce(s.name, (SELECT c.name FROM {prefix}schedule_changes c
                          WHERE c.schedule_id = o.schedule_id ORDER BY c.id DESC LIMIT 1))
           AS schedule_name,
       s.job AS job_name,
       strftime('%Y-%m-%d %H:%M:%S', o.occurrence / 1000000, 'unixepoch')
           || printf('.%06dZ', o.occurrence % 1000000) AS occurrence,
       strftime('%Y-%m-%d %H:%M:%S', o.last_occurrence / 1000000, 'unixepoch')
           || printf('.%06dZ', o.last_occurrence % 1000000) AS last_occurrence,
       o.count,
       o.outcome,
       o.reason,
       o.run_id,
       strftime('%Y-%m-%d %H:%M:%S', o.recorded_at / 1000000, 'unixepoch')
           || printf('.%06dZ', o.recorded_at % 1000000) AS recorded_at
  FROM {prefix}occurrences o
  LEFT JOIN {prefix}schedules s ON s.id = o.schedule_id;

-- Schedules as they are now, without their arguments.
CREATE VIEW {views}schedules AS
SELECT id,
       name,
       job AS job_name,
       kind,
       expr,
       timezone,
       CASE WHEN error IS NOT NULL THEN 'BROKEN' WHEN NOT enabled THEN 'DISABLED'
            WHEN paused THEN 'PAUSED' WHEN next_fire_at IS NULL THEN 'FINISHED'
            ELSE 'ACTIVE' END AS status,
       enabled,
       paused,
       paused_by,
       strftime('%Y-%m-%d %H:%M:%S', paused_at / 1000000, 'unixepoch')
           || printf('.%06dZ', paused_at % 1000000) AS paused_at,
       paused_reason,
       -- One that counts from the end of its run has no next time while that runs.
       CASE WHEN next_fire_at < 253370764800000000
            THEN strftime('%Y-%m-%d %H:%M:%S', next_fire_at / 1000000, 'unixepoch')
                 || printf('.%06dZ', next_fire_at % 1000000) END AS next_fire_at,
       strftime('%Y-%m-%d %H:%M:%S', last_fired_at / 1000000, 'unixepoch')
           || printf('.%06dZ', last_fired_at % 1000000) AS last_fired_at,
       overlap,
       queue_max,
       on_error,
       pause_after,
       catch_up,
       strftime('%Y-%m-%d %H:%M:%S', starts_at / 1000000, 'unixepoch')
           || printf('.%06dZ', starts_at % 1000000) AS starts_at,
       strftime('%Y-%m-%d %H:%M:%S', ends_at / 1000000, 'unixepoch')
           || printf('.%06dZ', ends_at % 1000000) AS ends_at,
       owner,
       strftime('%Y-%m-%d %H:%M:%S', created_at / 1000000, 'unixepoch')
           || printf('.%06dZ', created_at % 1000000) AS created_at,
       state,
       error
  FROM {prefix}schedules;

-- Runs in every state, without their arguments.
CREATE VIEW {views}runs AS
SELECT seq,
       id AS run_id,
       job AS job_name,
       queue,
       priority,
       state,
       strftime('%Y-%m-%d %H:%M:%S', due_at / 1000000, 'unixepoch')
           || printf('.%06dZ', due_at % 1000000) AS due_at,
       strftime('%Y-%m-%d %H:%M:%S', created_at / 1000000, 'unixepoch')
           || printf('.%06dZ', created_at % 1000000) AS created_at,
       strftime('%Y-%m-%d %H:%M:%S', queued_at / 1000000, 'unixepoch')
           || printf('.%06dZ', queued_at % 1000000) AS queued_at,
       strftime('%Y-%m-%d %H:%M:%S', started_at / 1000000, 'unixepoch')
           || printf('.%06dZ', started_at % 1000000) AS started_at,
       strftime('%Y-%m-%d %H:%M:%S', finished_at / 1000000, 'unixepoch')
           || printf('.%06dZ', finished_at % 1000000) AS finished_at,
       attempt,
       failures,
       lost,
       redo,
       max_attempts,
       timeout,
       schedule_id,
       strftime('%Y-%m-%d %H:%M:%S', occurrence / 1000000, 'unixepoch')
           || printf('.%06dZ', occurrence % 1000000) AS occurrence,
       missed_count,
       retry_of,
       created_by,
       worker_id,
       strftime('%Y-%m-%d %H:%M:%S', lease_until / 1000000, 'unixepoch')
           || printf('.%06dZ', lease_until % 1000000) AS lease_until,
       progress,
       result,
       error,
       reason,
       strftime('%Y-%m-%d %H:%M:%S', cancel_requested_at / 1000000, 'unixepoch')
           || printf('.%06dZ', cancel_requested_at % 1000000) AS cancel_requested_at,
       correlation_id
  FROM {prefix}runs;

-- The runs that are out of attempts and wait for somebody to look at them.
CREATE VIEW {views}dead AS
SELECT id AS run_id,
       job AS job_name,
       queue,
       strftime('%Y-%m-%d %H:%M:%S', started_at / 1000000, 'unixepoch')
           || printf('.%06dZ', started_at % 1000000) AS started_at,
       strftime('%Y-%m-%d %H:%M:%S', finished_at / 1000000, 'unixepoch')
           || printf('.%06dZ', finished_at % 1000000) AS finished_at,
       attempt,
       failures,
       lost,
       error
  FROM {prefix}runs WHERE state = 'dead';

-- A run that succeeded at its first try has no row of its own for that, nor has one that runs.
CREATE VIEW {views}attempts AS
SELECT r.id AS run_id,
       r.job AS job_name,
       a.number,
       a.worker_id,
       strftime('%Y-%m-%d %H:%M:%S', a.started_at / 1000000, 'unixepoch')
           || printf('.%06dZ', a.started_at % 1000000) AS started_at,
       strftime('%Y-%m-%d %H:%M:%S', a.finished_at / 1000000, 'unixepoch')
           || printf('.%06dZ', a.finished_at % 1000000) AS finished_at,
       a.outcome,
       a.error
  FROM {prefix}attempts a JOIN {prefix}runs r ON r.seq = a.run_seq
UNION ALL
SELECT id, job, attempt, worker_id,
       strftime('%Y-%m-%d %H:%M:%S', started_at / 1000000, 'unixepoch')
           || printf('.%06dZ', started_at % 1000000),
       strftime('%Y-%m-%d %H:%M:%S', finished_at / 1000000, 'unixepoch')
           || printf('.%06dZ', finished_at % 1000000),
       'succeeded', NULL
  FROM {prefix}runs WHERE state = 'succeeded' AND attempt = 1
UNION ALL
SELECT id, job, attempt, worker_id,
       strftime('%Y-%m-%d %H:%M:%S', started_at / 1000000, 'unixepoch')
           || printf('.%06dZ', started_at % 1000000),
       NULL, NULL, NULL
  FROM {prefix}runs WHERE state = 'running';

-- Every step of every attempt that was begun.
CREATE VIEW {views}steps AS
SELECT r.id AS run_id,
       r.job AS job_name,
       s.attempt,
       s.number,
       s.name AS file_name,
       strftime('%Y-%m-%d %H:%M:%S', s.started_at / 1000000, 'unixepoch')
           || printf('.%06dZ', s.started_at % 1000000) AS started_at,
       strftime('%Y-%m-%d %H:%M:%S', coalesce(m.finished_at, s.finished_at, a.finished_at) / 1000000,
                'unixepoch')
           || printf('.%06dZ', coalesce(m.finished_at, s.finished_at, a.finished_at) % 1000000) AS finished_at,
       CASE WHEN m.number IS NOT NULL THEN 'succeeded'
            WHEN s.status = 'running' AND (s.attempt <> r.attempt OR r.state <> 'running')
            THEN coalesce(a.outcome, 'lost') ELSE s.status END AS status,
       m.rows,
       m.result,
       CASE WHEN m.number IS NULL THEN coalesce(s.error, a.error) END AS error,
       s.note
  FROM {prefix}steps s
  JOIN {prefix}runs r ON r.seq = s.run_seq
  LEFT JOIN {prefix}step_marks m
         ON m.run_seq = s.run_seq AND m.number = s.number AND m.attempt = s.attempt
  LEFT JOIN {prefix}attempts a ON a.run_seq = s.run_seq AND a.number = s.attempt;

-- What happened, under the names that listeners know. Routine events are read from runs and
-- attempts; only operators' actions and exceptions have rows.
CREATE VIEW {views}events AS
SELECT strftime('%Y-%m-%d %H:%M:%S', at / 1000000, 'unixepoch')
           || printf('.%06dZ', at % 1000000) AS happened_at,
       kind,
       run_id,
       name,
       NULL AS attempt,
       detail
  FROM {prefix}events
UNION ALL
SELECT started_at, 'attempt.started', run_id, job_name, number, NULL FROM {views}attempts
UNION ALL
SELECT finished_at, 'attempt.' || outcome, run_id, job_name, number, error
  FROM {views}attempts WHERE outcome IS NOT NULL
UNION ALL
SELECT strftime('%Y-%m-%d %H:%M:%S', created_at / 1000000, 'unixepoch')
           || printf('.%06dZ', created_at % 1000000),
       'run.created', id, job, NULL, created_by
  FROM {prefix}runs
UNION ALL
SELECT strftime('%Y-%m-%d %H:%M:%S', finished_at / 1000000, 'unixepoch')
           || printf('.%06dZ', finished_at % 1000000),
       CASE state WHEN 'succeeded' THEN 'job.completed' WHEN 'dead' THEN 'job.failed'
                  ELSE 'job.cancelled' END, id, job, attempt, coalesce(error, reason)
  FROM {prefix}runs WHERE state IN ('succeeded', 'dead', 'cancelled');

-- The processes that work. One that has not been seen for longer than a lease is gone.
CREATE VIEW {views}workers AS
SELECT id,
       host,
       pid,
       version,
       tzdata,
       origin,
       jobs,
       queues,
       slots,
       stuck,
       strftime('%Y-%m-%d %H:%M:%S', started_at / 1000000, 'unixepoch')
           || printf('.%06dZ', started_at % 1000000) AS started_at,
       strftime('%Y-%m-%d %H:%M:%S', seen_at / 1000000, 'unixepoch')
           || printf('.%06dZ', seen_at % 1000000) AS seen_at
  FROM {prefix}workers;

-- Queues, with what lies in them.
CREATE VIEW {views}queues AS
SELECT q.name,
       q.paused,
       q.reason,
       q.paused_by,
       strftime('%Y-%m-%d %H:%M:%S', q.paused_at / 1000000, 'unixepoch')
           || printf('.%06dZ', q.paused_at % 1000000) AS paused_at,
       coalesce(c.queued, 0) AS queued,
       coalesce(r.running, 0) AS running,
       strftime('%Y-%m-%d %H:%M:%S', c.oldest_at / 1000000, 'unixepoch')
           || printf('.%06dZ', c.oldest_at % 1000000) AS oldest_at
  FROM {prefix}queues q
  LEFT JOIN (SELECT queue, count(*) AS queued, min(due_at) AS oldest_at
               FROM {prefix}runs WHERE state = 'queued' GROUP BY queue) c ON c.queue = q.name
  LEFT JOIN (SELECT queue, count(*) AS running
               FROM {prefix}runs WHERE state = 'running' GROUP BY queue) r ON r.queue = q.name;
