-- Statements of PostgreSQL's fast paths (fast_paths.py), which do what several plain ones do, in one round
-- trip. Only `succeed_runs` replaces another of its name. See the head of queries.sql about fences.

-- name: fire_free
-- What advance_schedules, take_slots, insert_occurrences and insert_fired_runs do, in one round trip,
-- for schedules that are on time and whose slot is free: one occurrence, one run that starts. A
-- schedule that is not answered is left to those. The comparison of the cursor is theirs, too.
-- With a worker it is the claim as well (claim_at_once): what could begin at once begins as the
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
              FROM {rows a: cursor_at instant, revision bigint, next_fire_at instant, key text,
                           due_at instant, new_run}
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
), recorded AS (
    INSERT INTO {prefix}occurrences (schedule_id, occurrence, last_occurrence, count, outcome,
           run_id, recorded_at)
    SELECT schedule_id, occurrence, occurrence, 1, 'fired', id, now FROM won, t
), named AS (
    INSERT INTO {prefix}run_ids (id, seq) SELECT id, seq FROM won
)
INSERT INTO {prefix}runs (seq, {names new_run}, {names placed},
       attempt, worker_id, claimed_at, started_at, lease_until)
SELECT seq, {names new_run},
       CASE WHEN begins THEN 'running' WHEN due_at > now THEN 'waiting'
            WHEN wanted_key IS NULL THEN 'queued' ELSE 'held' END,
       due_at, now, CASE WHEN due_at <= now THEN now END,
       begins::integer, CASE WHEN begins THEN :worker_id END, CASE WHEN begins THEN now END,
       CASE WHEN begins THEN now END, CASE WHEN begins THEN now + {seconds :lease_seconds} END
  FROM won, t
RETURNING {columns claimed_runs};

-- name: fire_group
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
    INSERT INTO {prefix}runs ({names new_run}, {names placed})
    SELECT {values :new_run}, {placed due, now, :wanted_key::text}
      FROM (SELECT now, coalesce(:due_at::timestamptz, now + {seconds :delay_seconds}) AS due
              FROM (SELECT {now} AS now OFFSET 0) AS n OFFSET 0) AS t
    RETURNING seq, id
)
INSERT INTO {prefix}run_ids (id, seq) SELECT id, seq FROM made RETURNING seq;

-- name: insert_new_runs
-- insert_alike_runs as a transaction of its own, where to look for each id first would cost a fifth:
-- if it was sent before and its answer was lost, it fails. Rows of unnest come in its order.
WITH t AS MATERIALIZED (
    SELECT now, coalesce(:due_at::timestamptz, now + {seconds :delay_seconds}) AS due
      FROM (SELECT {now} AS now) AS n
), made AS (
    INSERT INTO {prefix}runs (id, args, {names shared_run}, {names placed})
    SELECT a.id, a.args, {values :shared_run}, {placed due, now, :wanted_key::text}
      FROM t, {rows a: id uuid, args json}
    RETURNING seq, id
)
INSERT INTO {prefix}run_ids (id, seq) SELECT id, seq FROM made;

-- name: admit_runs
-- What held_runs, take_slot and admit_run do, for many keys at once: the n-th run of a line
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

-- name: claim_at_once
-- What open_queues, pick_runs and claim_runs do, in one round trip. Pauses of a queue
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
       started_at = t.now, lease_until = t.now + {seconds :lease_seconds}
  FROM t
 WHERE r.ctid = ANY (ARRAY(SELECT ctid FROM picked))
RETURNING {columns claimed_runs};

-- name: claim_marked_runs
-- claim_at_once while the head of a line is long and holds nothing for us (marks.py says when): not from
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

-- name: succeed_runs
-- The answer names those that did, unless all of them did: the common one is sent behind lost_first_attempts.
WITH t AS MATERIALIZED (SELECT {now} AS now),
done AS (
    UPDATE {prefix}runs AS r
       SET state = 'succeeded', finished_at = t.now, result = a.result, error = NULL,
           started_at = coalesce(t.now - {seconds a.ran_seconds}, r.started_at),
           reason = CASE WHEN r.cancel_requested_at IS NOT NULL OR r.pause_requested_at IS NOT NULL
                         THEN r.reason END,
           pause_requested_at = NULL, lease_until = NULL
      FROM t, {rows a: seq bigint, ran_seconds float, result json}
     WHERE r.seq = a.seq AND {fence r.attempt = 1 AND r.state = 'running'}
    RETURNING r.seq
)
SELECT CASE WHEN count(*) < cardinality(:seq::bigint[]) THEN coalesce(array_agg(seq), '{}') END
  FROM done;
