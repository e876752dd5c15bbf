-- The history of schedules, and what people did, to be read by SQL. Without what a schedule was
-- before and after: that has its arguments.

-- Two branches, as of occurrences: a name leads to its rows, also that of a dropped one.
CREATE VIEW {views}schedule_changes AS
SELECT c.id,
       strftime('%Y-%m-%d %H:%M:%S', c.at / 1000000, 'unixepoch')
           || printf('.%06dZ', c.at % 1000000) AS changed_at,
       c.schedule_id,
       s.name AS schedule_name,
       c.action,
       c.by AS changed_by,
       c.reason
  FROM {prefix}schedules s JOIN {prefix}schedule_changes c ON c.schedule_id = s.id
UNION ALL
SELECT c.id,
       strftime('%Y-%m-%d %H:%M:%S', c.at / 1000000, 'unixepoch')
           || printf('.%06dZ', c.at % 1000000),
       c.schedule_id, d.name, c.action, c.by, c.reason
  FROM {prefix}schedule_changes d JOIN {prefix}schedule_changes c ON c.schedule_id = d.schedule_id
 WHERE d.action = 'drop';

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
   AND state IN ('succeeded', 'dead', 'cancelled') AND state <> 'queued' AND state <> 'running'
UNION ALL
SELECT strftime('%Y-%m-%d %H:%M:%S', at / 1000000, 'unixepoch')
           || printf('.%06dZ', at % 1000000),
       action, NULL, thing, NULL, by || ' via ' || via || coalesce(': ' || reason, '')
  FROM {prefix}audit;

DROP VIEW {views}schedules;
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
       -- None while it is held, or counts from the end of a run that goes on.
       CASE WHEN enabled AND NOT paused AND next_fire_at < 253370764800000000
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
