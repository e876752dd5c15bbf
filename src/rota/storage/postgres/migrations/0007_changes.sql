-- The history of schedules, and what people did, to be read by SQL. Without what a schedule was
-- before and after: that has its arguments.

-- Two branches, as of occurrences: a name leads to its rows, also that of a dropped one.
CREATE VIEW {views}schedule_changes AS
SELECT c.id,
       c.at AS changed_at,
       c.schedule_id,
       s.name AS schedule_name,
       c.action,
       c.by AS changed_by,
       c.reason
  FROM {prefix}schedules s JOIN {prefix}schedule_changes c ON c.schedule_id = s.id
UNION ALL
SELECT c.id, c.at, c.schedule_id, d.name, c.action, c.by, c.reason
  FROM {prefix}schedule_changes d JOIN {prefix}schedule_changes c ON c.schedule_id = d.schedule_id
 WHERE d.action = 'drop';

CREATE OR REPLACE VIEW {views}events AS
SELECT at AS happened_at,
       kind,
       run_id,
       name,
       NULL::integer AS attempt,
       detail
  FROM {prefix}events
UNION ALL
SELECT started_at, 'attempt.started', run_id, job_name, number, NULL FROM {views}attempts
UNION ALL
SELECT finished_at, 'attempt.' || outcome, run_id, job_name, number, error
  FROM {views}attempts WHERE outcome IS NOT NULL
UNION ALL
SELECT created_at, 'run.created', id, job, NULL, created_by FROM {prefix}all_runs
UNION ALL
SELECT finished_at, 'job.completed', id, job, attempt, coalesce(error, reason)
  FROM {prefix}runs WHERE state = 'succeeded'
UNION ALL
SELECT finished_at, 'job.failed', id, job, attempt, coalesce(error, reason)
  FROM {prefix}runs WHERE state = 'dead'
UNION ALL
SELECT finished_at, 'job.cancelled', id, job, attempt, coalesce(error, reason)
  FROM {prefix}runs WHERE state = 'cancelled'
UNION ALL
SELECT at, action, NULL, thing, NULL, by || ' via ' || via || coalesce(': ' || reason, '')
  FROM {prefix}audit;

CREATE OR REPLACE VIEW {views}schedules AS
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
       paused_at,
       paused_reason,
       -- None while it is held, or counts from the end of a run that goes on.
       CASE WHEN enabled AND NOT paused AND next_fire_at < '9999-01-01Z' THEN next_fire_at END AS next_fire_at,
       last_fired_at,
       overlap,
       queue_max,
       on_error,
       pause_after,
       catch_up,
       starts_at,
       ends_at,
       owner,
       created_at,
       state,
       error
  FROM {prefix}schedules;
