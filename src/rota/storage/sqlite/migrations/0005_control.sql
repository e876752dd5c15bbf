-- Control rows: the one table that clients write. A statement that is inserted here is done by any
-- process that runs, and answered in its row. Whoever may write to the file may say anything.

CREATE TABLE {views}control (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    statement    TEXT NOT NULL CHECK (length(statement) <= 262144),
    requested_by TEXT CHECK (length(requested_by) <= 128),
    requested_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now') || '000Z'),
    role         TEXT NOT NULL DEFAULT 'admin',
    status       TEXT NOT NULL DEFAULT 'asked',
    answered_at  TEXT,
    rows         TEXT,
    more         INTEGER NOT NULL DEFAULT 0,
    error        TEXT
) STRICT;
CREATE INDEX {prefix}control_asked ON {views}control (id) WHERE status = 'asked';

-- Views, so that a page of each is found by an index however long the history is. SQLite uses a
-- partial index where the query says its condition, word for word.

-- Runs in every state. The index by job leaves out what is queued or runs, which the indexes of these
-- states find: said branch by branch, each can be used. Not for people.
CREATE VIEW {prefix}all_runs AS
SELECT seq, id, job, state, attempt, created_at, created_by
  FROM {prefix}runs WHERE state <> 'queued' AND state <> 'running'
UNION ALL
SELECT seq, id, job, state, attempt, created_at, created_by
  FROM {prefix}runs WHERE state = 'queued'
UNION ALL
SELECT seq, id, job, state, attempt, created_at, created_by
  FROM {prefix}runs WHERE state = 'running';

-- Runs that have begun, with what job_runs calls their state: a branch for each, so that who asks for
-- one reads no other. Not for people.
DROP VIEW {prefix}begun;
CREATE VIEW {prefix}begun AS
SELECT seq, id, job, state, attempt, redo, started_at, finished_at, error, reason, 'success' AS status
  FROM {prefix}runs
 WHERE attempt > 0 AND state = 'succeeded'
   AND state IN ('succeeded', 'dead', 'cancelled') AND state <> 'queued' AND state <> 'running'
UNION ALL
SELECT seq, id, job, state, attempt, redo, started_at, finished_at, error, reason, 'failed'
  FROM {prefix}runs
 WHERE attempt > 0 AND state = 'dead'
   AND state IN ('succeeded', 'dead', 'cancelled') AND state <> 'queued' AND state <> 'running'
UNION ALL
SELECT seq, id, job, state, attempt, redo, started_at, finished_at, error, reason, 'failed'
  FROM {prefix}runs
 WHERE attempt > 0 AND state = 'cancelled'
   AND state IN ('succeeded', 'dead', 'cancelled') AND state <> 'queued' AND state <> 'running'
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

-- A row for every run that began, and one for every step of each of its attempts.
DROP VIEW {views}job_runs;
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
               r.status AS status,
               CASE WHEN r.status = 'failed' THEN coalesce(r.error, r.reason) END AS error_message
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
          FROM {prefix}all_runs r
          JOIN {prefix}steps s ON s.run_seq = r.seq
          LEFT JOIN {prefix}step_marks m
                 ON m.run_seq = s.run_seq AND m.number = s.number AND m.attempt = s.attempt
          LEFT JOIN {prefix}attempts a ON a.run_seq = s.run_seq AND a.number = s.attempt) q;

-- For the view `dead`, which shows instants as text, so that their order is that of an expression; with
-- the job, so that one job's dead are found without a look at the others. Only a death writes to it.
CREATE INDEX {prefix}runs_died ON {prefix}runs (
    strftime('%Y-%m-%d %H:%M:%S', finished_at / 1000000, 'unixepoch')
        || printf('.%06dZ', finished_at % 1000000), job) WHERE state = 'dead';

-- A run that succeeded at its first try has no row of its own for that, nor has one that runs.
DROP VIEW {views}attempts;
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
  FROM {prefix}runs r JOIN {prefix}attempts a ON a.run_seq = r.seq
 WHERE r.state <> 'queued' AND r.state <> 'running'
UNION ALL
-- CROSS JOIN: from the few runs in this state to their attempts, never the other way round.
SELECT r.id, r.job, a.number, a.worker_id,
       strftime('%Y-%m-%d %H:%M:%S', a.started_at / 1000000, 'unixepoch')
           || printf('.%06dZ', a.started_at % 1000000),
       strftime('%Y-%m-%d %H:%M:%S', a.finished_at / 1000000, 'unixepoch')
           || printf('.%06dZ', a.finished_at % 1000000),
       a.outcome, a.error
  FROM {prefix}runs r CROSS JOIN {prefix}attempts a ON a.run_seq = r.seq
 WHERE r.state = 'queued' AND r.attempt > 0
UNION ALL
SELECT r.id, r.job, a.number, a.worker_id,
       strftime('%Y-%m-%d %H:%M:%S', a.started_at / 1000000, 'unixepoch')
           || printf('.%06dZ', a.started_at % 1000000),
       strftime('%Y-%m-%d %H:%M:%S', a.finished_at / 1000000, 'unixepoch')
           || printf('.%06dZ', a.finished_at % 1000000),
       a.outcome, a.error
  FROM {prefix}runs r CROSS JOIN {prefix}attempts a ON a.run_seq = r.seq
 WHERE r.state = 'running'
UNION ALL
SELECT id, job, attempt, worker_id,
       strftime('%Y-%m-%d %H:%M:%S', started_at / 1000000, 'unixepoch')
           || printf('.%06dZ', started_at % 1000000),
       strftime('%Y-%m-%d %H:%M:%S', finished_at / 1000000, 'unixepoch')
           || printf('.%06dZ', finished_at % 1000000),
       'succeeded', NULL
  FROM {prefix}runs
 WHERE state = 'succeeded' AND attempt = 1
   AND state IN ('succeeded', 'dead', 'cancelled') AND state <> 'queued' AND state <> 'running'
UNION ALL
SELECT id, job, attempt, worker_id,
       strftime('%Y-%m-%d %H:%M:%S', started_at / 1000000, 'unixepoch')
           || printf('.%06dZ', started_at % 1000000),
       NULL, NULL, NULL
  FROM {prefix}runs WHERE state = 'running';

-- Every step of every attempt that was begun.
DROP VIEW {views}steps;
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
  FROM {prefix}all_runs r
  JOIN {prefix}steps s ON s.run_seq = r.seq
  LEFT JOIN {prefix}step_marks m
         ON m.run_seq = s.run_seq AND m.number = s.number AND m.attempt = s.attempt
  LEFT JOIN {prefix}attempts a ON a.run_seq = s.run_seq AND a.number = s.attempt;

-- What happened, under the names that listeners know. Routine events are read from runs and
-- attempts; only operators' actions and exceptions have rows. A branch for each kind, so that who asks
-- for one reads no other.
DROP VIEW {views}events;
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
  FROM {prefix}all_runs
UNION ALL
SELECT strftime('%Y-%m-%d %H:%M:%S', finished_at / 1000000, 'unixepoch')
           || printf('.%06dZ', finished_at % 1000000),
       'job.completed', id, job, attempt, coalesce(error, reason)
  FROM {prefix}runs
 WHERE state = 'succeeded'
   AND state IN ('succeeded', 'dead', 'cancelled') AND state <> 'queued' AND state <> 'running'
UNION ALL
SELECT strftime('%Y-%m-%d %H:%M:%S', finished_at / 1000000, 'unixepoch')
           || printf('.%06dZ', finished_at % 1000000),
       'job.failed', id, job, attempt, coalesce(error, reason)
  FROM {prefix}runs
 WHERE state = 'dead'
   AND state IN ('succeeded', 'dead', 'cancelled') AND state <> 'queued' AND state <> 'running'
UNION ALL
SELECT strftime('%Y-%m-%d %H:%M:%S', finished_at / 1000000, 'unixepoch')
           || printf('.%06dZ', finished_at % 1000000),
       'job.cancelled', id, job, attempt, coalesce(error, reason)
  FROM {prefix}runs
 WHERE state = 'cancelled'
   AND state IN ('succeeded', 'dead', 'cancelled') AND state <> 'queued' AND state <> 'running';

-- What became of every occurrence, also of schedules that were dropped. Two branches, so that a
-- schedule's name leads to its rows: a dropped one is found by its last change.
CREATE INDEX {prefix}schedule_changes_dropped ON {prefix}schedule_changes (name)
    WHERE action = 'drop';
DROP VIEW {views}occurrences;
CREATE VIEW {views}occurrences AS
SELECT o.schedule_id,
       s.name AS schedule_name,
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
  FROM {prefix}schedules s JOIN {prefix}occurrences o ON o.schedule_id = s.id
UNION ALL
SELECT o.schedule_id, c.name, NULL,
       strftime('%Y-%m-%d %H:%M:%S', o.occurrence / 1000000, 'unixepoch')
           || printf('.%06dZ', o.occurrence % 1000000),
       strftime('%Y-%m-%d %H:%M:%S', o.last_occurrence / 1000000, 'unixepoch')
           || printf('.%06dZ', o.last_occurrence % 1000000),
       o.count, o.outcome, o.reason, o.run_id,
       strftime('%Y-%m-%d %H:%M:%S', o.recorded_at / 1000000, 'unixepoch')
           || printf('.%06dZ', o.recorded_at % 1000000)
  FROM {prefix}schedule_changes c JOIN {prefix}occurrences o ON o.schedule_id = c.schedule_id
 WHERE c.action = 'drop';
