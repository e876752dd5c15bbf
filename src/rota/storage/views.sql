-- number: 1
-- The public views: what people read with plain SQL, in any client, on every engine. They hold no
-- clock, no function of Rota and no arguments of jobs: SQL alone cannot tell which are secret.
--
-- `rota migrate` replaces them where its text is another one. People have views and grants on these,
-- so that a column is never dropped, renamed, moved or given another type: new ones come last. From
-- the first release on, each release that changes a view raises the number in the first line. An older
-- Rota never replaces views of a higher number.
--
-- {instant x}  an instant as people read it: text that sorts on SQLite, the value itself elsewhere
-- {runs}       the table of runs with {run_id}, the id by which a run is found
-- {option …}   an option of a schedule, of its own type; `more options`: all others that are shown
-- {far}        the cursor of a schedule that waits for its run to end
-- The private views that these read (all_runs, all_steps …) are in the views.sql of each engine.

-- One row per job, with the schedule of the same name, else its oldest one. `queued` counts runs that
-- could start but for a slot or a worker; `running` also holds between two attempts.
CREATE OR REPLACE VIEW {views}jobs AS
SELECT j.name,
       CASE WHEN j.kind = 'cron' THEN j.expr ELSE j.kind || ' ' || j.expr END AS schedule,
       j.enabled AND coalesce(j.schedule_enabled, true) AS enabled,
       j.queue_max,
       j.timeout,
       j.file_count,
       CAST(coalesce(r.queued, 0) AS integer) AS queued,
       coalesce(r.running, false) AS running,
       coalesce(j.error, j.schedule_error) AS error
  FROM {prefix}scheduled_jobs j
  LEFT JOIN (SELECT job,
                    count(*) FILTER (WHERE attempt = 0) AS queued,
                    count(*) FILTER (WHERE attempt > 0) > 0 AS running
               FROM {prefix}open_runs GROUP BY job) r ON r.job = j.name;

-- The runs that wait for a worker or a slot, and those that have begun and are not over.
CREATE OR REPLACE VIEW {views}job_queue AS
SELECT job AS job_name,
       {instant entered_at} AS queued_at,
       {instant started_at} AS started_at
  FROM {prefix}open_runs;

-- One row for every run that began, and one for every step of each of its attempts. `id` is made of the
-- run's number, the attempt and the step, so that it never changes: there is room for 9,998 attempts of
-- 999 files.
CREATE OR REPLACE VIEW {views}job_runs AS
SELECT id,
       run_id,
       job_name,
       record_type,
       file_name,
       {instant q.started_at} AS started_at,
       {instant q.finished_at} AS finished_at,
       status,
       error_message
  FROM (SELECT r.seq * 10000000 AS id,
               r.id AS run_id,
               r.job AS job_name,
               'run' AS record_type,
               NULL AS file_name,
               -- The row of a run has the start of its latest attempt. After a redo that is the right one.
               CASE WHEN r.attempt > 1 AND r.redo = 0
                    THEN coalesce((SELECT min(a.started_at) FROM {prefix}attempts a
                                    WHERE a.run_seq = r.seq), r.started_at)
                    ELSE r.started_at END AS started_at,
               r.finished_at AS finished_at,
               r.status AS status,
               CASE WHEN r.status = 'failed' THEN coalesce(r.error, r.reason) END AS error_message
          FROM {prefix}begun r
        UNION ALL
        SELECT seq * 10000000 + CASE WHEN attempt < 9998 THEN attempt ELSE 9998 END * 1000 + number,
               id,
               job,
               'step',
               name,
               started_at,
               finished_at,
               -- The row of a step still says 'running' after its attempt went down with its worker.
               CASE WHEN marked THEN 'success' WHEN running THEN 'running' ELSE 'failed' END,
               error
          FROM {prefix}all_steps) q;

-- Schedules as they are now.
CREATE OR REPLACE VIEW {views}schedules AS
SELECT id,
       name,
       job AS job_name,
       kind,
       expr,
       {option timezone} AS timezone,
       CASE WHEN error IS NOT NULL THEN 'BROKEN' WHEN NOT enabled THEN 'DISABLED'
            WHEN paused THEN 'PAUSED' WHEN next_fire_at IS NULL THEN 'FINISHED'
            ELSE 'ACTIVE' END AS status,
       enabled,
       paused,
       paused_by,
       {instant paused_at} AS paused_at,
       paused_reason,
       -- NULL while it is paused, or waits for a run to end before it counts on.
       CASE WHEN enabled AND NOT paused AND next_fire_at < {far} THEN {instant next_fire_at} END AS next_fire_at,
       {instant last_fired_at} AS last_fired_at,
       {option overlap} AS overlap,
       {option queue_max} AS queue_max,
       {option on_error} AS on_error,
       {option pause_after} AS pause_after,
       {option catch_up} AS catch_up,
       {option starts_at} AS starts_at,
       {instant ends_at} AS ends_at,
       {option owner} AS owner,
       {instant created_at} AS created_at,
       state,
       error{more options}
  FROM {prefix}schedules;

-- What became of every occurrence, also of dropped schedules. A row may stand for a range of `count`
-- occurrences, up to `last_occurrence`. A dropped schedule has its name from its last change; in a
-- branch of its own, so that either name leads to its rows by an index.
CREATE OR REPLACE VIEW {views}occurrences AS
SELECT o.schedule_id,
       s.name AS schedule_name,
       s.job AS job_name,
       {instant o.occurrence} AS occurrence,
       {instant o.last_occurrence} AS last_occurrence,
       o.count,
       o.outcome,
       o.reason,
       o.run_id,
       {instant o.recorded_at} AS recorded_at
  FROM {prefix}schedules s JOIN {prefix}occurrences o ON o.schedule_id = s.id
UNION ALL
SELECT o.schedule_id,
       c.name,
       NULL,
       {instant o.occurrence},
       {instant o.last_occurrence},
       o.count,
       o.outcome,
       o.reason,
       o.run_id,
       {instant o.recorded_at}
  FROM {prefix}schedule_changes c JOIN {prefix}occurrences o ON o.schedule_id = c.schedule_id
 WHERE c.action = 'drop';

-- The history of schedules, with a branch for dropped ones as above. What a schedule was before and after
-- is left out: it has its arguments.
CREATE OR REPLACE VIEW {views}schedule_changes AS
SELECT c.id,
       {instant c."at"} AS changed_at,
       c.schedule_id,
       s.name AS schedule_name,
       c.action,
       c."by" AS changed_by,
       c.reason
  FROM {prefix}schedules s JOIN {prefix}schedule_changes c ON c.schedule_id = s.id
UNION ALL
SELECT c.id, {instant c."at"}, c.schedule_id, d.name, c.action, c."by", c.reason
  FROM {prefix}schedule_changes d JOIN {prefix}schedule_changes c ON c.schedule_id = d.schedule_id
 WHERE d.action = 'drop';

-- Runs in every state.
CREATE OR REPLACE VIEW {views}runs AS
SELECT seq,
       {run_id} AS run_id,
       job AS job_name,
       queue,
       priority,
       state,
       {instant due_at} AS due_at,
       {instant created_at} AS created_at,
       {instant queued_at} AS queued_at,
       {instant started_at} AS started_at,
       {instant finished_at} AS finished_at,
       attempt,
       failures,
       lost,
       redo,
       max_attempts,
       timeout,
       schedule_id,
       {instant occurrence} AS occurrence,
       missed_count,
       retry_of,
       created_by,
       worker_id,
       {instant lease_until} AS lease_until,
       progress,
       result,
       error,
       reason,
       {instant cancel_requested_at} AS cancel_requested_at,
       correlation_id
  FROM {runs};

-- The runs that are out of attempts and wait for a person.
CREATE OR REPLACE VIEW {views}dead AS
SELECT {run_id} AS run_id,
       job AS job_name,
       queue,
       {instant started_at} AS started_at,
       {instant finished_at} AS finished_at,
       attempt,
       failures,
       lost,
       error
  FROM {runs} WHERE state = 'dead';

-- Every attempt of every run, also those that have no row of their own.
CREATE OR REPLACE VIEW {views}attempts AS
SELECT id AS run_id,
       job AS job_name,
       number,
       worker_id,
       {instant started_at} AS started_at,
       {instant finished_at} AS finished_at,
       outcome,
       error
  FROM {prefix}all_attempts;

-- Every step of every attempt that was begun.
CREATE OR REPLACE VIEW {views}steps AS
SELECT id AS run_id,
       job AS job_name,
       attempt,
       number,
       name AS file_name,
       {instant started_at} AS started_at,
       {instant finished_at} AS finished_at,
       CASE WHEN marked THEN 'succeeded'
            WHEN status = 'running' AND NOT running THEN coalesce(outcome, 'lost') ELSE status END AS status,
       rows,
       result,
       error,
       note
  FROM {prefix}all_steps;

-- What happened, under the names that listeners know. Routine events are read from runs and attempts; only
-- actions of operators and exceptions have rows. One branch per kind, so that a condition on the kind
-- leaves the others unread.
CREATE OR REPLACE VIEW {views}events AS
SELECT {instant "at"} AS happened_at,
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
SELECT {instant created_at}, 'run.created', id, job, NULL, created_by FROM {prefix}all_runs
UNION ALL
SELECT {instant finished_at}, kind, id, job, attempt, detail FROM {prefix}ended_runs
UNION ALL
SELECT {instant "at"}, action, NULL, thing, NULL, "by" || ' via ' || via || coalesce(': ' || reason, '')
  FROM {prefix}audit;

-- The processes that work. A process that has not been seen for longer than a lease is gone.
CREATE OR REPLACE VIEW {views}workers AS
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
       {instant started_at} AS started_at,
       {instant seen_at} AS seen_at
  FROM {prefix}workers;

-- Queues, with what is in them.
CREATE OR REPLACE VIEW {views}queues AS
SELECT q.name,
       q.paused,
       q.reason,
       q.paused_by,
       {instant q.paused_at} AS paused_at,
       coalesce(c.queued, 0) AS queued,
       coalesce(r.running, 0) AS running,
       {instant c.oldest_at} AS oldest_at
  FROM {prefix}queues q
  LEFT JOIN (SELECT queue, count(*) AS queued, min(due_at) AS oldest_at
               FROM {prefix}runs WHERE state = 'queued' GROUP BY queue) c ON c.queue = q.name
  LEFT JOIN (SELECT queue, count(*) AS running
               FROM {prefix}runs WHERE state = 'running' GROUP BY queue) r ON r.queue = q.name;
