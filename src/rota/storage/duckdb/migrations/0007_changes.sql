-- The history of schedules, and what people did, to be read by SQL. Without what a schedule was
-- before and after: that has its arguments.

CREATE VIEW {views}schedule_changes AS
SELECT c.id,
       c."at" AS changed_at,
       c.schedule_id,
       c.name AS schedule_name,
       c.action,
       c."by" AS changed_by,
       c.reason
  FROM {prefix}schedule_changes c;

CREATE OR REPLACE VIEW {views}events AS
SELECT "at" AS happened_at,
       kind,
       run_id,
       name,
       NULL::INTEGER AS attempt,
       detail
  FROM {prefix}events
UNION ALL
SELECT started_at, 'attempt.started', run_id, job_name, number, NULL FROM {views}attempts
UNION ALL
SELECT finished_at, 'attempt.' || outcome, run_id, job_name, number, error
  FROM {views}attempts WHERE outcome IS NOT NULL
UNION ALL
SELECT created_at,
       'run.created', id, job, NULL, created_by
  FROM {prefix}runs
UNION ALL
SELECT finished_at,
       CASE state WHEN 'succeeded' THEN 'job.completed' WHEN 'dead' THEN 'job.failed'
                  ELSE 'job.cancelled' END, id, job, attempt, coalesce(error, reason)
  FROM {prefix}runs WHERE state IN ('succeeded', 'dead', 'cancelled')
UNION ALL
SELECT "at", action, NULL, thing, NULL, "by" || ' via ' || via || coalesce(': ' || reason, '')
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
       CASE WHEN enabled AND NOT paused AND next_fire_at < '9999-01-01 00:00:00+00'::TIMESTAMPTZ THEN next_fire_at END AS next_fire_at,
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
