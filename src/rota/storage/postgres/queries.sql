-- Every statement Rota sends to PostgreSQL, in the order of a run's path.
-- Statements over many rows get one array per column and read them with unnest: one round trip.
-- {now} is volatile. Where a row is found by it, it stands in a subquery, which is evaluated once and
-- can use an index; where two places must agree, it stands in the first WITH.
-- Where many rows are found by their seq, the arrays stand in subqueries as well, and the fence in a
-- CASE. Then the planner can guess neither how many they are nor how few will pass, and goes from seq
-- to seq also where no setting of ours keeps it from reading the whole table: sent alone, behind a
-- pooler.

-- name: now
SELECT {now} AS now_at;

--------------------------------------------------------------------------------------- fire

-- name: due_schedules
-- By plan key: those that one plan fires stand together.
SELECT {columns schedules}
  FROM {prefix}schedules
 WHERE enabled AND NOT paused AND next_fire_at IS NOT NULL
   AND next_fire_at <= (SELECT {now} + make_interval(secs => :ahead_seconds))
 ORDER BY next_fire_at, plan_key LIMIT :limit;

-- name: newest_due_schedules
SELECT {columns schedules}
  FROM {prefix}schedules
 WHERE enabled AND NOT paused AND next_fire_at IS NOT NULL
   AND next_fire_at <= (SELECT {now} + make_interval(secs => :ahead_seconds))
 ORDER BY next_fire_at DESC, plan_key DESC LIMIT :limit;

-- name: next_fire_at
SELECT min(next_fire_at) AS next_fire_at FROM {prefix}schedules
 WHERE enabled AND NOT paused AND next_fire_at IS NOT NULL;

-- name: advance_schedules
-- Compare-and-set of the cursor: no row means that another process fired it, or that somebody edited
-- the schedule, and nothing is inserted.
-- A locked row means that another process is just doing so: nobody waits for it. A plan that was made
-- ahead waits if the clock was set back.
UPDATE {prefix}schedules AS s
   SET next_fire_at = won.next_fire_at, last_fired_at = coalesce(won.last_fired_at, s.last_fired_at)
  FROM (SELECT a.id, a.next_fire_at, a.last_fired_at
          FROM unnest(:id::bigint[], :cursor_at::timestamptz[], :revision::bigint[],
                      :next_fire_at::timestamptz[], :last_fired_at::timestamptz[])
               AS a(id, cursor_at, revision, next_fire_at, last_fired_at)
         CROSS JOIN LATERAL (
               SELECT 1 FROM {prefix}schedules
                WHERE id = a.id AND next_fire_at = a.cursor_at AND revision = a.revision
                  AND enabled AND NOT paused AND next_fire_at <= (SELECT {now})
                  FOR UPDATE SKIP LOCKED) AS locked) AS won
 WHERE s.id = won.id
RETURNING s.id;

-- name: fire_free
-- What advance_schedules, take_slots, insert_occurrences and insert_fired_runs do, in one round trip,
-- for schedules that are on time and whose slot is free: one occurrence, one run that starts. A
-- schedule that is not answered is left to those. The comparison of the cursor is theirs, too.
-- With a worker it is the claim as well (`claim_runs`): what could begin at once begins as the
-- worker's, unless anything stands in a line that it serves. Then the order is for a claim to find.
WITH t AS MATERIALIZED (SELECT {now} AS now),
open AS MATERIALIZED (
    SELECT name FROM {prefix}queues
     WHERE :worker_id::text IS NOT NULL
       AND NOT paused AND (:queues::text[] = '{}' OR name = ANY (:queues::text[]))
       AND NOT EXISTS (SELECT 1 FROM {prefix}meta WHERE key = 'dispatch' AND value <> 'on')
), line AS MATERIALIZED (
    SELECT EXISTS (SELECT 1 FROM open CROSS JOIN LATERAL (
           SELECT 1 FROM {prefix}runs
            WHERE state = 'queued' AND queue = open.name AND job = ANY (:jobs::text[])
            ORDER BY priority DESC, due_at, seq LIMIT 1) AS head) AS waits
),
won AS MATERIALIZED (
    SELECT nextval('{prefix}runs_seq') AS seq, free.*,
           NOT (SELECT waits FROM line) AND job = ANY (:jobs::text[])
           AND queue IN (SELECT name FROM open) AND wanted_key IS NULL
           AND due_at <= (SELECT now FROM t) AS begins
      FROM (SELECT a.*
              FROM unnest(:schedule_id::bigint[], :cursor_at::timestamptz[], :revision::bigint[],
                          :next_fire_at::timestamptz[], :key::text[], :id::uuid[], :job::text[],
                          :queue::text[], :priority::integer[], :due_at::timestamptz[],
                          :max_attempts::integer[], :timeout::text[], :backoff::json[],
                          :args::json[], :overlap_key::text[], :concurrency_key::text[],
                          :concurrency_limit::integer[], :wanted_key::text[],
                          :occurrence::timestamptz[], :missed_count::bigint[], :created_by::text[],
                          :trace::text[])
                   AS a(schedule_id, cursor_at, revision, next_fire_at, key, id, job, queue, priority,
                        due_at, max_attempts, timeout, backoff, args, overlap_key, concurrency_key,
                        concurrency_limit, wanted_key, occurrence, missed_count, created_by, trace)
             CROSS JOIN LATERAL (
                   SELECT 1 FROM {prefix}schedules
                    WHERE id = a.schedule_id AND next_fire_at = a.cursor_at
                      AND revision = a.revision AND enabled AND NOT paused
                      AND next_fire_at <= (SELECT now FROM t)
                      FOR UPDATE SKIP LOCKED) AS locked
             WHERE NOT EXISTS (SELECT 1 FROM {prefix}slots WHERE key = a.key AND number = 1)
               AND NOT EXISTS (SELECT 1 FROM {prefix}runs WHERE state = 'held' AND wanted_key = a.key)
               AND NOT EXISTS (SELECT 1 FROM {prefix}runs
                                WHERE state = 'waiting' AND wanted_key = a.key AND attempt = 0
                                  AND occurrence IS NOT NULL AND retry_of IS NULL)
           ) AS free
), moved AS (
    UPDATE {prefix}schedules AS s
       SET next_fire_at = won.next_fire_at, last_fired_at = won.occurrence
      FROM won WHERE s.id = won.schedule_id
), taken AS (
    INSERT INTO {prefix}slots (key, number, owner_run)
    SELECT key, 1, seq FROM won WHERE key IS NOT NULL ORDER BY key COLLATE "C"
), told AS (
    INSERT INTO {prefix}occurrences (schedule_id, occurrence, last_occurrence, count, outcome,
           run_id, recorded_at)
    SELECT schedule_id, occurrence, occurrence, 1, 'fired', id, now FROM won, t
), named AS (
    INSERT INTO {prefix}run_ids (id, seq) SELECT id, seq FROM won
)
INSERT INTO {prefix}runs (seq, id, job, queue, priority, state, due_at, created_at, queued_at,
       max_attempts, timeout, backoff, args, overlap_key, concurrency_key, concurrency_limit,
       wanted_key, schedule_id, occurrence, missed_count, created_by, trace,
       attempt, worker_id, claimed_at, started_at, lease_until)
SELECT seq, id, job, queue, priority,
       CASE WHEN begins THEN 'running' WHEN due_at > now THEN 'waiting'
            WHEN wanted_key IS NULL THEN 'queued' ELSE 'held' END,
       due_at, now, CASE WHEN due_at <= now THEN now END,
       max_attempts, timeout, backoff, args, overlap_key, concurrency_key, concurrency_limit,
       wanted_key, schedule_id, occurrence, missed_count, created_by, trace,
       begins::integer, CASE WHEN begins THEN :worker_id END, CASE WHEN begins THEN now END,
       CASE WHEN begins THEN now END,
       CASE WHEN begins THEN now + make_interval(secs => :lease_seconds) END
  FROM won, t
RETURNING seq, id::text, job, queue, attempt, failures, lost, max_attempts, args::text, timeout,
          backoff::text, overlap_key, concurrency_key, schedule_id, occurrence, due_at,
          missed_count, cancel_requested_at, correlation_id, trace, priority;

-- name: due_kin
-- All schedules of which one plan says what becomes of them.
SELECT id FROM {prefix}schedules
 WHERE enabled AND NOT paused AND next_fire_at = :next_fire_at::timestamptz
   AND plan_key = :plan_key AND json_typeof(args) = 'object'
 ORDER BY id LIMIT :limit::bigint;

-- name: fire_kin
-- What fire_free does, for schedules of one kin: what they share is bound once, and the rest is read
-- where it is. Each is found again by its place: where it moved in between, nothing happens to it.
WITH t AS MATERIALIZED (SELECT {now} AS now),
free AS MATERIALIZED (
    SELECT a.id, locked.place
      FROM (SELECT schedule_id, id,
                   CASE WHEN :has_slot::boolean THEN 'o/schedule ' || schedule_id END AS key
              FROM unnest(:ids::bigint[], :run_ids::uuid[]) AS one(schedule_id, id)) AS a
     CROSS JOIN LATERAL (
           SELECT ctid AS place FROM {prefix}schedules
            WHERE id = a.schedule_id AND next_fire_at = :cursor_at::timestamptz
              AND plan_key = :plan_key AND enabled AND NOT paused
              AND next_fire_at <= (SELECT now FROM t)
              FOR UPDATE SKIP LOCKED) AS locked
     -- Asked for each, whatever the planner thinks: never by a walk over all slots.
     WHERE (SELECT 1 FROM {prefix}slots WHERE key = a.key AND number = 1 LIMIT 1) IS NULL
       AND (SELECT 1 FROM {prefix}runs WHERE state = 'held' AND wanted_key = a.key LIMIT 1) IS NULL
       AND (SELECT 1 FROM {prefix}runs
             WHERE state = 'waiting' AND wanted_key = a.key AND attempt = 0
               AND occurrence IS NOT NULL AND retry_of IS NULL LIMIT 1) IS NULL
), moved AS (
    UPDATE {prefix}schedules AS s
       SET next_fire_at = :next_fire_at::timestamptz, last_fired_at = :cursor_at::timestamptz
      FROM free WHERE s.ctid = free.place
    RETURNING nextval('{prefix}runs_seq') AS seq, free.id, s.id AS schedule_id, s.name, s.args
), taken AS (
    INSERT INTO {prefix}slots (key, number, owner_run)
    SELECT 'o/schedule ' || schedule_id, 1, seq FROM moved WHERE :has_slot::boolean
     ORDER BY ('o/schedule ' || schedule_id) COLLATE "C"
), told AS (
    INSERT INTO {prefix}occurrences (schedule_id, occurrence, last_occurrence, count, outcome,
           run_id, recorded_at)
    SELECT schedule_id, :cursor_at::timestamptz, :cursor_at::timestamptz, 1, 'fired', id, now
      FROM moved, t
), named AS (
    INSERT INTO {prefix}run_ids (id, seq) SELECT id, seq FROM moved
)
INSERT INTO {prefix}runs (seq, id, job, queue, priority, state, due_at, created_at, queued_at,
       max_attempts, timeout, backoff, args, overlap_key, concurrency_key, concurrency_limit,
       wanted_key, schedule_id, occurrence, missed_count, created_by)
SELECT seq, id, :job, :queue, :priority::integer,
       CASE WHEN :wanted_key::text IS NULL THEN 'queued' ELSE 'held' END, :due_at::timestamptz, now,
       now, :max_attempts::integer, :timeout::text, :backoff::json, args,
       CASE WHEN :has_slot::boolean THEN 'schedule ' || schedule_id END, :concurrency_key::text,
       :concurrency_limit::integer, :wanted_key::text, schedule_id, :cursor_at::timestamptz,
       :missed_count::bigint, 'schedule ' || name
  FROM moved, t
RETURNING schedule_id;

-- name: park_schedules
-- A schedule that cannot be planned leaves the due index, visibly, and delays nobody. One that is
-- locked may stay so for as long as somebody's transaction is open: it is parked at a later look.
UPDATE {prefix}schedules AS s
   SET next_fire_at = NULL, error = won.error, state = won.error
  FROM (SELECT a.id, a.error
          FROM unnest(:id::bigint[], :cursor_at::timestamptz[], :revision::bigint[], :error::text[])
               AS a(id, cursor_at, revision, error)
         CROSS JOIN LATERAL (
               SELECT 1 FROM {prefix}schedules
                WHERE id = a.id AND next_fire_at = a.cursor_at AND revision = a.revision
                  FOR UPDATE SKIP LOCKED) AS locked) AS won
 WHERE s.id = won.id
RETURNING s.id;

-- name: allocate_seqs
SELECT nextval('{prefix}runs_seq') AS seq FROM generate_series(1, :count::integer);

-- name: take_slots
-- A key that somebody already waits for is not free: the line is first in, first out. A fired run
-- whose jitter or spread has not passed, or that nobody promoted yet, stands in line as well.
-- A slot that is seen taken is left alone: its owner may be giving it back, and would be waited for.
INSERT INTO {prefix}slots (key, number, owner_run)
SELECT a.key, 1, a.seq
  FROM unnest(:key::text[], :seq::bigint[]) AS a(key, seq)
 WHERE NOT EXISTS (SELECT 1 FROM {prefix}runs WHERE state = 'held' AND wanted_key = a.key)
   AND NOT EXISTS (SELECT 1 FROM {prefix}runs WHERE state = 'waiting' AND wanted_key = a.key
                      AND attempt = 0 AND occurrence IS NOT NULL AND retry_of IS NULL)
   AND NOT EXISTS (SELECT 1 FROM {prefix}slots s WHERE s.key = a.key AND s.number = 1)
 ORDER BY a.key COLLATE "C"
ON CONFLICT (key, number) DO NOTHING
RETURNING key, owner_run;

-- name: count_held
-- A fired run whose jitter or spread has not passed stands in line as well.
SELECT key, sum(held)::bigint AS held
  FROM (SELECT wanted_key AS key, count(*) AS held FROM {prefix}runs
         WHERE state = 'held' AND wanted_key = ANY (:keys::text[])
         GROUP BY wanted_key
        UNION ALL
        SELECT wanted_key, count(*) FROM {prefix}runs
         WHERE state = 'waiting' AND attempt = 0 AND occurrence IS NOT NULL AND retry_of IS NULL
           AND wanted_key = ANY (:keys::text[])
         GROUP BY wanted_key) AS line
 GROUP BY key;

-- name: insert_fired_runs
WITH t AS MATERIALIZED (SELECT {now} AS now),
named AS (
    INSERT INTO {prefix}run_ids (id, seq) SELECT * FROM unnest(:id::uuid[], :seq::bigint[])
)
INSERT INTO {prefix}runs (seq, id, job, queue, priority, state, due_at, created_at, queued_at,
       max_attempts, timeout, backoff, args, overlap_key, concurrency_key, concurrency_limit,
       wanted_key, schedule_id, occurrence, missed_count, created_by, trace)
SELECT a.seq, a.id, a.job, a.queue, a.priority,
       CASE WHEN a.due_at > t.now THEN 'waiting' WHEN a.wanted_key IS NULL THEN 'queued' ELSE 'held' END,
       a.due_at, t.now, CASE WHEN a.due_at <= t.now THEN t.now END,
       a.max_attempts, a.timeout, a.backoff, a.args, a.overlap_key, a.concurrency_key,
       a.concurrency_limit, a.wanted_key, a.schedule_id, a.occurrence, a.missed_count, a.created_by,
       a.trace
  FROM t, unnest(:seq::bigint[], :id::uuid[], :job::text[], :queue::text[], :priority::integer[],
                 :due_at::timestamptz[], :max_attempts::integer[], :timeout::text[],
                 :backoff::json[], :args::json[], :overlap_key::text[], :concurrency_key::text[],
                 :concurrency_limit::integer[], :wanted_key::text[], :schedule_id::bigint[],
                 :occurrence::timestamptz[], :missed_count::bigint[], :created_by::text[],
                 :trace::text[])
          AS a(seq, id, job, queue, priority, due_at, max_attempts, timeout, backoff, args,
               overlap_key, concurrency_key, concurrency_limit, wanted_key, schedule_id, occurrence,
               missed_count, created_by, trace);

-- name: merge_into_held
-- overlap = wait: the one held run stands for this occurrence too. One that is locked is being
-- admitted, paused or cancelled: no row, and the caller holds a run of its own.
UPDATE {prefix}runs AS r SET missed_count = r.missed_count + head.missed_count
  FROM (SELECT a.missed_count, line.seq
          FROM unnest(:key::text[], :missed_count::bigint[]) AS a(key, missed_count)
         CROSS JOIN LATERAL (
               SELECT seq FROM (
                   SELECT seq FROM {prefix}runs WHERE state = 'held' AND wanted_key = a.key
                    ORDER BY priority DESC, seq LIMIT 1 FOR UPDATE SKIP LOCKED) AS held
               UNION ALL
               SELECT seq FROM (
                   SELECT seq FROM {prefix}runs
                    WHERE state = 'waiting' AND attempt = 0 AND occurrence IS NOT NULL
                      AND retry_of IS NULL AND wanted_key = a.key
                    ORDER BY seq LIMIT 1 FOR UPDATE SKIP LOCKED) AS delayed
               LIMIT 1) AS line) AS head
 WHERE r.seq = head.seq
RETURNING r.id::text, r.wanted_key AS key;

-- name: insert_occurrences
-- The unique ledger is the second line of defence; it outlives the run rows.
INSERT INTO {prefix}occurrences (schedule_id, occurrence, last_occurrence, count, outcome, reason,
       run_id, recorded_at)
SELECT a.schedule_id, a.occurrence, a.last_occurrence, a.count, a.outcome, a.reason, a.run_id, {now}
  FROM unnest(:schedule_id::bigint[], :occurrence::timestamptz[], :last_occurrence::timestamptz[],
              :count::bigint[], :outcome::text[], :reason::text[], :run_id::uuid[])
       AS a(schedule_id, occurrence, last_occurrence, count, outcome, reason, run_id)
ON CONFLICT (schedule_id, occurrence) DO NOTHING;

------------------------------------------------------------------------------------ enqueue

-- name: take_keys
-- A key that is not taken is locked all the same, so that it is still there for find_keys.
WITH t AS MATERIALIZED (SELECT {now} AS now)
INSERT INTO {prefix}run_keys AS k (job, key, run_id, until)
SELECT a.job, a.key, a.run_id, t.now + make_interval(secs => a.ttl_seconds)
  FROM t, unnest(:job::text[], :key::text[], :run_id::uuid[], :ttl_seconds::float8[])
          AS a(job, key, run_id, ttl_seconds)
ON CONFLICT (job, key) DO UPDATE SET run_id = excluded.run_id, until = excluded.until
 WHERE k.until <= (SELECT now FROM t)
RETURNING job, key, run_id::text;

-- name: find_keys
SELECT k.job, k.key, k.run_id::text FROM {prefix}run_keys k
  JOIN unnest(:jobs::text[], :keys::text[]) AS a(job, key) ON k.job = a.job AND k.key = a.key;

-- name: insert_queues
INSERT INTO {prefix}queues (name) SELECT unnest(:name::text[]) ON CONFLICT (name) DO NOTHING;

-- name: insert_plain_run
-- insert_run for one that says nothing but what it is, and with no answer: a tenth less for the
-- server. The clock is read three times, and goes on between them.
WITH made AS (
    INSERT INTO {prefix}runs (id, job, queue, priority, state, due_at, created_at, queued_at,
           max_attempts, args, created_by)
    VALUES (:id::uuid, :job, :queue, :priority::integer, 'queued', {now}, {now}, {now},
           :max_attempts::integer, :args::json, :created_by)
    RETURNING seq, id
)
INSERT INTO {prefix}run_ids (id, seq) SELECT id, seq FROM made;

-- name: insert_run
-- insert_new_runs for one, and its number.
WITH made AS (
    INSERT INTO {prefix}runs (id, job, queue, priority, state, due_at, created_at, queued_at,
           max_attempts, timeout, backoff, args, overlap_key, concurrency_key, concurrency_limit,
           wanted_key, schedule_id, occurrence, retry_of, created_by, correlation_id, trace)
    SELECT :id::uuid, :job, :queue, :priority::integer,
           CASE WHEN due > now THEN 'waiting' WHEN :wanted_key::text IS NULL THEN 'queued' ELSE 'held' END,
           due, now, CASE WHEN due <= now THEN now END,
           :max_attempts::integer, :timeout, :backoff::json, :args::json, :overlap_key, :concurrency_key,
           :concurrency_limit::integer, :wanted_key, :schedule_id::bigint, :occurrence::timestamptz,
           :retry_of, :created_by, :correlation_id, :trace
      FROM (SELECT now, coalesce(:due_at::timestamptz,
                                 now + make_interval(secs => :delay_seconds::float8)) AS due
              FROM (SELECT {now} AS now OFFSET 0) AS n OFFSET 0) AS t
    RETURNING seq, id
)
INSERT INTO {prefix}run_ids (id, seq) SELECT id, seq FROM made RETURNING seq;

-- name: insert_new_runs
-- insert_alike_runs as a transaction of its own, where to look for each id first would cost a fifth:
-- if it was sent before and its answer was lost, it fails. Rows of unnest come in its order.
WITH t AS MATERIALIZED (
    SELECT now, coalesce(:due_at::timestamptz, now + make_interval(secs => :delay_seconds::float8)) AS due
      FROM (SELECT {now} AS now) AS n
), made AS (
    INSERT INTO {prefix}runs (id, job, queue, priority, state, due_at, created_at, queued_at,
           max_attempts, timeout, backoff, args, overlap_key, concurrency_key, concurrency_limit,
           wanted_key, schedule_id, occurrence, retry_of, created_by, correlation_id, trace)
    SELECT a.id, :job, :queue, :priority::integer,
           CASE WHEN due > now THEN 'waiting' WHEN :wanted_key::text IS NULL THEN 'queued' ELSE 'held' END,
           due, now, CASE WHEN due <= now THEN now END,
           :max_attempts::integer, :timeout, :backoff::json, a.args, :overlap_key, :concurrency_key,
           :concurrency_limit::integer, :wanted_key, :schedule_id::bigint, :occurrence::timestamptz,
           :retry_of, :created_by, :correlation_id, :trace
      FROM t, unnest(:id::uuid[], :args::json[]) AS a(id, args)
    RETURNING seq, id
)
INSERT INTO {prefix}run_ids (id, seq) SELECT id, seq FROM made;

-- name: insert_alike_runs
-- insert_runs for many that differ in id and arguments alone.
WITH t AS MATERIALIZED (
    SELECT now, coalesce(:due_at::timestamptz, now + make_interval(secs => :delay_seconds::float8)) AS due
      FROM (SELECT {now} AS now) AS n
), made AS (
    INSERT INTO {prefix}run_ids (id, seq)
    SELECT id, nextval('{prefix}runs_seq')
      FROM (SELECT id FROM unnest(:id::uuid[]) WITH ORDINALITY AS a(id, place) ORDER BY place) AS a
    ON CONFLICT (id) DO NOTHING
    RETURNING seq, id
)
INSERT INTO {prefix}runs (seq, id, job, queue, priority, state, due_at, created_at, queued_at,
       max_attempts, timeout, backoff, args, overlap_key, concurrency_key, concurrency_limit,
       wanted_key, schedule_id, occurrence, retry_of, created_by, correlation_id, trace)
SELECT made.seq, made.id, :job, :queue, :priority::integer,
       CASE WHEN due > now THEN 'waiting' WHEN :wanted_key::text IS NULL THEN 'queued' ELSE 'held' END,
       due, now, CASE WHEN due <= now THEN now END,
       :max_attempts::integer, :timeout, :backoff::json, a.args, :overlap_key, :concurrency_key,
       :concurrency_limit::integer, :wanted_key, :schedule_id::bigint, :occurrence::timestamptz,
       :retry_of, :created_by, :correlation_id, :trace
  FROM t, unnest(:id::uuid[], :args::json[]) AS a(id, args) JOIN made ON made.id = a.id
 ORDER BY made.seq;

-- name: insert_runs
-- The id comes from the caller: after a lost answer the same insert can be sent again.
-- Ordered, because seq is the order of the line.
WITH t AS MATERIALIZED (SELECT {now} AS now),
made AS (
    INSERT INTO {prefix}run_ids (id, seq)
    SELECT id, nextval('{prefix}runs_seq')
      FROM (SELECT id FROM unnest(:id::uuid[]) WITH ORDINALITY AS a(id, place) ORDER BY place) AS a
    ON CONFLICT (id) DO NOTHING
    RETURNING seq, id
)
INSERT INTO {prefix}runs (seq, id, job, queue, priority, state, due_at, created_at, queued_at,
       max_attempts, timeout, backoff, args, overlap_key, concurrency_key, concurrency_limit,
       wanted_key, schedule_id, occurrence, retry_of, created_by, correlation_id, trace)
SELECT made.seq, made.id, a.job, a.queue, a.priority,
       CASE WHEN due > t.now THEN 'waiting' WHEN a.wanted_key IS NULL THEN 'queued' ELSE 'held' END,
       due, t.now, CASE WHEN due <= t.now THEN t.now END,
       a.max_attempts, a.timeout, a.backoff, a.args, a.overlap_key, a.concurrency_key,
       a.concurrency_limit, a.wanted_key, a.schedule_id, a.occurrence, a.retry_of, a.created_by,
       a.correlation_id, a.trace
  FROM t, unnest(:id::uuid[], :job::text[], :queue::text[], :priority::integer[],
                 :due_at::timestamptz[], :delay_seconds::float8[], :max_attempts::integer[],
                 :timeout::text[], :backoff::json[], :args::json[], :overlap_key::text[],
                 :concurrency_key::text[], :concurrency_limit::integer[], :wanted_key::text[],
                 :schedule_id::bigint[], :occurrence::timestamptz[], :retry_of::text[],
                 :created_by::text[], :correlation_id::text[], :trace::text[])
          AS a(id, job, queue, priority, due_at, delay_seconds, max_attempts, timeout, backoff, args,
               overlap_key, concurrency_key, concurrency_limit, wanted_key, schedule_id, occurrence,
               retry_of, created_by, correlation_id, trace)
          JOIN made ON made.id = a.id,
       LATERAL (SELECT coalesce(a.due_at, t.now + make_interval(secs => a.delay_seconds)) AS due) AS d
 ORDER BY made.seq
RETURNING id::text;

------------------------------------------------------------------------------------ promote

-- name: promote_runs
-- A run that still wants a slot goes to held; admit does the rest. The inner SELECT names the state
-- and locks the rows; the UPDATE goes by seq alone, so that no other index can tempt the planner.
UPDATE {prefix}runs
   SET state = CASE WHEN wanted_key IS NULL THEN 'queued' ELSE 'held' END, queued_at = {now}
 WHERE seq = ANY (ARRAY(SELECT seq FROM {prefix}runs
                         WHERE state = 'waiting' AND due_at <= (SELECT {now})
                         ORDER BY due_at LIMIT :limit FOR UPDATE SKIP LOCKED))
RETURNING wanted_key;

-- name: next_due_at
SELECT min(due_at) AS next_due_at FROM {prefix}runs WHERE state = 'waiting';

-------------------------------------------------------------------------------------- admit

-- name: held_keys
-- One index step per key, however many runs wait for it.
WITH RECURSIVE keys(key) AS (
    SELECT min(wanted_key) FROM {prefix}runs WHERE state = 'held' AND wanted_key > :after
    UNION ALL
    SELECT (SELECT min(wanted_key) FROM {prefix}runs WHERE state = 'held' AND wanted_key > keys.key)
      FROM keys WHERE keys.key IS NOT NULL
)
SELECT key FROM keys WHERE key IS NOT NULL LIMIT :limit;

-- name: taken_numbers
-- This and the next one are for who looks and plants by hand: admit_runs does both for many keys.
SELECT number FROM {prefix}slots WHERE key = :key;

-- name: take_slot
INSERT INTO {prefix}slots (key, number, owner_run) VALUES (:key, :number, :seq);

-- name: admit_runs
-- What held_runs, take_slot and admit_run do elsewhere, for many keys at once: the n-th run of a line
-- gets the n-th free number, if that is not above what the run allows, and if every run before it
-- got one. The lock on the head of a line is the lock of its key: who does not get it leaves the
-- line alone. A fired run that is due and still waiting stands in line before those made after it:
-- another process is bringing it on. An insert can still meet one that saw no line; then the number
-- is its.
WITH line AS MATERIALIZED (
    SELECT a.key, h.seq, h.size, h.place
      FROM unnest(:keys::text[]) AS a(key)
     CROSS JOIN LATERAL (
           SELECT seq, row_number() OVER (ORDER BY priority DESC, seq) AS place,
                  CASE WHEN wanted_key = 'c/' || concurrency_key THEN concurrency_limit ELSE 1 END AS size
             FROM {prefix}runs
            WHERE state = 'held' AND wanted_key = a.key
              AND seq < coalesce((SELECT seq FROM {prefix}runs
                                   WHERE state = 'waiting' AND wanted_key = a.key AND attempt = 0
                                     AND occurrence IS NOT NULL AND retry_of IS NULL
                                     AND due_at <= (SELECT {now})
                                   ORDER BY seq LIMIT 1), 9223372036854775807)
            ORDER BY priority DESC, seq LIMIT :limit) AS h
), free AS MATERIALIZED (
    SELECT l.key, n.number, n.place
      FROM (SELECT key, max(size) AS size, count(*) AS runs FROM line GROUP BY key) AS l
     CROSS JOIN LATERAL (
           SELECT number, row_number() OVER (ORDER BY number) AS place
             FROM generate_series(1, l.size) AS number
            WHERE NOT EXISTS (SELECT 1 FROM {prefix}slots s
                               WHERE s.key = l.key AND s.number = number.number)
            ORDER BY number LIMIT l.runs) AS n
), fitting AS MATERIALIZED (
    SELECT key, seq, number, place
      FROM (SELECT key, line.seq, free.number, place,
                   bool_and(free.number <= line.size) OVER (PARTITION BY key ORDER BY place) AS fits
              FROM line JOIN free USING (key, place)) AS f
     WHERE fits
), locked AS MATERIALIZED (
    SELECT r.seq, r.state, r.wanted_key
      FROM fitting AS f
     CROSS JOIN LATERAL (
           SELECT seq, state, wanted_key FROM {prefix}runs
            WHERE seq = f.seq FOR UPDATE SKIP LOCKED) AS r
), next AS MATERIALIZED (
    SELECT key, seq, number
      FROM (SELECT f.key, f.seq, f.number,
                   bool_and(l.seq IS NOT NULL) OVER (PARTITION BY f.key ORDER BY f.place) AS unbroken
              FROM fitting AS f
              LEFT JOIN locked AS l ON l.seq = f.seq AND l.state = 'held' AND l.wanted_key = f.key) AS n
     WHERE unbroken
), taken AS (
    INSERT INTO {prefix}slots (key, number, owner_run)
    SELECT key, number, seq FROM next ORDER BY key COLLATE "C", number
    ON CONFLICT (key, number) DO NOTHING
    RETURNING key, owner_run
)
UPDATE {prefix}runs AS r
   SET wanted_key = CASE WHEN r.wanted_key = 'o/' || r.overlap_key THEN 'c/' || r.concurrency_key END,
       state = CASE WHEN r.wanted_key = 'o/' || r.overlap_key AND r.concurrency_key IS NOT NULL
                    THEN 'held' ELSE 'queued' END
  FROM taken
 WHERE r.seq = taken.owner_run
RETURNING r.wanted_key;

-------------------------------------------------------------------------------------- claim

-- name: claim_runs
-- What open_queues, pick_runs and claim_runs do elsewhere, in one round trip. Pauses of a queue
-- and of all dispatch are durable and seen by the next claim of any process. Each queue is an index
-- walk that passes over what other claims have locked. What was picked is queued and ours, and stays
-- where it is until we commit: the UPDATE goes there without an index. The answer is not in order.
WITH t AS MATERIALIZED (SELECT {now} AS now),
open AS MATERIALIZED (
    SELECT name FROM {prefix}queues
     WHERE NOT paused AND (:queues::text[] = '{}' OR name = ANY (:queues::text[]))
       AND NOT EXISTS (SELECT 1 FROM {prefix}meta WHERE key = 'dispatch' AND value <> 'on')
), picked AS MATERIALIZED (
    SELECT r.ctid
      FROM open
     CROSS JOIN LATERAL (
           SELECT ctid, seq, priority, due_at FROM {prefix}runs
            WHERE state = 'queued' AND queue = open.name AND job = ANY (:jobs::text[])
            ORDER BY priority DESC, due_at, seq LIMIT :limit FOR UPDATE SKIP LOCKED) AS r
     ORDER BY r.priority DESC, r.due_at, r.seq LIMIT :limit
)
UPDATE {prefix}runs AS r
   SET state = 'running', attempt = attempt + 1, worker_id = :worker_id, claimed_at = t.now,
       started_at = t.now, lease_until = t.now + make_interval(secs => :lease_seconds)
  FROM t
 WHERE r.ctid = ANY (ARRAY(SELECT ctid FROM picked))
RETURNING seq, id::text, job, queue, attempt, failures, lost, max_attempts, args::text, timeout,
          backoff::text, overlap_key, concurrency_key, schedule_id, occurrence, due_at,
          missed_count, cancel_requested_at, correlation_id, trace, priority;

-- name: claim_marked_runs
-- claim_runs while the head of a line is long and holds nothing for us (marks.py says when): not from
-- there, over all of it, but from where this process claimed or looked last. A range is
-- a priority that is known, with the instant to begin at, or the priorities between two known ones.
WITH t AS MATERIALIZED (SELECT {now} AS now),
open AS MATERIALIZED (
    SELECT name FROM {prefix}queues
     WHERE NOT paused AND (:queues::text[] = '{}' OR name = ANY (:queues::text[]))
       AND NOT EXISTS (SELECT 1 FROM {prefix}meta WHERE key = 'dispatch' AND value <> 'on')
), ranges AS MATERIALIZED (
    SELECT queue, priority, since, low, high, place
      FROM unnest(:queue::text[], :priority::integer[], :since::timestamptz[], :low::integer[],
                  :high::integer[]) WITH ORDINALITY AS a(queue, priority, since, low, high, place)
    UNION ALL
    SELECT name, NULL, NULL, -2147483648, 2147483647, 0 FROM open WHERE name <> ALL (:queue::text[])
), picked AS MATERIALIZED (
    SELECT r.ctid
      FROM open
     CROSS JOIN LATERAL (
           SELECT f.ctid, f.seq, f.priority, f.due_at
             FROM (SELECT * FROM ranges WHERE queue = open.name ORDER BY place) AS a
            CROSS JOIN LATERAL (
                  SELECT * FROM (
                      SELECT ctid, seq, priority, due_at FROM {prefix}runs
                       WHERE state = 'queued' AND queue = a.queue AND priority = a.priority
                         AND due_at >= a.since AND job = ANY (:jobs::text[])
                       ORDER BY priority DESC, due_at, seq LIMIT :limit FOR UPDATE SKIP LOCKED) AS known
                  UNION ALL
                  SELECT * FROM (
                      SELECT ctid, seq, priority, due_at FROM {prefix}runs
                       WHERE state = 'queued' AND queue = a.queue AND priority >= a.low
                         AND priority <= a.high AND job = ANY (:jobs::text[])
                       ORDER BY priority DESC, due_at, seq LIMIT :limit FOR UPDATE SKIP LOCKED) AS rest
                  ) AS f
            LIMIT :limit) AS r
     ORDER BY r.priority DESC, r.due_at, r.seq LIMIT :limit
)
UPDATE {prefix}runs AS r
   SET state = 'running', attempt = attempt + 1, worker_id = :worker_id, claimed_at = t.now,
       started_at = t.now, lease_until = t.now + make_interval(secs => :lease_seconds)
  FROM t
 WHERE r.ctid = ANY (ARRAY(SELECT ctid FROM picked))
RETURNING seq, id::text, job, queue, attempt, failures, lost, max_attempts, args::text, timeout,
          backoff::text, overlap_key, concurrency_key, schedule_id, occurrence, due_at,
          missed_count, cancel_requested_at, correlation_id, trace, priority;

-- name: queued_lines
-- In which open queues and priorities anything is queued, from one priority to the next by the index
-- of claims.
WITH RECURSIVE line(queue, priority) AS (
    SELECT q.name, (SELECT priority FROM {prefix}runs WHERE state = 'queued' AND queue = q.name
                     ORDER BY priority DESC LIMIT 1)
      FROM {prefix}queues q
     WHERE NOT q.paused AND (:queues::text[] = '{}' OR q.name = ANY (:queues::text[]))
    UNION ALL
    SELECT l.queue, (SELECT priority FROM {prefix}runs
                      WHERE state = 'queued' AND queue = l.queue AND priority < l.priority
                      ORDER BY priority DESC LIMIT 1)
      FROM line l WHERE l.priority IS NOT NULL
)
SELECT queue, priority, {now} FROM line WHERE priority IS NOT NULL LIMIT :limit;

-- name: let_go_unknown
-- After a claim whose answer was lost: runs this worker owns without knowing it.
UPDATE {prefix}runs
   SET state = 'queued', worker_id = NULL, lease_until = NULL
 WHERE state = 'running' AND worker_id = :worker_id AND seq <> ALL (:known::bigint[])
RETURNING seq;

-------------------------------------------------------------------------------------- renew

-- name: renew_runs
-- A row may be held for long, by a client whose open transaction asked for its cancel: it is still
-- ours, keeps the lease it has, and no other run waits for it.
WITH asked AS MATERIALIZED (
    SELECT a.seq, a.attempt, a.lease_seconds
      FROM unnest((SELECT :seq::bigint[]), (SELECT :attempt::integer[]),
                  (SELECT :lease_seconds::float8[])) AS a(seq, attempt, lease_seconds)
), free AS MATERIALIZED (
    SELECT r.seq, a.lease_seconds
      FROM asked AS a, LATERAL (
           SELECT seq FROM {prefix}runs
            WHERE seq = a.seq
              AND CASE WHEN state = 'running' AND attempt = a.attempt THEN true ELSE false END
              FOR NO KEY UPDATE SKIP LOCKED) AS r
), renewed AS (
    UPDATE {prefix}runs AS r SET lease_until = {now} + make_interval(secs => f.lease_seconds)
      FROM free AS f WHERE r.seq = f.seq
    RETURNING r.seq, r.cancel_requested_at, r.pause_requested_at
)
SELECT seq, cancel_requested_at, pause_requested_at, true AS renewed FROM renewed
UNION ALL
SELECT r.seq, r.cancel_requested_at, r.pause_requested_at, false
  FROM asked AS a JOIN {prefix}runs AS r ON r.seq = a.seq
 WHERE CASE WHEN r.state = 'running' AND r.attempt = a.attempt THEN true ELSE false END
   AND r.seq NOT IN (SELECT seq FROM free);

-- name: cancel_requests
SELECT seq FROM {prefix}runs
 WHERE seq = ANY ((SELECT :seqs::bigint[])::bigint[])
   AND CASE WHEN state = 'running' THEN cancel_requested_at IS NOT NULL ELSE false END;

-- name: set_progress
-- Of a row that somebody holds nothing is told: the next progress tells more, and nobody waits.
UPDATE {prefix}runs AS r SET progress = a.progress
  FROM unnest((SELECT :seq::bigint[]), (SELECT :attempt::integer[]), (SELECT :progress::text[]))
       AS a(seq, attempt, progress)
 WHERE r.seq IN (SELECT seq FROM {prefix}runs
                  WHERE seq = ANY ((SELECT :seq::bigint[])::bigint[]) FOR NO KEY UPDATE SKIP LOCKED)
   AND r.seq = a.seq AND r.state = 'running' AND r.attempt = a.attempt;

-- name: insert_logs
INSERT INTO {prefix}logs (run_seq, attempt, at, level, text)
SELECT * FROM unnest(:run_seq::bigint[], :attempt::integer[], :at::timestamptz[], :level::text[],
                     :text::text[]);

------------------------------------------------------------------------------------- settle

-- name: succeed_runs
-- settle_runs for what most runs do: succeed at the first attempt and hold no slot. The CASE also
-- keeps the planner from the index of running rows, which is full of dead entries under load. The
-- answer names those that did, unless all of them did.
WITH t AS MATERIALIZED (SELECT {now} AS now),
done AS (
    UPDATE {prefix}runs AS r
       SET state = 'succeeded', finished_at = t.now, result = a.result, error = NULL,
           started_at = coalesce(t.now - make_interval(secs => a.ran_seconds), r.started_at),
           reason = CASE WHEN r.cancel_requested_at IS NOT NULL OR r.pause_requested_at IS NOT NULL
                         THEN r.reason END,
           pause_requested_at = NULL, lease_until = NULL
      FROM t, unnest((SELECT :seq::bigint[]), (SELECT :ran_seconds::float8[]),
                     (SELECT :result::json[])) AS a(seq, ran_seconds, result)
     WHERE r.seq = a.seq AND CASE WHEN r.attempt = 1 AND r.state = 'running' THEN true ELSE false END
    RETURNING r.seq
)
SELECT CASE WHEN count(*) < cardinality(:seq::bigint[]) THEN coalesce(array_agg(seq), '{}') END
  FROM done;

-- name: settle_runs
-- Fenced by the attempt number: a worker that lost its lease matches no row and drops its result.
-- A cancel that came meanwhile wins over all but success, a pause over every state that is no end.
WITH t AS MATERIALIZED (SELECT {now} AS now)
UPDATE {prefix}runs AS r
   SET state = CASE WHEN r.cancel_requested_at IS NOT NULL AND a.state <> 'succeeded' THEN 'cancelled'
                    WHEN a.terminal THEN a.state
                    WHEN r.pause_requested_at IS NOT NULL THEN 'paused'
                    ELSE a.state END,
       finished_at = CASE WHEN a.terminal OR r.cancel_requested_at IS NOT NULL THEN t.now END,
       due_at = CASE WHEN a.state = 'waiting'
                     THEN t.now + make_interval(secs => a.delay_seconds) ELSE r.due_at END,
       started_at = coalesce(t.now - make_interval(secs => a.ran_seconds), r.started_at),
       wanted_key = CASE WHEN a.gives_back
                         THEN coalesce('o/' || r.overlap_key, 'c/' || r.concurrency_key) END,
       failures = a.failures, lost = a.lost, error = a.error, result = a.result,
       reason = coalesce(a.reason, CASE WHEN r.cancel_requested_at IS NOT NULL
                                          OR r.pause_requested_at IS NOT NULL THEN r.reason END),
       pause_requested_at = NULL, lease_until = NULL
  FROM t, unnest((SELECT :seq::bigint[]), (SELECT :attempt::integer[]), (SELECT :state::text[]),
                 (SELECT :terminal::boolean[]), (SELECT :delay_seconds::float8[]),
                 (SELECT :ran_seconds::float8[]), (SELECT :gives_back::boolean[]),
                 (SELECT :failures::integer[]), (SELECT :lost::integer[]), (SELECT :error::text[]),
                 (SELECT :reason::text[]), (SELECT :result::json[]),
                 (SELECT :expired_only::boolean[]))
          AS a(seq, attempt, state, terminal, delay_seconds, ran_seconds, gives_back, failures,
               lost, error, reason, result, expired_only)
 WHERE r.seq = a.seq
   AND CASE WHEN r.state = 'running' AND r.attempt = a.attempt THEN true ELSE false END
   AND (NOT a.expired_only OR r.lease_until <= t.now)
RETURNING r.seq, r.state, r.worker_id, r.started_at;

-- name: held_elsewhere
-- Those still ours whose row, or that of the schedule they end for, another transaction holds.
WITH free_runs AS MATERIALIZED (
    SELECT seq FROM {prefix}runs WHERE seq = ANY ((SELECT :seq::bigint[])::bigint[])
       FOR SHARE SKIP LOCKED
), free_schedules AS MATERIALIZED (
    SELECT id FROM {prefix}schedules WHERE id = ANY ((SELECT :schedule_id::bigint[])::bigint[])
       FOR SHARE SKIP LOCKED
)
SELECT r.seq
  FROM unnest((SELECT :seq::bigint[]), (SELECT :attempt::integer[]),
              (SELECT :schedule_id::bigint[]), (SELECT :dies::boolean[]))
       AS a(seq, attempt, schedule_id, dies)
  JOIN {prefix}runs AS r
    ON r.seq = a.seq
   AND CASE WHEN r.attempt = a.attempt AND r.state = 'running' THEN true ELSE false END
  LEFT JOIN {prefix}schedules AS s
         ON s.id = a.schedule_id AND (a.dies OR s.next_fire_at = :waiting_at)
 WHERE r.seq NOT IN (SELECT seq FROM free_runs)
    OR (s.id IS NOT NULL AND s.id NOT IN (SELECT id FROM free_schedules));

-- name: insert_attempts
INSERT INTO {prefix}attempts (run_seq, number, worker_id, started_at, finished_at, outcome, error)
SELECT a.run_seq, a.number, a.worker_id, a.started_at, {now}, a.outcome, a.error
  FROM unnest(:run_seq::bigint[], :number::integer[], :worker_id::text[], :started_at::timestamptz[],
              :outcome::text[], :error::text[])
       AS a(run_seq, number, worker_id, started_at, outcome, error)
ON CONFLICT (run_seq, number) DO NOTHING;

-- name: release_slots
DELETE FROM {prefix}slots WHERE owner_run = ANY (:seq::bigint[]) RETURNING key;

-- name: delay_schedules
SELECT id, expr, last_fired_at FROM {prefix}schedules
 WHERE id = ANY (:ids::bigint[]) AND next_fire_at = :waiting_at;

-- name: restart_delay_schedule
-- A schedule that counts from the end of its run: the run has ended, the clock starts. After a step
-- of the clock it may say less than when the run was fired: the cursor does not go back with it.
UPDATE {prefix}schedules
   SET next_fire_at = CASE WHEN greatest({now}, last_fired_at)
                                + make_interval(secs => :interval_seconds) > ends_at
                           THEN NULL
                           ELSE greatest({now}, last_fired_at)
                                + make_interval(secs => :interval_seconds) END
 WHERE id = :id AND next_fire_at = :waiting_at
RETURNING id, name, next_fire_at;

-- name: lock_schedules
SELECT {columns schedules}
  FROM {prefix}schedules WHERE id = ANY (:ids::bigint[]) ORDER BY id FOR UPDATE;

-- name: recent_ends
SELECT state FROM {prefix}runs
 WHERE schedule_id = :schedule_id AND occurrence IS NOT NULL AND state IN ('succeeded', 'dead')
 ORDER BY seq DESC LIMIT :limit;

-- name: set_schedule_state
UPDATE {prefix}schedules SET state = :state WHERE id = :id;

-- name: insert_events
INSERT INTO {prefix}events (at, kind, run_id, name, detail)
SELECT {now}, a.kind, a.run_id, a.name, a.detail
  FROM unnest(:kind::text[], :run_id::uuid[], :name::text[], :detail::text[])
       AS a(kind, run_id, name, detail);

-------------------------------------------------------------------------------------- steps

-- name: fence_run
-- Whether an attempt is still its worker's; nobody can rescue it until we commit.
SELECT seq FROM {prefix}runs
 WHERE seq = :seq AND attempt = :attempt AND state = 'running' FOR UPDATE;

-- name: lock_run_by_seq
SELECT seq FROM {prefix}runs WHERE seq = :seq FOR UPDATE;

-- name: put_texts
INSERT INTO {prefix}job_texts (hash, text, names, kept_at)
SELECT a.hash, a.text, a.names, {now}
  FROM unnest(:hash::text[], :text::text[], :names::json[]) AS a(hash, text, names)
ON CONFLICT (hash) DO UPDATE SET kept_at = excluded.kept_at;

-- name: texts_of
SELECT hash, text FROM {prefix}job_texts WHERE hash = ANY (:hashes::text[]);

-- name: insert_run_files
INSERT INTO {prefix}run_files (run_seq, number, name, hash)
SELECT * FROM unnest(:seq::bigint[], :number::integer[], :name::text[], :hash::text[])
ON CONFLICT (run_seq, number) DO NOTHING;

-- name: run_files
SELECT f.number, f.name, t.text, t.names::text
  FROM {prefix}run_files f JOIN {prefix}job_texts t ON t.hash = f.hash
 WHERE f.run_seq = :seq ORDER BY f.number;

-- name: done_steps
-- An attempt that starts over does not look at what the others did, only at what an operator told it
-- to pass over: see pin_marks.
SELECT DISTINCT number FROM {prefix}step_marks
 WHERE run_seq = :seq AND NOT void AND (:attempt::integer IS NULL OR attempt IN (0, :attempt::integer));

-- name: put_step
INSERT INTO {prefix}steps (run_seq, attempt, number, name, hash, started_at, status)
VALUES (:seq, :attempt, :number, :name, :hash, {now}, 'running')
ON CONFLICT (run_seq, attempt, number) DO NOTHING;

-- name: end_step
UPDATE {prefix}steps SET status = :status, error = :error, finished_at = {now}
 WHERE run_seq = :seq AND attempt = :attempt AND number = :number AND status = 'running';

-- name: note_step
UPDATE {prefix}steps SET note = :note
 WHERE run_seq = :seq AND attempt = :attempt AND number = :number;

-- name: insert_mark
INSERT INTO {prefix}step_marks (run_seq, number, attempt, finished_at, rows, result)
VALUES (:seq, :number, :attempt, {now}, :rows, :result::json)
ON CONFLICT (run_seq, number, attempt) DO NOTHING;

-- name: step_mark
SELECT number FROM {prefix}step_marks
 WHERE run_seq = :seq AND number = :number AND attempt = :attempt;

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
-- Passed over, done or not, whoever asks, also an attempt that starts over: as if attempt 0, which
-- never is, had done them.
INSERT INTO {prefix}step_marks (run_seq, number, attempt, finished_at)
SELECT :seq, number, 0, {now} FROM generate_series(1, :number::integer - 1) AS number;

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
DELETE FROM {prefix}run_files WHERE run_seq = ANY (:seq::bigint[]);

-- name: delete_steps
DELETE FROM {prefix}steps WHERE run_seq = ANY (:seq::bigint[]);

-- name: delete_marks
DELETE FROM {prefix}step_marks WHERE run_seq = ANY (:seq::bigint[]);

-- name: old_texts
-- Locked: a run that keeps the same text meanwhile waits, and then makes its own row.
SELECT t.hash FROM {prefix}job_texts t
 WHERE t.kept_at < {now} - make_interval(secs => :age_seconds)
   AND NOT EXISTS (SELECT 1 FROM {prefix}run_files f WHERE f.hash = t.hash)
 LIMIT :limit
   FOR UPDATE OF t SKIP LOCKED;

-- name: delete_texts
DELETE FROM {prefix}job_texts WHERE hash = ANY (:hash::text[]);

-------------------------------------------------------------------------------------- files

-- name: insert_file
WITH t AS MATERIALIZED (SELECT {now} AS now)
INSERT INTO {prefix}files (id, name, content_type, size, sha256, job, run_id, created_at, until, content)
SELECT :id, :name, :content_type, :size::bigint, :digest, :job, :run_id::uuid, now,
       now + make_interval(secs => :ttl_seconds::float8), :content::bytea
  FROM t
RETURNING id, name, content_type, size, sha256, job, run_id::text, created_at, until;

-- name: lock_files
-- Held until the end of the transaction: who counts them counts those of everybody before.
SELECT pg_advisory_xact_lock(hashtextextended('{prefix}files', 0));

-- name: file_usage
-- What has run out takes no room, though its row goes a little later.
SELECT count(*) AS files, coalesce(sum(size), 0)::bigint AS bytes
  FROM {prefix}files WHERE until IS NULL OR until > {now};

-- name: kept_file
SELECT id, name, content_type, size, sha256, job, run_id::text, created_at, until
  FROM {prefix}files WHERE id = :id AND (until IS NULL OR until > {now});

-- name: file_content
SELECT content FROM {prefix}files WHERE id = :id AND (until IS NULL OR until > {now});

-- name: list_files
SELECT id, name, content_type, size, sha256, job, run_id::text, created_at, until
  FROM {prefix}files
 WHERE id > :after AND starts_with(name, :prefix)
   AND (until IS NULL OR until > {now})
 ORDER BY id LIMIT :limit;

-- name: delete_file
DELETE FROM {prefix}files WHERE id = :id RETURNING name;

-- name: expired_files
SELECT id FROM {prefix}files WHERE until <= (SELECT {now}) ORDER BY until LIMIT :limit;

------------------------------------------------------------------------------------- rescue

-- name: expired_runs
SELECT seq, id::text, job, queue, attempt, failures, lost, max_attempts, args::text, timeout,
       backoff::text, overlap_key, concurrency_key, schedule_id, occurrence, due_at, missed_count,
       cancel_requested_at, correlation_id, trace, priority
  FROM {prefix}runs
 WHERE state = 'running' AND lease_until <= (SELECT {now})
   AND seq <> ALL (:without::bigint[])
 ORDER BY lease_until LIMIT :limit;

-- name: expired_leases
SELECT count(*) AS runs, min(lease_until) AS oldest_at FROM {prefix}runs
 WHERE state = 'running' AND lease_until <= (SELECT {now});

-- name: slot_owners_after
SELECT owner_run FROM {prefix}slots WHERE owner_run > :after ORDER BY owner_run LIMIT :limit;

-- name: sweep_slots
-- Slots whose owner has ended or is gone. Nothing should leave one behind; this repairs it.
DELETE FROM {prefix}slots
 WHERE owner_run = ANY (:owners::bigint[])
   AND NOT EXISTS (SELECT 1 FROM {prefix}runs r
                    WHERE r.seq = owner_run AND r.state NOT IN ('succeeded', 'dead', 'cancelled'))
RETURNING key;

-- name: stranded_delay_schedules
-- Delay schedules that wait for a run which no longer exists (deleted, or never admitted).
SELECT id, expr FROM {prefix}schedules AS s
 WHERE enabled AND NOT paused AND next_fire_at = :waiting_at
   AND NOT EXISTS (SELECT 1 FROM {prefix}runs r WHERE r.schedule_id = s.id
                      AND r.state IN ('waiting', 'held', 'queued', 'running', 'paused'))
 LIMIT :limit;

------------------------------------------------------------------------- jobs and schedules

-- name: put_jobs
-- Of two versions the later one wins; the same version keeps its instant.
INSERT INTO {prefix}jobs AS j (name, executor, source, origin, spec, args_schema, description,
       queue, priority, timeout, policies, enabled, error, version, version_at)
SELECT a.name, a.executor, a.source, a.origin, a.spec, a.args_schema, a.description,
       a.queue, a.priority, a.timeout, a.policies, a.enabled, a.error, a.version, {now}
  FROM unnest(:name::text[], :executor::text[], :source::text[], :origin::text[], :spec::json[],
              :args_schema::json[], :description::text[], :queue::text[], :priority::integer[],
              :timeout::text[], :policies::json[], :enabled::boolean[], :error::text[],
              :version::text[])
       AS a(name, executor, source, origin, spec, args_schema, description, queue, priority,
            timeout, policies, enabled, error, version)
ON CONFLICT (name) DO UPDATE
   SET executor = excluded.executor, source = excluded.source, origin = excluded.origin,
       spec = excluded.spec, args_schema = excluded.args_schema,
       description = excluded.description, queue = excluded.queue, priority = excluded.priority,
       timeout = excluded.timeout, policies = excluded.policies, enabled = excluded.enabled,
       error = excluded.error, version = excluded.version, version_at = excluded.version_at
 WHERE j.version <> excluded.version OR j.error IS DISTINCT FROM excluded.error
    OR j.enabled <> excluded.enabled;

-- name: jobs_named
SELECT name, executor, source, origin, spec::text, args_schema::text, description, queue, priority,
       timeout, policies::text, enabled, error, version, version_at
  FROM {prefix}jobs WHERE name = ANY (:names::text[]);

-- name: list_jobs
SELECT name, executor, source, origin, spec::text, args_schema::text, description, queue, priority,
       timeout, policies::text, enabled, error, version, version_at
  FROM {prefix}jobs WHERE name > :after ORDER BY name LIMIT :limit;

-- name: insert_schedules
INSERT INTO {prefix}schedules (name, job, kind, expr, next_fire_at, enabled, paused, overlap_key,
       ends_at, args, priority, options, plan_key, created_at, state, error, registered)
SELECT a.name, a.job, a.kind, a.expr, a.next_fire_at, a.enabled, false, a.overlap_key, a.ends_at,
       a.args, a.priority, a.options, a.plan_key, {now}, a.state, a.error, a.registered
  FROM unnest(:name::text[], :job::text[], :kind::text[], :expr::text[],
              :next_fire_at::timestamptz[], :enabled::boolean[], :overlap_key::text[],
              :ends_at::timestamptz[], :args::json[], :priority::integer[], :options::json[],
              :plan_key::text[], :state::text[], :error::text[], :registered::text[])
       AS a(name, job, kind, expr, next_fire_at, enabled, overlap_key, ends_at, args, priority,
            options, plan_key, state, error, registered)
ON CONFLICT (name) DO NOTHING
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
SELECT {columns schedules}
  FROM {prefix}schedules WHERE name = :name;

-- name: schedules_named
SELECT {columns schedules}
  FROM {prefix}schedules WHERE name = ANY (:names::text[]);

-- name: lock_schedule
SELECT {columns schedules}
  FROM {prefix}schedules WHERE name = :name FOR UPDATE;

-- name: list_schedules
SELECT {columns schedules}
  FROM {prefix}schedules
 WHERE name > :after AND (:job::text IS NULL OR job = :job) ORDER BY name LIMIT :limit;

-- name: pause_schedule
UPDATE {prefix}schedules
   SET paused = true, paused_by = :by, paused_at = {now}, paused_reason = :reason, state = :state
 WHERE id = :id AND NOT paused
RETURNING {columns schedules};

-- name: pause_again
-- The word of who paused it last, though it had not been resumed yet.
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

-- name: active_schedules
SELECT {columns schedules}
  FROM {prefix}schedules WHERE NOT paused ORDER BY id LIMIT :limit FOR UPDATE;

-- name: paused_because
SELECT id, name FROM {prefix}schedules
 WHERE paused AND paused_reason LIKE :mark AND id > :after ORDER BY id LIMIT :limit;

-- name: drop_schedule
DELETE FROM {prefix}schedules WHERE id = :id RETURNING id;

-- name: insert_schedule_changes
INSERT INTO {prefix}schedule_changes (schedule_id, name, at, by, action, reason, before, after)
SELECT a.schedule_id, a.name, {now}, a.by, a.action, a.reason, a.before, a.after
  FROM unnest(:schedule_id::bigint[], :name::text[], :by::text[], :action::text[], :reason::text[],
              :before::json[], :after::json[])
       AS a(schedule_id, name, by, action, reason, before, after);

-- name: list_schedule_changes
SELECT id, schedule_id, name, at, by, action, reason, before::text, after::text
  FROM {prefix}schedule_changes
 WHERE schedule_id = :schedule_id AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: dropped_schedule
-- The last of its name that was dropped.
SELECT id, schedule_id, name, at, by, action, reason, before::text, after::text
  FROM {prefix}schedule_changes
 WHERE name = :name AND action = 'drop' ORDER BY id DESC LIMIT 1;

-- name: occurrence_at
SELECT schedule_id, occurrence, last_occurrence, count, outcome, reason, run_id::text, recorded_at
  FROM {prefix}occurrences
 WHERE schedule_id = :schedule_id AND occurrence <= :instant AND last_occurrence >= :instant
 ORDER BY occurrence DESC LIMIT 1;

-- name: slot_owners
SELECT seq, id::text, job, queue, priority, state, due_at, created_at, queued_at, claimed_at,
       started_at, finished_at, attempt, failures, lost, redo, max_attempts, timeout, backoff::text,
       args::text, overlap_key, concurrency_key, concurrency_limit, wanted_key, schedule_id,
       occurrence, missed_count, retry_of, created_by, worker_id, lease_until, error, reason,
       result::text, progress, cancel_requested_at, pause_requested_at, correlation_id, trace
  FROM {prefix}runs
 WHERE seq IN (SELECT owner_run FROM {prefix}slots WHERE key = :key ORDER BY number LIMIT 100);

-- name: list_occurrences
SELECT schedule_id, occurrence, last_occurrence, count, outcome, reason, run_id::text, recorded_at
  FROM {prefix}occurrences
 WHERE schedule_id = :schedule_id AND occurrence < :before ORDER BY occurrence DESC LIMIT :limit;

------------------------------------------------------------------------------- jobs of files

-- name: lock_job
SELECT name, executor, source, origin, spec::text, args_schema::text, description, queue, priority,
       timeout, policies::text, enabled, error, version, version_at
  FROM {prefix}jobs WHERE name = :name FOR UPDATE;

-- name: see_versions
-- A version that comes back keeps its instant, unless somebody saw the files change to it.
INSERT INTO {prefix}job_versions AS v (job, version, seen_at) 
SELECT a.job, a.version, {now} FROM unnest(:job::text[], :version::text[]) AS a(job, version)
ON CONFLICT (job, version) DO UPDATE
   SET seen_at = CASE WHEN excluded.job = ANY (:anew::text[]) THEN excluded.seen_at
                      ELSE v.seen_at END
RETURNING job, seen_at;

-- name: forget_versions
DELETE FROM {prefix}job_versions
 WHERE job = :job AND version NOT IN (SELECT version FROM {prefix}job_versions
                                       WHERE job = :job ORDER BY seen_at DESC LIMIT :keep);

-- name: put_file_jobs
INSERT INTO {prefix}jobs (name, executor, source, origin, spec, args_schema, description, queue,
       priority, timeout, policies, enabled, error, version, version_at)
SELECT a.name, a.executor, a.source, a.origin, a.spec, a.args_schema, a.description,
       a.queue, a.priority, a.timeout, a.policies, a.enabled, a.error, a.version, a.version_at
  FROM unnest(:name::text[], :executor::text[], :source::text[], :origin::text[], :spec::json[],
              :args_schema::json[], :description::text[], :queue::text[], :priority::integer[],
              :timeout::text[], :policies::json[], :enabled::boolean[], :error::text[],
              :version::text[], :version_at::timestamptz[])
       AS a(name, executor, source, origin, spec, args_schema, description, queue, priority,
            timeout, policies, enabled, error, version, version_at)
ON CONFLICT (name) DO UPDATE
   SET executor = excluded.executor, source = excluded.source, origin = excluded.origin,
       spec = excluded.spec, args_schema = excluded.args_schema,
       description = excluded.description, queue = excluded.queue, priority = excluded.priority,
       timeout = excluded.timeout, policies = excluded.policies, enabled = excluded.enabled,
       error = excluded.error, version = excluded.version, version_at = excluded.version_at;

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
 WHERE seen_at >= (SELECT {now}) - make_interval(secs => :live_seconds::float8) ORDER BY id LIMIT :limit;

-- name: unstarted_retired_runs
-- Runs that nobody will ever work on, newest first: to end the first in line would let in the next.
SELECT r.id::text FROM {prefix}jobs j JOIN {prefix}runs r ON r.job = j.name
 WHERE j.source = 'file' AND j.origin = :origin AND j.error LIKE 'retired: %'
   AND r.state IN ('waiting', 'held', 'queued', 'paused')
 ORDER BY r.seq DESC LIMIT :limit;

-- name: shared_jobs
-- SQL jobs that a statement made. Every worker may serve them.
SELECT name, executor, source, origin, spec::text, args_schema::text, description, queue, priority,
       timeout, policies::text, enabled, error, version, version_at
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
SELECT schedule_id, count(*) AS running FROM {prefix}runs
 WHERE state = 'running' AND schedule_id IS NOT NULL GROUP BY schedule_id;

-------------------------------------------------------------------- control: what operators do

-- name: run_by_id
SELECT seq, id::text, job, queue, priority, state, due_at, created_at, queued_at, claimed_at,
       started_at, finished_at, attempt, failures, lost, redo, max_attempts, timeout, backoff::text,
       args::text, overlap_key, concurrency_key, concurrency_limit, wanted_key, schedule_id,
       occurrence, missed_count, retry_of, created_by, worker_id, lease_until, error, reason,
       result::text, progress, cancel_requested_at, pause_requested_at, correlation_id, trace
  FROM {prefix}runs WHERE seq = (SELECT seq FROM {prefix}run_ids WHERE id = :id);

-- name: run_ids_between
SELECT id::text FROM {prefix}run_ids WHERE id BETWEEN :low::uuid AND :high::uuid ORDER BY id LIMIT :limit;

-- name: lock_run
SELECT seq, id::text, job, queue, priority, state, due_at, created_at, queued_at, claimed_at,
       started_at, finished_at, attempt, failures, lost, redo, max_attempts, timeout, backoff::text,
       args::text, overlap_key, concurrency_key, concurrency_limit, wanted_key, schedule_id,
       occurrence, missed_count, retry_of, created_by, worker_id, lease_until, error, reason,
       result::text, progress, cancel_requested_at, pause_requested_at, correlation_id, trace
  FROM {prefix}runs WHERE seq = (SELECT seq FROM {prefix}run_ids WHERE id = :id) FOR UPDATE;

-- name: run_by_seq
SELECT seq, id::text, job, queue, priority, state, due_at, created_at, queued_at, claimed_at,
       started_at, finished_at, attempt, failures, lost, redo, max_attempts, timeout, backoff::text,
       args::text, overlap_key, concurrency_key, concurrency_limit, wanted_key, schedule_id,
       occurrence, missed_count, retry_of, created_by, worker_id, lease_until, error, reason,
       result::text, progress, cancel_requested_at, pause_requested_at, correlation_id, trace
  FROM {prefix}runs WHERE seq = :seq;

-- name: cancel_run
UPDATE {prefix}runs
   SET state = 'cancelled', finished_at = {now}, reason = :reason, cancel_requested_at = {now},
       wanted_key = coalesce('o/' || overlap_key, 'c/' || concurrency_key)
 WHERE seq = :seq AND state IN ('waiting', 'held', 'queued', 'paused')
RETURNING state;

-- name: request_cancel
-- Its worker ends it, or whoever rescues it.
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
WITH deleted AS (
    DELETE FROM {prefix}runs WHERE seq = ANY (:seq::bigint[]) AND state <> 'running'
    RETURNING seq, id
), unnamed AS (
    DELETE FROM {prefix}run_ids WHERE id = ANY (ARRAY(SELECT id FROM deleted))
)
SELECT seq, id::text FROM deleted;

-- name: delete_attempts
DELETE FROM {prefix}attempts WHERE run_seq = ANY (:seq::bigint[]);

-- name: delete_logs
DELETE FROM {prefix}logs WHERE run_seq = ANY (:seq::bigint[]);

-- name: delete_keys
DELETE FROM {prefix}run_keys WHERE run_id = ANY (:id::uuid[]);

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

-- name: server_facts
SELECT current_setting('server_version') AS version,
       pg_is_in_recovery() OR current_setting('default_transaction_read_only')::boolean AS read_only,
       current_setting('max_connections')::int AS max_connections,
       -- Of other users' sessions a plain role sees little more than that they are there.
       (SELECT count(*) FROM pg_stat_activity WHERE datid IS NOT NULL) AS connections;

-- name: dead_rows
SELECT schemaname || '.' || relname AS name, n_live_tup AS live, n_dead_tup AS dead
  FROM pg_stat_user_tables WHERE schemaname = '{schema}_data' ORDER BY n_dead_tup DESC LIMIT 5;

-- name: long_transactions
-- Whoever began it, and never its query: that may hold secrets. Of other users' sessions a plain
-- role sees no xact_start; they are not told then.
SELECT pid, coalesce(usename::text, 'nobody') AS owner, coalesce(application_name, '') AS program,
       state, extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds
  FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
   AND backend_type = 'client backend'
 ORDER BY xact_start LIMIT 5;

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
INSERT INTO {prefix}audit (at, by, via, action, thing, reason, before, after)
SELECT {now}, a.by, a.via, a.action, a.thing, a.reason, a.before, a.after
  FROM unnest(:by::text[], :via::text[], :action::text[], :thing::text[], :reason::text[],
              :before::text[], :after::text[])
       AS a(by, via, action, thing, reason, before, after);

-- name: list_audit
SELECT id, at, by, via, action, thing, reason, before, after FROM {prefix}audit
 WHERE id < :before ORDER BY id DESC LIMIT :limit;

------------------------------------------------------------------------------- control rows

-- name: ask
-- Who asks is told by a trigger: whoever this process is connected as.
INSERT INTO {views}control (statement) VALUES (:statement);

-- name: asked_rows
SELECT id, statement, requested_by, role FROM {views}control
 WHERE status = 'asked' ORDER BY id LIMIT :limit;

-- name: lock_asked_row
-- No row: it is answered, or somebody is just doing so, or the turn of one before it. What is asked
-- for one after the other is done in that order, whoever does it.
SELECT id FROM {views}control
 WHERE id = :id AND status = 'asked'
   AND NOT EXISTS (SELECT 1 FROM {views}control WHERE status = 'asked' AND id < :id)
   FOR UPDATE SKIP LOCKED;

-- name: lock_words
-- Who says something of a schedule waits for who is just saying something else of it: a row that
-- is not committed yet would not be seen.
SELECT pg_advisory_xact_lock(hashtextextended('{schema} words of ' || :name, 0));

-- name: waiting_words
-- Rows that may ask for this of a schedule; what they say is read by who asks for them.
SELECT id, statement, requested_by, role FROM {views}control
 WHERE status = 'asked' AND length(statement) <= :longest
   AND statement ILIKE '%' || :verb::text || '%SCHEDULE%' ORDER BY id LIMIT :limit;

-- name: answer_row
UPDATE {views}control
   SET status = :status, answered_at = {now}, statement = :kept, rows = :rows::json, more = :more,
       error = :error
 WHERE id = :id AND status = 'asked'
RETURNING id;

-- name: old_answered_rows
SELECT id FROM {views}control
 WHERE status <> 'asked'
   AND (answered_at < (SELECT {now}) - make_interval(secs => :age_seconds)
        OR id <= (SELECT id FROM {views}control ORDER BY id DESC LIMIT 1 OFFSET :keep))
 ORDER BY id LIMIT :limit;

-- name: delete_answered_rows
DELETE FROM {views}control WHERE id = ANY (:id::bigint[]) AND status <> 'asked';

-------------------------------------------------------------------------- workers and locks

-- name: put_worker
WITH t AS MATERIALIZED (SELECT {now} AS now)
INSERT INTO {prefix}workers (id, host, pid, version, tzdata, origin, jobs, queues, slots, stuck,
       started_at, seen_at)
SELECT a.id, a.host, a.pid, a.version, a.tzdata, a.origin, a.jobs, a.queues, a.slots, a.stuck,
       t.now, t.now
  FROM t, unnest(:id::text[], :host::text[], :pid::bigint[], :version::text[], :tzdata::text[],
                 :origin::text[], :jobs::json[], :queues::json[], :slots::integer[],
                 :stuck::integer[])
          AS a(id, host, pid, version, tzdata, origin, jobs, queues, slots, stuck)
ON CONFLICT (id) DO UPDATE
   SET jobs = excluded.jobs, queues = excluded.queues, slots = excluded.slots,
       stuck = excluded.stuck, seen_at = excluded.seen_at;

-- name: forget_worker
DELETE FROM {prefix}workers WHERE id = ANY (:id::text[]);

-- name: forget_old_workers
DELETE FROM {prefix}workers AS w USING unnest(:age_seconds::float8[]) AS a(age_seconds)
 WHERE w.seen_at < (SELECT {now}) - make_interval(secs => a.age_seconds)
RETURNING w.id;

-- name: list_workers
SELECT id, host, pid, version, tzdata, origin, jobs::text, queues::text, slots, stuck, started_at,
       seen_at,
       (SELECT count(*) FROM {prefix}runs r WHERE r.state = 'running' AND r.worker_id = w.id) AS running
  FROM {prefix}workers w WHERE id > :after ORDER BY id LIMIT :limit;

-- name: acquire_lock
-- The token rises with each holder, also after a release: the row stays.
WITH t AS MATERIALIZED (SELECT {now} AS now)
INSERT INTO {prefix}locks AS l (name, owner, token, until)
SELECT a.name, a.owner, 1, t.now + make_interval(secs => a.ttl_seconds)
  FROM t, unnest(:name::text[], :owner::text[], :ttl_seconds::float8[]) AS a(name, owner, ttl_seconds)
ON CONFLICT (name) DO UPDATE
   SET owner = excluded.owner, token = l.token + 1, until = excluded.until
 WHERE l.until <= (SELECT now FROM t)
RETURNING token;

-- name: extend_lock
WITH t AS MATERIALIZED (SELECT {now} AS now)
UPDATE {prefix}locks AS l SET until = t.now + make_interval(secs => a.ttl_seconds)
  FROM t, unnest(:name::text[], :token::bigint[], :ttl_seconds::float8[]) AS a(name, token, ttl_seconds)
 WHERE l.name = a.name AND l.token = a.token AND l.until > t.now
RETURNING l.token;

-- name: release_lock
WITH t AS MATERIALIZED (SELECT {now} AS now)
UPDATE {prefix}locks AS l SET until = t.now, owner = NULL
  FROM t, unnest(:name::text[], :token::bigint[]) AS a(name, token)
 WHERE l.name = a.name AND l.token = a.token AND l.until > t.now
RETURNING l.token;

-- name: list_locks
SELECT name, owner, token, until FROM {prefix}locks
 WHERE name > :after AND until > (SELECT {now}) ORDER BY name LIMIT :limit;

--------------------------------------------------------------------------------------- read

-- name: list_runs
SELECT seq, id::text, job, queue, priority, state, due_at, created_at, queued_at, claimed_at,
       started_at, finished_at, attempt, failures, lost, redo, max_attempts, timeout, backoff::text,
       args::text, overlap_key, concurrency_key, concurrency_limit, wanted_key, schedule_id,
       occurrence, missed_count, retry_of, created_by, worker_id, lease_until, error, reason,
       result::text, progress, cancel_requested_at, pause_requested_at, correlation_id, trace
  FROM {prefix}runs
 WHERE seq < :before AND (:state::text IS NULL OR state = :state)
   AND (:queue::text IS NULL OR queue = :queue)
 ORDER BY seq DESC LIMIT :limit;

-- name: recent_runs_of_job
-- Among the newest runs of all: where a job has many, they are here.
SELECT seq, id::text, job, queue, priority, state, due_at, created_at, queued_at, claimed_at,
       started_at, finished_at, attempt, failures, lost, redo, max_attempts, timeout, backoff::text,
       args::text, overlap_key, concurrency_key, concurrency_limit, wanted_key, schedule_id,
       occurrence, missed_count, retry_of, created_by, worker_id, lease_until, error, reason,
       result::text, progress, cancel_requested_at, pause_requested_at, correlation_id, trace
  FROM (SELECT * FROM {prefix}runs WHERE seq < :before ORDER BY seq DESC LIMIT :recent) AS r
 WHERE job = :job AND (:state::text IS NULL OR state = :state) AND (:queue::text IS NULL OR queue = :queue)
 ORDER BY seq DESC LIMIT :limit;

-- name: list_runs_of_job
-- The index by job does not know what runs, which is little, and what is queued, which is looked
-- for in its line (`seq + 0`: not among all runs that ever were).
WITH found AS (
    SELECT * FROM (
        SELECT seq FROM {prefix}runs
         WHERE job = :job AND seq < :before AND state <> 'queued' AND state <> 'running'
           AND (:state::text IS NULL OR state = :state) AND (:queue::text IS NULL OR queue = :queue)
         ORDER BY seq DESC LIMIT :limit) AS ended
    UNION ALL
    SELECT seq FROM {prefix}runs
     WHERE state = 'running' AND job = :job AND seq + 0 < :before
       AND coalesce(:state, 'running') = 'running' AND (:queue::text IS NULL OR queue = :queue)
    UNION ALL
    SELECT seq FROM {prefix}runs
     WHERE state = 'queued' AND job = :job AND seq + 0 < :before
       AND coalesce(:state, 'queued') = 'queued' AND (:queue::text IS NULL OR queue = :queue)
)
SELECT seq, id::text, job, queue, priority, state, due_at, created_at, queued_at, claimed_at,
       started_at, finished_at, attempt, failures, lost, redo, max_attempts, timeout, backoff::text,
       args::text, overlap_key, concurrency_key, concurrency_limit, wanted_key, schedule_id,
       occurrence, missed_count, retry_of, created_by, worker_id, lease_until, error, reason,
       result::text, progress, cancel_requested_at, pause_requested_at, correlation_id, trace
  FROM {prefix}runs
 WHERE seq IN (SELECT seq FROM found ORDER BY seq DESC LIMIT :limit)
 ORDER BY seq DESC;

-- name: list_runs_of_schedule
SELECT seq, id::text, job, queue, priority, state, due_at, created_at, queued_at, claimed_at,
       started_at, finished_at, attempt, failures, lost, redo, max_attempts, timeout, backoff::text,
       args::text, overlap_key, concurrency_key, concurrency_limit, wanted_key, schedule_id,
       occurrence, missed_count, retry_of, created_by, worker_id, lease_until, error, reason,
       result::text, progress, cancel_requested_at, pause_requested_at, correlation_id, trace
  FROM {prefix}runs
 WHERE schedule_id = :schedule_id AND seq < :before AND (:state::text IS NULL OR state = :state)
   AND (:queue::text IS NULL OR queue = :queue)
   AND (:job::text IS NULL OR job = :job)
 ORDER BY seq DESC LIMIT :limit;

-- name: count_matching_runs
-- No further than the limit: who asks wants to know how many, and not to wait for it.
SELECT count(*) AS runs FROM (
    SELECT 1 FROM {prefix}runs
     WHERE state = :state AND (:job::text IS NULL OR job = :job)
       AND (:queue::text IS NULL OR queue = :queue)
       AND (:schedule_id::bigint IS NULL OR schedule_id = :schedule_id)
     LIMIT :limit) AS found;

-- name: list_attempts
SELECT run_seq, number, worker_id, started_at, finished_at, outcome, error
  FROM {prefix}attempts WHERE run_seq = :seq ORDER BY number LIMIT :limit;

-- name: attempts_above
-- Those of several runs, each above a number of its own, in their order.
SELECT a.run_seq, a.number, a.worker_id, a.started_at, a.finished_at, a.outcome, a.error
  FROM unnest(:seqs::bigint[], :numbers::bigint[]) AS s (seq, number)
  JOIN {prefix}attempts AS a ON a.run_seq = s.seq AND a.number > s.number
 ORDER BY a.run_seq, a.number LIMIT :limit;

-- name: list_logs
SELECT id, attempt, at, level, text FROM {prefix}logs
 WHERE run_seq = :seq AND id > :after ORDER BY id LIMIT :limit;

-- name: tail_logs
SELECT id, attempt, at, level, text FROM {prefix}logs
 WHERE run_seq = :seq AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: list_events
SELECT id, at, kind, run_id::text, name, detail FROM {prefix}events
 WHERE id < :before AND (:run_id::uuid IS NULL OR run_id = :run_id) ORDER BY id DESC LIMIT :limit;

-- name: count_runs
-- One count per state, each from the index of that state and not from the table.
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
    (SELECT queue, 'waiting' AS state FROM {prefix}runs WHERE state = 'waiting' LIMIT :depth)
    UNION ALL (SELECT queue, 'held' AS state FROM {prefix}runs WHERE state = 'held' LIMIT :depth)
    UNION ALL (SELECT queue, 'queued' AS state FROM {prefix}runs WHERE state = 'queued' LIMIT :depth)
    UNION ALL (SELECT queue, 'running' AS state FROM {prefix}runs WHERE state = 'running' LIMIT :depth)
    UNION ALL (SELECT queue, 'paused' AS state FROM {prefix}runs WHERE state = 'paused' LIMIT :depth)
) AS counted GROUP BY queue, state;

-- name: oldest_queued
-- From one priority of a queue to the next by the index of claims: it takes as long as there are
-- priorities, not runs.
WITH RECURSIVE line(queue, priority) AS (
    SELECT q.name, (SELECT priority FROM {prefix}runs WHERE state = 'queued' AND queue = q.name
                     ORDER BY priority DESC LIMIT 1)
      FROM {prefix}queues q
    UNION ALL
    SELECT l.queue, (SELECT priority FROM {prefix}runs
                      WHERE state = 'queued' AND queue = l.queue AND priority < l.priority
                      ORDER BY priority DESC LIMIT 1)
      FROM line l WHERE l.priority IS NOT NULL
)
SELECT queue, min((SELECT due_at FROM {prefix}runs r
                    WHERE r.state = 'queued' AND r.queue = l.queue AND r.priority = l.priority
                    ORDER BY due_at LIMIT 1)) AS due_at
  FROM line l WHERE l.priority IS NOT NULL GROUP BY queue;

-- name: schedule_statuses
SELECT status, count(*) AS schedules FROM (
    SELECT CASE WHEN error IS NOT NULL THEN 'BROKEN' WHEN NOT enabled THEN 'DISABLED'
            WHEN paused THEN 'PAUSED' WHEN next_fire_at IS NULL THEN 'FINISHED'
            ELSE 'ACTIVE' END AS status
      FROM {prefix}schedules
) AS told GROUP BY status;

-- name: last_successes
-- Of each job's latest runs only: one that has failed for long is not searched through. Said
-- as a range of the index: else the planner may look for the runs of a job among all others.
SELECT j.name AS job, max(r.finished_at) FILTER (WHERE r.state = 'succeeded') AS finished_at
  FROM (SELECT name FROM {prefix}jobs ORDER BY name LIMIT :jobs) AS j
  LEFT JOIN LATERAL (SELECT state, finished_at FROM {prefix}runs
                      WHERE (job, seq) >= (j.name, 0) AND (job, seq) <= (j.name, 9223372036854775807)
                        AND state <> 'queued' AND state <> 'running'
                      ORDER BY job DESC, seq DESC LIMIT :recent) AS r ON true
 GROUP BY j.name;

-- name: count_live_workers
SELECT count(*) AS workers FROM {prefix}workers
 WHERE seen_at >= (SELECT {now}) - make_interval(secs => :live_seconds::float8);

-------------------------------------------------------------------------------------- prune

-- name: old_runs
-- Older than its state's retention and not among the last of its job that wait or have ended.
SELECT r.seq FROM {prefix}runs r
 WHERE r.state = :state AND r.finished_at < (SELECT {now}) - make_interval(secs => :age_seconds)
   AND r.state IN ('succeeded', 'dead', 'cancelled')
   AND (SELECT count(*) FROM (SELECT 1 FROM {prefix}runs newer WHERE newer.job = r.job
                                 AND newer.state <> 'queued' AND newer.state <> 'running'
                                 AND newer.seq > r.seq LIMIT :keep_last) AS n) >= :keep_last
 ORDER BY r.finished_at LIMIT :limit
   FOR UPDATE SKIP LOCKED;

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

-- name: schedules_by_id
SELECT {columns schedules}
  FROM {prefix}schedules WHERE id = ANY (:ids::bigint[]);

-- name: count_occurrences
UPDATE {prefix}occurrences AS o SET count = a.count
  FROM unnest(:schedule_id::bigint[], :occurrence::timestamptz[], :count::bigint[])
       AS a(schedule_id, occurrence, count)
 WHERE o.schedule_id = a.schedule_id AND o.occurrence = a.occurrence AND o.count IS NULL;

-- name: count_run
UPDATE {prefix}runs SET missed_count = :count
 WHERE seq = (SELECT seq FROM {prefix}run_ids WHERE id = :run_id::uuid);

-- name: foldable_occurrences
-- The ledger outlives the runs, and is never touched past the cursor.
SELECT o.occurrence, o.last_occurrence, o.count, o.outcome, o.reason
  FROM {prefix}occurrences o
 WHERE o.schedule_id = :schedule_id
   AND o.count IS NOT NULL
   AND (o.recorded_at < (SELECT {now}) - make_interval(secs => :age_seconds)
        OR o.occurrence <= (SELECT occurrence FROM {prefix}occurrences
                            WHERE schedule_id = :schedule_id
                            ORDER BY occurrence DESC LIMIT 1 OFFSET :keep_rows))
   AND o.last_occurrence < coalesce((SELECT next_fire_at FROM {prefix}schedules
                                      WHERE id = :schedule_id), 'infinity')
 ORDER BY o.occurrence LIMIT :limit FOR UPDATE OF o;

-- name: delete_occurrences
DELETE FROM {prefix}occurrences AS o
 USING unnest(:schedule_id::bigint[], :occurrence::timestamptz[]) AS a(schedule_id, occurrence)
 WHERE o.schedule_id = a.schedule_id AND o.occurrence = a.occurrence;

-- name: stretch_occurrences
UPDATE {prefix}occurrences AS o
   SET last_occurrence = a.last_occurrence, count = a.count, reason = a.reason, run_id = NULL
  FROM unnest(:schedule_id::bigint[], :occurrence::timestamptz[], :last_occurrence::timestamptz[],
              :count::bigint[], :reason::text[])
       AS a(schedule_id, occurrence, last_occurrence, count, reason)
 WHERE o.schedule_id = a.schedule_id AND o.occurrence = a.occurrence;

-------------------------------------------------------------------- surfaces: what they show

-- name: follow_position
SELECT coalesce((SELECT max(seq) FROM {prefix}runs), 0) AS seq,
       coalesce((SELECT max(id) FROM {prefix}audit), 0) AS audit_id;

-- name: brief_runs_after
SELECT seq, id::text, job, queue, state, schedule_id, occurrence, due_at, started_at, finished_at,
       attempt, redo, progress, error, reason
  FROM {prefix}runs WHERE seq > :after ORDER BY seq LIMIT :limit;

-- name: brief_running
SELECT seq, id::text, job, queue, state, schedule_id, occurrence, due_at, started_at, finished_at,
       attempt, redo, progress, error, reason
  FROM {prefix}runs WHERE state = 'running' ORDER BY lease_until LIMIT :limit;

-- name: brief_runs
SELECT seq, id::text, job, queue, state, schedule_id, occurrence, due_at, started_at, finished_at,
       attempt, redo, progress, error, reason
  FROM {prefix}runs WHERE seq = ANY (:seqs::bigint[]);

-- name: brief_ended
-- Those that ended in a stretch of time, the latest first; each state by its part of the index.
SELECT seq, id::text, job, queue, state, schedule_id, occurrence, due_at, started_at, finished_at,
       attempt, redo, progress, error, reason FROM (
    SELECT * FROM (SELECT seq, id, job, queue, state, schedule_id, occurrence, due_at, started_at,
                          finished_at, attempt, redo, progress, error, reason
                     FROM {prefix}runs
                    WHERE state = 'succeeded' AND state IN ('succeeded', 'dead', 'cancelled')
                      AND finished_at >= :since_at AND finished_at < :until_at
                    ORDER BY finished_at DESC LIMIT :limit) AS succeeded
    UNION ALL
    SELECT * FROM (SELECT seq, id, job, queue, state, schedule_id, occurrence, due_at, started_at,
                          finished_at, attempt, redo, progress, error, reason
                     FROM {prefix}runs
                    WHERE state = 'dead' AND state IN ('succeeded', 'dead', 'cancelled')
                      AND finished_at >= :since_at AND finished_at < :until_at
                    ORDER BY finished_at DESC LIMIT :limit) AS dead
    UNION ALL
    SELECT * FROM (SELECT seq, id, job, queue, state, schedule_id, occurrence, due_at, started_at,
                          finished_at, attempt, redo, progress, error, reason
                     FROM {prefix}runs
                    WHERE state = 'cancelled' AND state IN ('succeeded', 'dead', 'cancelled')
                      AND finished_at >= :since_at AND finished_at < :until_at
                    ORDER BY finished_at DESC LIMIT :limit) AS cancelled
) AS ended ORDER BY finished_at DESC LIMIT :limit;

-- name: ended_from
-- Those that ended first from an instant on, of which some had begun before it. No index knows both
-- ends of a run, so no more than the limit are looked at.
SELECT seq, started_at, finished_at FROM (
    SELECT * FROM (SELECT seq, started_at, finished_at
                     FROM {prefix}runs
                    WHERE state = 'succeeded' AND state IN ('succeeded', 'dead', 'cancelled')
                      AND finished_at >= :from_at
                    ORDER BY finished_at LIMIT :limit) AS succeeded
    UNION ALL
    SELECT * FROM (SELECT seq, started_at, finished_at
                     FROM {prefix}runs
                    WHERE state = 'dead' AND state IN ('succeeded', 'dead', 'cancelled')
                      AND finished_at >= :from_at
                    ORDER BY finished_at LIMIT :limit) AS dead
    UNION ALL
    SELECT * FROM (SELECT seq, started_at, finished_at
                     FROM {prefix}runs
                    WHERE state = 'cancelled' AND state IN ('succeeded', 'dead', 'cancelled')
                      AND finished_at >= :from_at
                    ORDER BY finished_at LIMIT :limit) AS cancelled
) AS ended ORDER BY finished_at LIMIT :limit;

-- name: audit_after
SELECT id, at, by, via, action, thing, reason FROM {prefix}audit
 WHERE id > :after ORDER BY id LIMIT :limit;

-- name: list_runs_of_state
-- For states that few runs are in: each by its own index, and not along all runs that ever were.
SELECT seq, id::text, job, queue, priority, state, due_at, created_at, queued_at, claimed_at,
       started_at, finished_at, attempt, failures, lost, redo, max_attempts, timeout, backoff::text,
       args::text, overlap_key, concurrency_key, concurrency_limit, wanted_key, schedule_id,
       occurrence, missed_count, retry_of, created_by, worker_id, lease_until, error, reason,
       result::text, progress, cancel_requested_at, pause_requested_at, correlation_id, trace
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
    SELECT seq FROM {prefix}runs
     WHERE :state = 'running' AND state = 'running' AND seq + 0 < :before
       AND (:queue::text IS NULL OR queue = :queue)
    UNION ALL
    SELECT seq FROM {prefix}runs
     WHERE :state = 'queued' AND state = 'queued' AND seq + 0 < :before
       AND (:queue::text IS NULL OR queue = :queue)
    UNION ALL
    SELECT seq FROM {prefix}runs
     WHERE :state = 'waiting' AND state = 'waiting' AND seq + 0 < :before
       AND (:queue::text IS NULL OR queue = :queue)
    UNION ALL
    SELECT seq FROM {prefix}runs
     WHERE :state = 'held' AND state = 'held' AND seq + 0 < :before
       AND (:queue::text IS NULL OR queue = :queue)
    ) AS found ORDER BY seq DESC LIMIT :limit)
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
  FROM (SELECT 1 FROM {prefix}runs
         WHERE state = 'succeeded' AND state IN ('succeeded', 'dead', 'cancelled')
           AND finished_at >= :since_at LIMIT :limit) AS succeeded
UNION ALL
SELECT 'dead' AS state, count(*) AS runs
  FROM (SELECT 1 FROM {prefix}runs
         WHERE state = 'dead' AND state IN ('succeeded', 'dead', 'cancelled')
           AND finished_at >= :since_at LIMIT :limit) AS dead
UNION ALL
SELECT 'cancelled' AS state, count(*) AS runs
  FROM (SELECT 1 FROM {prefix}runs
         WHERE state = 'cancelled' AND state IN ('succeeded', 'dead', 'cancelled')
           AND finished_at >= :since_at LIMIT :limit) AS cancelled;

-- name: count_rare_runs
-- For states that few runs are in: along the index of the state, whatever else is asked.
SELECT count(*) AS runs FROM (SELECT 1 FROM (
    SELECT 1 FROM {prefix}runs
     WHERE :state = 'dead' AND state = 'dead' AND (:job::text IS NULL OR job = :job)
       AND (:queue::text IS NULL OR queue = :queue)
       AND (:schedule_id::bigint IS NULL OR schedule_id = :schedule_id)
    UNION ALL
    SELECT 1 FROM {prefix}runs
     WHERE :state = 'cancelled' AND state = 'cancelled' AND (:job::text IS NULL OR job = :job)
       AND (:queue::text IS NULL OR queue = :queue)
       AND (:schedule_id::bigint IS NULL OR schedule_id = :schedule_id)
    UNION ALL
    SELECT 1 FROM {prefix}runs
     WHERE :state = 'paused' AND state = 'paused' AND (:job::text IS NULL OR job = :job)
       AND (:queue::text IS NULL OR queue = :queue)
       AND (:schedule_id::bigint IS NULL OR schedule_id = :schedule_id)
    UNION ALL
    SELECT 1 FROM {prefix}runs
     WHERE :state = 'running' AND state = 'running' AND (:job::text IS NULL OR job = :job)
       AND (:queue::text IS NULL OR queue = :queue)
       AND (:schedule_id::bigint IS NULL OR schedule_id = :schedule_id)
    UNION ALL
    SELECT 1 FROM {prefix}runs
     WHERE :state = 'queued' AND state = 'queued' AND (:job::text IS NULL OR job = :job)
       AND (:queue::text IS NULL OR queue = :queue)
       AND (:schedule_id::bigint IS NULL OR schedule_id = :schedule_id)
    UNION ALL
    SELECT 1 FROM {prefix}runs
     WHERE :state = 'waiting' AND state = 'waiting' AND (:job::text IS NULL OR job = :job)
       AND (:queue::text IS NULL OR queue = :queue)
       AND (:schedule_id::bigint IS NULL OR schedule_id = :schedule_id)
    UNION ALL
    SELECT 1 FROM {prefix}runs
     WHERE :state = 'held' AND state = 'held' AND (:job::text IS NULL OR job = :job)
       AND (:queue::text IS NULL OR queue = :queue)
       AND (:schedule_id::bigint IS NULL OR schedule_id = :schedule_id)
    ) AS found LIMIT :limit) AS counted;

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
SELECT j.name AS job, avg(extract(epoch FROM r.finished_at - r.started_at)::float8) AS seconds, count(*) AS runs
  FROM unnest(:names::text[]) AS j(name)
  JOIN LATERAL (SELECT state, started_at, finished_at FROM {prefix}runs
                 WHERE job = ANY (ARRAY[j.name]) AND state <> 'queued' AND state <> 'running'
                 ORDER BY job DESC, seq DESC LIMIT :limit) AS r ON true
 WHERE r.state = 'succeeded' AND r.started_at IS NOT NULL
 GROUP BY j.name;

-- name: recent_outcomes
-- What became of the last occurrences of each schedule, and of their runs: each is looked up, where
-- a plain join would go along the whole index of runs.
SELECT o.schedule_id, o.occurrence, o.last_occurrence, o.count, o.outcome, o.reason,
       o.run_id::text, r.state, r.started_at, r.finished_at
  FROM unnest(:ids::bigint[]) AS i(id)
  JOIN LATERAL (SELECT * FROM {prefix}occurrences WHERE schedule_id = i.id
                 ORDER BY occurrence DESC LIMIT :limit) AS o ON true
  LEFT JOIN LATERAL (SELECT state, started_at, finished_at FROM {prefix}runs
                      WHERE seq = (SELECT seq FROM {prefix}run_ids WHERE id = o.run_id)) AS r ON true
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
-- Held until the end of the transaction: two tokens of one name are made one after the other.
LOCK TABLE {prefix}tokens IN SHARE ROW EXCLUSIVE MODE;

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

------------------------------------------------------------------------------------- charts

-- name: ended_in_buckets
-- Exact, however many there are: along the index of what has ended, and nothing else is read.
SELECT state, bucket, count(*) AS runs FROM (
    SELECT state, floor(extract(epoch FROM finished_at - :since_at::timestamptz) / :seconds::float8)::int AS bucket
      FROM {prefix}runs
     WHERE state IN ('succeeded', 'dead', 'cancelled')
       AND finished_at >= :since_at AND finished_at < :until_at
) AS ended GROUP BY state, bucket;

-- name: ended_by_job_in_buckets
SELECT job, state, bucket, count(*) AS runs, sum(took) AS seconds FROM (
    SELECT job, state, floor(extract(epoch FROM finished_at - :since_at::timestamptz) / :seconds::float8)::int AS bucket,
           extract(epoch FROM finished_at - coalesce(started_at, finished_at))::float8 AS took
      FROM {prefix}runs
     WHERE state IN ('succeeded', 'dead', 'cancelled')
       AND finished_at >= :since_at AND finished_at < :until_at
) AS ended GROUP BY job, state, bucket ORDER BY job, bucket LIMIT :limit;

-- name: recent_fires
SELECT occurrence, created_at, due_at, started_at
  FROM (SELECT * FROM {prefix}runs WHERE seq > 0 ORDER BY seq DESC LIMIT :limit) AS newest
 WHERE occurrence IS NOT NULL AND retry_of IS NULL;

-- name: durations_of_schedule
-- Asked for as a span and in the order of its index: else a plan may walk all runs from the newest.
SELECT id::text, state, occurrence, due_at, started_at, finished_at, attempt
  FROM {prefix}runs WHERE schedule_id BETWEEN :schedule_id AND :schedule_id
 ORDER BY schedule_id DESC, seq DESC LIMIT :limit;

-- name: find_schedules
-- The key is a number in every order, so that a page begins after the last one's (key, name).
SELECT id, name, sort_key FROM (
    SELECT id, name, status, CASE :sort::text
           WHEN 'next' THEN CASE WHEN status = 'ACTIVE' THEN least(9007199254740990, extract(epoch FROM next_fire_at) * 1000000)::bigint ELSE 9007199254740991 END
           WHEN 'last' THEN -coalesce((extract(epoch FROM last_fired_at) * 1000000)::bigint, 0)
           ELSE 0 END AS sort_key
      FROM (SELECT id, name, next_fire_at, last_fired_at,
                CASE WHEN error IS NOT NULL THEN 'BROKEN' WHEN NOT enabled THEN 'DISABLED'
                WHEN paused THEN 'PAUSED' WHEN next_fire_at IS NULL THEN 'FINISHED'
                ELSE 'ACTIVE' END AS status
              FROM {prefix}schedules
             WHERE (:job::text IS NULL OR job = :job)
               AND (:words::text IS NULL OR position(:words in lower(name)) > 0 OR position(:words in lower(job)) > 0)) AS told
) AS sorted
 WHERE (:status::text IS NULL OR status = :status)
   AND (sort_key > :after_key OR (sort_key = :after_key AND name > :after))
 ORDER BY sort_key, name LIMIT :limit;

------------------------------------------------------------------------------- lists that are searched

-- name: find_jobs
-- Retired jobs are found by that status alone. Which are broken, only who reads the rows can say.
SELECT name, executor, source, origin, spec::text, args_schema::text, description, queue, priority,
       timeout, policies::text, enabled, error, version, version_at
  FROM {prefix}jobs
 WHERE name > :after
   AND (:words::text IS NULL OR position(:words in lower(name)) > 0 OR position(:words in lower(description)) > 0)
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
      FROM {prefix}schedules WHERE job = ANY (:names::text[])
) AS placed WHERE place <= :each ORDER BY job, name;

-- name: good_versions
-- An error leaves the version of a job as it was: the last good one.
SELECT v.job, v.seen_at FROM {prefix}job_versions v
  JOIN {prefix}jobs j ON j.name = v.job AND j.version = v.version
 WHERE j.name = ANY (:names::text[]);

-- name: ended_by_queue
-- The latest of each state from the index of what has ended, then the latest of all of them.
SELECT queue, count(*) AS runs, min(finished_at) AS first_at FROM (
    SELECT * FROM (
        SELECT * FROM (SELECT queue, finished_at FROM {prefix}runs
                        WHERE state = 'succeeded' AND state IN ('succeeded', 'dead', 'cancelled')
                          AND finished_at >= :since_at
                        ORDER BY finished_at DESC LIMIT :limit) AS succeeded
        UNION ALL SELECT * FROM (SELECT queue, finished_at FROM {prefix}runs
                        WHERE state = 'dead' AND state IN ('succeeded', 'dead', 'cancelled')
                          AND finished_at >= :since_at
                        ORDER BY finished_at DESC LIMIT :limit) AS dead
        UNION ALL SELECT * FROM (SELECT queue, finished_at FROM {prefix}runs
                        WHERE state = 'cancelled' AND state IN ('succeeded', 'dead', 'cancelled')
                          AND finished_at >= :since_at
                        ORDER BY finished_at DESC LIMIT :limit) AS cancelled
    ) AS each ORDER BY finished_at DESC LIMIT :limit
) AS ended GROUP BY queue;

-- name: find_audit
-- Down the numbers, until a page is full.
SELECT id, at, by, via, action, thing, reason, before, after FROM {prefix}audit
 WHERE id < :before
   AND (:by::text IS NULL OR by = :by)
   AND (:action::text IS NULL OR action = :action)
   AND (:words::text IS NULL OR position(:words in lower(thing)) > 0 OR position(:words in lower(coalesce(reason, ''))) > 0)
 ORDER BY id DESC LIMIT :limit;
