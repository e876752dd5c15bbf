-- Every statement Rota sends to DuckDB, in the order of a run's path. :now is bound by the engine.
-- Lists are bound as JSON text, and so are the :rows of statements over many: DuckDB takes a tenth
-- of a millisecond for each element of a Python list.
-- Nothing is unique by an index: what must be, is compared first. All writes stand in one line.

-- name: now
SELECT {now} AS now_at;

--------------------------------------------------------------------------------------- fire

-- name: due_schedules
-- By plan key: those that one plan fires stand together.
SELECT {columns schedules} FROM {prefix}schedules
 WHERE enabled AND NOT paused AND next_fire_at IS NOT NULL
   AND next_fire_at <= {now} + to_microseconds(CAST(:ahead_seconds::DOUBLE * 1000000 AS BIGINT))
 ORDER BY next_fire_at, plan_key LIMIT :limit;

-- name: newest_due_schedules
SELECT {columns schedules} FROM {prefix}schedules
 WHERE enabled AND NOT paused AND next_fire_at IS NOT NULL
   AND next_fire_at <= {now} + to_microseconds(CAST(:ahead_seconds::DOUBLE * 1000000 AS BIGINT))
 ORDER BY next_fire_at DESC, plan_key DESC LIMIT :limit;

-- name: next_fire_at
SELECT min(next_fire_at) AS next_fire_at FROM {prefix}schedules
 WHERE enabled AND NOT paused AND next_fire_at IS NOT NULL;

-- name: standing_cursors
-- Compare-and-set of the cursor, the comparing half: one that has moved was fired by another
-- thread, or somebody edited the schedule, and nothing is inserted. A plan that was made ahead waits
-- if the clock was set back.
SELECT s.id
  FROM (SELECT unnest(from_json_strict(:rows,
                '[{"id": "BIGINT", "cursor_at": "TIMESTAMPTZ", "revision": "BIGINT"}]'),
               recursive := true)) AS a
  JOIN {prefix}schedules AS s
    ON s.id = a.id AND s.next_fire_at = a.cursor_at AND s.revision IS NOT DISTINCT FROM a.revision
 WHERE s.enabled AND NOT s.paused AND s.next_fire_at <= {now};

-- name: advance_schedules
UPDATE {prefix}schedules AS s
   SET next_fire_at = a.next_fire_at, last_fired_at = coalesce(a.last_fired_at, s.last_fired_at)
  FROM (SELECT unnest(from_json_strict(:rows,
                '[{"id": "BIGINT", "next_fire_at": "TIMESTAMPTZ", "last_fired_at": "TIMESTAMPTZ"}]'),
               recursive := true)) AS a
 WHERE s.id = a.id;

-- name: park_schedules
-- A schedule that cannot be planned is not due any more, visibly, and delays nobody.
UPDATE {prefix}schedules AS s
   SET next_fire_at = NULL, error = a.error, state = a.error
  FROM (SELECT unnest(from_json_strict(:rows,
                '[{"id": "BIGINT", "cursor_at": "TIMESTAMPTZ", "revision": "BIGINT", "error": "VARCHAR"}]'),
               recursive := true)) AS a
 WHERE s.id = a.id AND s.next_fire_at = a.cursor_at AND s.revision IS NOT DISTINCT FROM a.revision
RETURNING s.id;

-- name: allocate_seqs
SELECT nextval('{prefix}runs_seq') AS seq FROM range(:count) ORDER BY seq;

-- name: busy_keys
-- A key that somebody already waits for is not free: the line is first in, first out.
SELECT key FROM {prefix}slots
 WHERE number = 1 AND key IN (SELECT unnest(from_json_strict(:keys, '["VARCHAR"]')))
UNION
SELECT wanted_key FROM {prefix}runs
 WHERE wanted_key IN (SELECT unnest(from_json_strict(:keys, '["VARCHAR"]')))
   AND (state = 'held' OR (state = 'waiting' AND attempt = 0 AND occurrence IS NOT NULL
                           AND retry_of IS NULL));

-- name: take_slots
INSERT INTO {prefix}slots (key, number, owner_run)
SELECT a.key, 1, a.seq
  FROM (SELECT unnest(from_json_strict(:rows,
                '[{"key": "VARCHAR", "seq": "BIGINT"}]'),
               recursive := true)) AS a;

-- name: count_held
-- A fired run whose jitter or spread has not passed stands in line as well.
SELECT wanted_key AS key, count(*) AS held FROM {prefix}runs
 WHERE wanted_key IN (SELECT unnest(from_json_strict(:keys, '["VARCHAR"]')))
   AND (state = 'held' OR (state = 'waiting' AND attempt = 0 AND occurrence IS NOT NULL
                           AND retry_of IS NULL))
 GROUP BY wanted_key;

-- name: insert_fired_runs
INSERT INTO {prefix}runs (seq, id, job, queue, priority, state, due_at, created_at, queued_at,
       max_attempts, timeout, backoff, args, overlap_key, concurrency_key, concurrency_limit,
       wanted_key, schedule_id, occurrence, missed_count, created_by, trace)
SELECT a.seq, a.id, a.job, a.queue, a.priority,
       CASE WHEN a.due_at > {now} THEN 'waiting' WHEN a.wanted_key IS NULL THEN 'queued' ELSE 'held' END,
       a.due_at, {now}, CASE WHEN a.due_at <= {now} THEN {now} END,
       a.max_attempts, a.timeout, a.backoff, a.args, a.overlap_key, a.concurrency_key,
       a.concurrency_limit, a.wanted_key, a.schedule_id, a.occurrence, a.missed_count, a.created_by,
       a.trace
  FROM (SELECT unnest(from_json_strict(:rows,
                '[{"seq": "BIGINT", "id": "VARCHAR", "job": "VARCHAR", "queue": "VARCHAR",
                "priority": "INTEGER", "due_at": "TIMESTAMPTZ", "max_attempts": "INTEGER",
                "timeout": "VARCHAR", "backoff": "VARCHAR", "args": "VARCHAR",
                "overlap_key": "VARCHAR", "concurrency_key": "VARCHAR",
                "concurrency_limit": "INTEGER", "wanted_key": "VARCHAR", "schedule_id": "BIGINT",
                "occurrence": "TIMESTAMPTZ", "missed_count": "BIGINT", "created_by": "VARCHAR",
                "trace": "VARCHAR"}]'),
               recursive := true)) AS a;

-- name: merge_into_held
-- overlap = wait: the one held run stands for this occurrence too.
UPDATE {prefix}runs AS r SET missed_count = r.missed_count + head.missed_count
  FROM (SELECT a.missed_count, line.seq
          FROM (SELECT unnest(from_json_strict(:rows,
                        '[{"key": "VARCHAR", "missed_count": "BIGINT"}]'),
                       recursive := true)) AS a
          JOIN (SELECT wanted_key, seq FROM {prefix}runs
                 WHERE wanted_key IN (SELECT unnest(from_json_strict(:rows, '[{"key": "VARCHAR"}]'),
                                                    recursive := true))
                   AND (state = 'held' OR (state = 'waiting' AND attempt = 0
                                           AND occurrence IS NOT NULL AND retry_of IS NULL))
               QUALIFY row_number() OVER (
                           PARTITION BY wanted_key
                           ORDER BY state, CASE WHEN state = 'held' THEN -priority END, seq) = 1
               ) AS line ON line.wanted_key = a.key) AS head
 WHERE r.seq = head.seq
RETURNING r.id, r.wanted_key AS key;

-- name: insert_occurrences
-- The unique ledger is the second line of defence; it outlives the run rows.
INSERT INTO {prefix}occurrences (schedule_id, occurrence, last_occurrence, count, outcome, reason,
       run_id, recorded_at)
SELECT a.schedule_id, a.occurrence, a.last_occurrence, a.count, a.outcome, a.reason, a.run_id, {now}
  FROM (SELECT unnest(from_json_strict(:rows,
                '[{"schedule_id": "BIGINT", "occurrence": "TIMESTAMPTZ",
                "last_occurrence": "TIMESTAMPTZ", "count": "BIGINT", "outcome": "VARCHAR",
                "reason": "VARCHAR", "run_id": "VARCHAR"}]'),
               recursive := true)) AS a
 WHERE NOT EXISTS (SELECT 1 FROM {prefix}occurrences AS o
                    WHERE o.schedule_id = a.schedule_id AND o.occurrence = a.occurrence)
QUALIFY row_number() OVER (PARTITION BY a.schedule_id, a.occurrence) = 1;

-- name: due_kin
-- All schedules of which one plan says what becomes of them.
SELECT id FROM {prefix}schedules
 WHERE enabled AND NOT paused AND next_fire_at = :next_fire_at AND plan_key = :plan_key
   AND CASE WHEN json_valid(args) THEN json_type(args) = 'OBJECT' END
 ORDER BY id LIMIT :limit;

-- name: free_kin
-- standing_cursors and busy_keys of a herd; what the ledger knows already needs more than this.
SELECT s.id FROM {prefix}schedules AS s
 WHERE s.id IN (SELECT unnest(from_json_strict(:ids, '["BIGINT"]')))
   AND s.enabled AND NOT s.paused AND s.next_fire_at = :cursor_at
   AND s.plan_key = :plan_key AND s.next_fire_at <= {now}
   AND s.id NOT IN (SELECT schedule_id FROM {prefix}occurrences WHERE occurrence = :cursor_at)
   AND (NOT :has_slot OR 'o/schedule ' || s.id NOT IN (
           SELECT key FROM {prefix}slots WHERE number = 1
           UNION ALL
           SELECT wanted_key FROM {prefix}runs
            WHERE wanted_key IS NOT NULL
              AND (state = 'held' OR (state = 'waiting' AND attempt = 0 AND occurrence IS NOT NULL
                                      AND retry_of IS NULL))))
 ORDER BY s.id;

-- name: first_kin_seq
SELECT min(seq) AS seq FROM (SELECT nextval('{prefix}runs_seq') AS seq FROM range(:count));

-- name: insert_kin_runs
INSERT INTO {prefix}runs (seq, id, job, queue, priority, state, due_at, created_at, queued_at,
       max_attempts, timeout, backoff, args, overlap_key, concurrency_key, concurrency_limit,
       wanted_key, schedule_id, occurrence, missed_count, created_by)
SELECT :first_seq + row_number() OVER (ORDER BY s.id) - 1, a.one.value, :job, :queue, :priority,
       CASE WHEN :wanted_key IS NULL THEN 'queued' ELSE 'held' END, :due_at, {now}, {now},
       :max_attempts, :timeout, :backoff, s.args, CASE WHEN :has_slot THEN 'schedule ' || s.id END,
       :concurrency_key, :concurrency_limit, :wanted_key, s.id, :cursor_at, :missed_count,
       'schedule ' || s.name
  FROM (SELECT unnest(map_entries(CAST(:run_ids::JSON AS MAP(BIGINT, VARCHAR)))) AS one) AS a
  JOIN {prefix}schedules AS s ON s.id = a.one.key;

-- name: insert_kin_occurrences
INSERT INTO {prefix}occurrences (schedule_id, occurrence, last_occurrence, count, outcome, run_id,
       recorded_at)
SELECT schedule_id, occurrence, occurrence, 1, 'fired', id, {now}
  FROM {prefix}runs WHERE seq BETWEEN :first_seq AND :last_seq;

-- name: take_kin_slots
INSERT INTO {prefix}slots (key, number, owner_run)
SELECT 'o/' || overlap_key, 1, seq FROM {prefix}runs WHERE seq BETWEEN :first_seq AND :last_seq;

-- name: advance_kin
UPDATE {prefix}schedules SET next_fire_at = :next_fire_at, last_fired_at = :cursor_at
 WHERE id IN (SELECT schedule_id FROM {prefix}runs WHERE seq BETWEEN :first_seq AND :last_seq);

------------------------------------------------------------------------------------ enqueue

-- name: take_keys
MERGE INTO {prefix}run_keys AS k
USING (SELECT job, key, run_id,
              {now} + to_microseconds(CAST(ttl_seconds * 1000000 AS BIGINT)) AS until
         FROM (SELECT unnest(from_json_strict(:rows,
                       '[{"job": "VARCHAR", "key": "VARCHAR", "run_id": "VARCHAR",
                          "ttl_seconds": "DOUBLE"}]'),
                      recursive := true))) AS a
   ON k.job = a.job AND k.key = a.key
 WHEN MATCHED AND k.until <= {now} THEN UPDATE SET run_id = a.run_id, until = a.until
 WHEN NOT MATCHED THEN INSERT (job, key, run_id, until) VALUES (a.job, a.key, a.run_id, a.until)
RETURNING run_id;

-- name: find_keys
SELECT run_id FROM {prefix}run_keys WHERE job = :job AND key = :key;

-- name: insert_queues
INSERT INTO {prefix}queues (name)
SELECT DISTINCT a.name FROM (SELECT unnest(from_json_strict(:rows,
                                     '[{"name": "VARCHAR"}]'),
                                    recursive := true)) AS a
 WHERE NOT EXISTS (SELECT 1 FROM {prefix}queues AS q WHERE q.name = a.name);

-- name: insert_alike_runs
-- insert_runs for many that differ in id and arguments alone.
INSERT INTO {prefix}runs (seq, id, job, queue, priority, state, due_at, created_at, queued_at,
       max_attempts, timeout, backoff, args, overlap_key, concurrency_key, concurrency_limit,
       wanted_key, schedule_id, occurrence, retry_of, created_by, correlation_id, trace)
SELECT a.seq, a.id, :job, :queue, :priority,
       CASE WHEN a.due > {now} THEN 'waiting' WHEN :wanted_key IS NULL THEN 'queued' ELSE 'held' END,
       a.due, {now}, CASE WHEN a.due <= {now} THEN {now} END,
       :max_attempts, :timeout, :backoff, a.args, :overlap_key, :concurrency_key,
       :concurrency_limit, :wanted_key, :schedule_id, :occurrence, :retry_of, :created_by,
       :correlation_id, :trace
  FROM (SELECT seq, pair[1] AS id, pair[2] AS args,
               coalesce(:due_at::TIMESTAMPTZ,
                        {now} + to_microseconds(CAST(:delay_seconds::DOUBLE * 1000000 AS BIGINT))) AS due
          FROM (SELECT unnest(numbers.seqs) AS seq,
                       unnest(from_json_strict(:rows, '[["VARCHAR"]]')) AS pair
                  FROM (SELECT list(n ORDER BY n) AS seqs
                          FROM (SELECT nextval('{prefix}runs_seq') AS n
                                  FROM range(json_array_length(:rows)::BIGINT))) AS numbers)) AS a
 WHERE NOT EXISTS (SELECT 1 FROM {prefix}runs AS r WHERE r.id = a.id);

-- name: insert_runs
-- The id comes from the caller: after a lost answer the same insert can be sent again.
-- Numbered before anything else, because seq is the order of the line, and no join keeps an order.
INSERT INTO {prefix}runs (seq, id, job, queue, priority, state, due_at, created_at, queued_at,
       max_attempts, timeout, backoff, args, overlap_key, concurrency_key, concurrency_limit,
       wanted_key, schedule_id, occurrence, retry_of, created_by, correlation_id, trace)
SELECT a.seq, a.id, a.job, a.queue, a.priority,
       CASE WHEN a.due > {now} THEN 'waiting' WHEN a.wanted_key IS NULL THEN 'queued' ELSE 'held' END,
       a.due, {now}, CASE WHEN a.due <= {now} THEN {now} END,
       a.max_attempts, a.timeout, a.backoff, a.args, a.overlap_key, a.concurrency_key,
       a.concurrency_limit, a.wanted_key, a.schedule_id, a.occurrence, a.retry_of, a.created_by,
       a.correlation_id, a.trace
  FROM (SELECT seq, row.*,
               coalesce(row.due_at, {now} + to_microseconds(
                            CAST(row.delay_seconds * 1000000 AS BIGINT))) AS due
          FROM (SELECT unnest(numbers.seqs) AS seq,
                       unnest(from_json_strict(:rows,
                        '[{"id": "VARCHAR", "job": "VARCHAR", "queue": "VARCHAR",
                           "priority": "INTEGER", "due_at": "TIMESTAMPTZ", "delay_seconds": "DOUBLE",
                           "max_attempts": "INTEGER", "timeout": "VARCHAR", "backoff": "VARCHAR",
                           "args": "VARCHAR", "overlap_key": "VARCHAR", "concurrency_key": "VARCHAR",
                           "concurrency_limit": "INTEGER", "wanted_key": "VARCHAR",
                           "schedule_id": "BIGINT", "occurrence": "TIMESTAMPTZ",
                           "retry_of": "VARCHAR", "created_by": "VARCHAR",
                           "correlation_id": "VARCHAR", "trace": "VARCHAR"}]')) AS row
                  FROM (SELECT list(n ORDER BY n) AS seqs
                          FROM (SELECT nextval('{prefix}runs_seq') AS n
                                  FROM range(json_array_length(:rows)::BIGINT))) AS numbers)) AS a
 WHERE NOT EXISTS (SELECT 1 FROM {prefix}runs AS r WHERE r.id = a.id)
RETURNING id;

------------------------------------------------------------------------------------ promote

-- name: promote_runs
-- A run that still wants a slot goes to held; admit does the rest.
UPDATE {prefix}runs
   SET state = CASE WHEN wanted_key IS NULL THEN 'queued' ELSE 'held' END, queued_at = {now}
 WHERE state = 'waiting'
   AND seq IN (SELECT seq FROM {prefix}runs
                WHERE state = 'waiting' AND due_at <= {now} ORDER BY due_at LIMIT :limit)
RETURNING wanted_key;

-- name: next_due_at
SELECT min(due_at) AS next_due_at FROM {prefix}runs WHERE state = 'waiting';

-------------------------------------------------------------------------------------- admit

-- name: held_keys
SELECT DISTINCT wanted_key AS key FROM {prefix}runs
 WHERE state = 'held' AND wanted_key > :after ORDER BY key LIMIT :limit;

-- name: held_runs
SELECT seq, CASE WHEN wanted_key = 'c/' || concurrency_key THEN concurrency_limit ELSE 1 END AS size
  FROM {prefix}runs WHERE state = 'held' AND wanted_key = :key
 ORDER BY priority DESC, seq LIMIT :limit;

-- name: taken_numbers
SELECT number FROM {prefix}slots WHERE key = :key;

-- name: take_slot
INSERT INTO {prefix}slots (key, number, owner_run) VALUES (:key, :number, :seq);

-- name: admit_run
UPDATE {prefix}runs
   SET wanted_key = CASE WHEN wanted_key = 'o/' || overlap_key THEN 'c/' || concurrency_key END,
       state = CASE WHEN wanted_key = 'o/' || overlap_key AND concurrency_key IS NOT NULL
                    THEN 'held' ELSE 'queued' END
 WHERE seq = :seq AND state = 'held' AND wanted_key = :key
RETURNING wanted_key;

-------------------------------------------------------------------------------------- claim

-- name: open_queues
-- Pauses of a queue and of all dispatch are durable and seen by the next claim.
SELECT name FROM {prefix}queues
 WHERE NOT paused
   AND (json_array_length(:queues) = 0
        OR name IN (SELECT unnest(from_json_strict(:queues, '["VARCHAR"]'))))
   AND NOT EXISTS (SELECT 1 FROM {prefix}meta WHERE key = 'dispatch' AND value <> 'on');

-- name: pick_runs
SELECT -priority AS place, due_at, seq FROM {prefix}runs
 WHERE state = 'queued' AND queue = :queue AND job IN (SELECT unnest(from_json_strict(:jobs, '["VARCHAR"]')))
 ORDER BY priority DESC, due_at, seq LIMIT :limit;

-- name: pick_whole_runs
-- pick_runs and claimed_runs at once, where one queue is open: its line is the order of all.
SELECT seq, id, job, queue, attempt + 1 AS attempt, failures, lost, max_attempts, args, timeout,
       backoff, overlap_key, concurrency_key, schedule_id, occurrence, due_at, missed_count,
       cancel_requested_at, correlation_id, trace, priority
  FROM {prefix}runs
 WHERE state = 'queued' AND queue = :queue AND job IN (SELECT unnest(from_json_strict(:jobs, '["VARCHAR"]')))
 ORDER BY priority DESC, due_at, seq LIMIT :limit;

-- name: claim_runs
UPDATE {prefix}runs
   SET state = 'running', attempt = attempt + 1, worker_id = :worker_id, claimed_at = {now},
       started_at = {now},
       lease_until = {now} + to_microseconds(CAST(:lease_seconds::DOUBLE * 1000000 AS BIGINT))
 WHERE seq IN (SELECT unnest(from_json_strict(:seqs, '["BIGINT"]'))) AND state = 'queued';

-- name: claimed_runs
SELECT seq, id, job, queue, attempt, failures, lost, max_attempts, args, timeout, backoff,
       overlap_key, concurrency_key, schedule_id, occurrence, due_at, missed_count,
       cancel_requested_at, correlation_id, trace, priority
  FROM {prefix}runs WHERE seq IN (SELECT unnest(from_json_strict(:seqs, '["BIGINT"]')));

-- name: let_go_unknown
-- After a claim whose answer was lost: runs this worker owns without knowing it.
UPDATE {prefix}runs
   SET state = 'queued', worker_id = NULL, lease_until = NULL
 WHERE state = 'running' AND worker_id = :worker_id
   AND seq NOT IN (SELECT unnest(from_json_strict(:known, '["BIGINT"]')))
RETURNING seq;

-------------------------------------------------------------------------------------- renew

-- name: renew_runs
UPDATE {prefix}runs AS r
   SET lease_until = {now} + to_microseconds(CAST(a.lease_seconds * 1000000 AS BIGINT))
  FROM (SELECT unnest(from_json_strict(:rows,
                '[{"seq": "BIGINT", "attempt": "INTEGER", "lease_seconds": "DOUBLE"}]'),
               recursive := true)) AS a
 WHERE r.seq = a.seq AND r.state = 'running' AND r.attempt = a.attempt
RETURNING r.seq, r.cancel_requested_at, r.pause_requested_at, true AS renewed;

-- name: cancel_requests
SELECT seq FROM {prefix}runs
 WHERE seq IN (SELECT unnest(from_json_strict(:seqs, '["BIGINT"]'))) AND state = 'running'
   AND cancel_requested_at IS NOT NULL;

-- name: set_progress
UPDATE {prefix}runs AS r SET progress = a.progress
  FROM (SELECT unnest(from_json_strict(:rows,
                '[{"seq": "BIGINT", "attempt": "INTEGER", "progress": "VARCHAR"}]'),
               recursive := true)) AS a
 WHERE r.seq = a.seq AND r.state = 'running' AND r.attempt = a.attempt;

-- name: insert_logs
INSERT INTO {prefix}logs (id, run_seq, attempt, "at", level, text)
SELECT a.id, a.run_seq, a.attempt, a."at", a.level, a.text
  FROM (SELECT id, line.*
          FROM (SELECT unnest(numbers.ids) AS id,
                       unnest(from_json_strict(:rows,
                        '[{"run_seq": "BIGINT", "attempt": "INTEGER", "at": "TIMESTAMPTZ",
                           "level": "VARCHAR", "text": "VARCHAR"}]')) AS line
                  FROM (SELECT list(n ORDER BY n) AS ids
                          FROM (SELECT nextval('{prefix}logs_id') AS n
                                  FROM range(json_array_length(:rows)::BIGINT))) AS numbers)) AS a;

------------------------------------------------------------------------------------- settle

-- name: lost_first_attempts
-- Those of :seqs that are somebody else's by now, or ended: hardly ever any.
SELECT a.seq FROM (SELECT unnest(from_json_strict(:seqs, '["BIGINT"]')) AS seq) AS a
 WHERE a.seq NOT IN (SELECT seq FROM {prefix}runs
                      WHERE seq IN (SELECT unnest(from_json_strict(:seqs, '["BIGINT"]')))
                        AND attempt = 1 AND state = 'running');

-- name: succeed_silent_runs
-- succeed_runs without results: an object of seconds by seq.
UPDATE {prefix}runs AS r
   SET state = 'succeeded', finished_at = {now}, result = NULL, error = NULL,
       started_at = coalesce({now} - to_microseconds(CAST(a.ran_seconds * 1000000 AS BIGINT)),
                             r.started_at),
       reason = CASE WHEN r.cancel_requested_at IS NOT NULL OR r.pause_requested_at IS NOT NULL
                     THEN r.reason END,
       pause_requested_at = NULL, lease_until = NULL
  FROM (SELECT unnest(map_keys(told)) AS seq, unnest(map_values(told)) AS ran_seconds
          FROM (SELECT from_json_strict(:ran_seconds, '"MAP(BIGINT, DOUBLE)"') AS told)) AS a
 WHERE r.seq = a.seq AND r.attempt = 1 AND r.state = 'running';

-- name: succeed_runs
-- settle_runs for what most runs do: succeed at the first attempt and hold no slot.
UPDATE {prefix}runs AS r
   SET state = 'succeeded', finished_at = {now}, result = a.result, error = NULL,
       started_at = coalesce({now} - to_microseconds(CAST(a.ran_seconds * 1000000 AS BIGINT)),
                             r.started_at),
       reason = CASE WHEN r.cancel_requested_at IS NOT NULL OR r.pause_requested_at IS NOT NULL
                     THEN r.reason END,
       pause_requested_at = NULL, lease_until = NULL
  FROM (SELECT unnest(from_json_strict(:rows,
                '[{"seq": "BIGINT", "ran_seconds": "DOUBLE", "result": "VARCHAR"}]'),
               recursive := true)) AS a
 WHERE r.seq = a.seq AND r.attempt = 1 AND r.state = 'running';

-- name: settle_runs
-- Fenced by the attempt number: a worker that lost its lease matches no row and drops its result.
-- A cancel that came meanwhile wins over all but success, a pause over every state that is no end.
UPDATE {prefix}runs AS r
   SET state = CASE WHEN r.cancel_requested_at IS NOT NULL AND a.state <> 'succeeded' THEN 'cancelled'
                    WHEN a.terminal THEN a.state
                    WHEN r.pause_requested_at IS NOT NULL THEN 'paused'
                    ELSE a.state END,
       finished_at = CASE WHEN a.terminal OR r.cancel_requested_at IS NOT NULL THEN {now} END,
       due_at = CASE WHEN a.state = 'waiting'
                     THEN {now} + to_microseconds(CAST(a.delay_seconds * 1000000 AS BIGINT))
                     ELSE r.due_at END,
       started_at = coalesce({now} - to_microseconds(CAST(a.ran_seconds * 1000000 AS BIGINT)),
                             r.started_at),
       wanted_key = CASE WHEN a.gives_back
                         THEN coalesce('o/' || r.overlap_key, 'c/' || r.concurrency_key) END,
       failures = a.failures, lost = a.lost, error = a.error, result = a.result,
       reason = coalesce(a.reason, CASE WHEN r.cancel_requested_at IS NOT NULL
                                          OR r.pause_requested_at IS NOT NULL THEN r.reason END),
       pause_requested_at = NULL, lease_until = NULL
  FROM (SELECT unnest(from_json_strict(:rows,
                '[{"seq": "BIGINT", "attempt": "INTEGER", "state": "VARCHAR",
                "terminal": "BOOLEAN", "delay_seconds": "DOUBLE", "ran_seconds": "DOUBLE",
                "gives_back": "BOOLEAN", "failures": "INTEGER", "lost": "INTEGER",
                "error": "VARCHAR", "reason": "VARCHAR", "result": "VARCHAR",
                "expired_only": "BOOLEAN"}]'),
               recursive := true)) AS a
 WHERE r.seq = a.seq AND r.state = 'running' AND r.attempt = a.attempt
   AND (NOT a.expired_only OR r.lease_until <= {now})
RETURNING r.seq, r.state, r.worker_id, r.started_at;

-- name: insert_attempts
INSERT INTO {prefix}attempts (run_seq, number, worker_id, started_at, finished_at, outcome, error)
SELECT a.run_seq, a.number, a.worker_id, a.started_at, {now}, a.outcome, a.error
  FROM (SELECT unnest(from_json_strict(:rows,
                '[{"run_seq": "BIGINT", "number": "INTEGER", "worker_id": "VARCHAR",
                "started_at": "TIMESTAMPTZ", "outcome": "VARCHAR", "error": "VARCHAR"}]'),
               recursive := true)) AS a
 WHERE NOT EXISTS (SELECT 1 FROM {prefix}attempts AS t
                    WHERE t.run_seq = a.run_seq AND t.number = a.number);

-- name: release_slots
DELETE FROM {prefix}slots
 WHERE owner_run IN (SELECT unnest(from_json_strict(:rows, '[{"seq": "BIGINT"}]'), recursive := true))
RETURNING key;

-- name: delay_schedules
SELECT id, expr, last_fired_at FROM {prefix}schedules
 WHERE id IN (SELECT unnest(from_json_strict(:ids, '["BIGINT"]'))) AND next_fire_at = :waiting_at;

-- name: restart_delay_schedule
-- A schedule that counts from the end of its run: the run has ended, the clock starts. After a step
-- of the clock it may say less than when the run was fired: the cursor does not go back with it.
UPDATE {prefix}schedules
   SET next_fire_at = CASE WHEN greatest({now}, last_fired_at) + to_microseconds(
                                    CAST(:interval_seconds::DOUBLE * 1000000 AS BIGINT)) > ends_at
                           THEN NULL
                           ELSE greatest({now}, last_fired_at) + to_microseconds(
                                    CAST(:interval_seconds::DOUBLE * 1000000 AS BIGINT)) END
 WHERE id = :id AND next_fire_at = :waiting_at
RETURNING id, name, next_fire_at;

-- name: lock_schedules
SELECT {columns schedules} FROM {prefix}schedules WHERE id IN (SELECT unnest(from_json_strict(:ids, '["BIGINT"]'))) ORDER BY id;

-- name: recent_ends
SELECT state FROM {prefix}runs
 WHERE schedule_id = :schedule_id AND occurrence IS NOT NULL AND state IN ('succeeded', 'dead')
 ORDER BY seq DESC LIMIT :limit;

-- name: set_schedule_state
UPDATE {prefix}schedules SET state = :state WHERE id = :id;

-- name: insert_events
INSERT INTO {prefix}events (id, "at", kind, run_id, name, detail)
SELECT nextval('{prefix}events_id'), {now}, a.kind, a.run_id, a.name, a.detail
  FROM (SELECT unnest(from_json_strict(:rows,
                '[{"kind": "VARCHAR", "run_id": "VARCHAR", "name": "VARCHAR", "detail": "VARCHAR"}]'),
               recursive := true)) AS a;

-------------------------------------------------------------------------------------- steps

-- name: fence_run
-- Whether an attempt is still its worker's. Read under the write lock, nobody can change it.
SELECT seq FROM {prefix}runs WHERE seq = :seq AND attempt = :attempt AND state = 'running';

-- name: lock_run_by_seq
SELECT seq FROM {prefix}runs WHERE seq = :seq;

-- name: put_texts
MERGE INTO {prefix}job_texts AS t
USING (SELECT unnest(from_json_strict(:rows,
               '[{"hash": "VARCHAR", "text": "VARCHAR", "names": "VARCHAR"}]'),
              recursive := true)) AS a
   ON t.hash = a.hash
 WHEN MATCHED THEN UPDATE SET kept_at = {now}
 WHEN NOT MATCHED THEN INSERT (hash, text, names, kept_at) VALUES (a.hash, a.text, a.names, {now});

-- name: texts_of
SELECT hash, text FROM {prefix}job_texts
 WHERE hash IN (SELECT unnest(from_json_strict(:hashes, '["VARCHAR"]')));

-- name: insert_run_files
INSERT INTO {prefix}run_files (run_seq, number, name, hash)
SELECT a.seq, a.number, a.name, a.hash
  FROM (SELECT unnest(from_json_strict(:rows,
                '[{"seq": "BIGINT", "number": "INTEGER", "name": "VARCHAR", "hash": "VARCHAR"}]'),
               recursive := true)) AS a
 WHERE NOT EXISTS (SELECT 1 FROM {prefix}run_files AS f
                    WHERE f.run_seq = a.seq AND f.number = a.number);

-- name: run_files
SELECT f.number, f.name, t.text, t.names
  FROM {prefix}run_files AS f JOIN {prefix}job_texts AS t ON t.hash = f.hash
 WHERE f.run_seq = :seq ORDER BY f.number;

-- name: done_steps
-- An attempt that starts over does not look at what the others did, only at what an operator told it
-- to pass over: see pin_marks.
SELECT DISTINCT number FROM {prefix}step_marks
 WHERE run_seq = :seq AND NOT void AND (:attempt IS NULL OR attempt IN (0, :attempt));

-- name: put_step
INSERT INTO {prefix}steps (run_seq, attempt, number, name, hash, started_at, status)
SELECT :seq, :attempt, :number, :name, :hash, {now}, 'running'
 WHERE NOT EXISTS (SELECT 1 FROM {prefix}steps
                    WHERE run_seq = :seq AND attempt = :attempt AND number = :number);

-- name: end_step
UPDATE {prefix}steps SET status = :status, error = :error, finished_at = {now}
 WHERE run_seq = :seq AND attempt = :attempt AND number = :number AND status = 'running';

-- name: note_step
UPDATE {prefix}steps SET note = :note
 WHERE run_seq = :seq AND attempt = :attempt AND number = :number;

-- name: insert_mark
-- The one statement of ours in the transaction of a step, whose snapshot may be old: an insert and
-- nothing else. A second one would come from the same attempt, which ends its steps one by one.
INSERT INTO {prefix}step_marks (run_seq, number, attempt, finished_at, rows, result)
SELECT :seq, :number, :attempt, {now}, :rows, :result
 WHERE NOT EXISTS (SELECT 1 FROM {prefix}step_marks
                    WHERE run_seq = :seq AND number = :number AND attempt = :attempt);

-- name: step_mark
SELECT number FROM {prefix}step_marks
 WHERE run_seq = :seq AND number = :number AND attempt = :attempt;

-- name: renew_worker
-- Never sent: it is for steps that keep everybody from writing, as SQLite's do, and none does here.
UPDATE {prefix}runs
   SET lease_until = {now} + to_microseconds(CAST(:lease_seconds::DOUBLE * 1000000 AS BIGINT))
 WHERE state = 'running'
   AND worker_id = (SELECT worker_id FROM {prefix}runs WHERE seq = :seq);

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
SELECT id, run_id, job_name, record_type, file_name, started_at AS started,
       finished_at AS finished, status, error_message
  FROM {views}job_runs
 WHERE id >= :first_id OR status = 'failed'
 ORDER BY id DESC LIMIT :limit;

-- name: void_marks
UPDATE {prefix}step_marks SET void = true WHERE run_seq = :seq AND number >= :number AND NOT void;

-- name: unpin_marks
DELETE FROM {prefix}step_marks WHERE run_seq = :seq AND attempt = 0;

-- name: pin_marks
-- Passed over, done or not, whoever asks, also an attempt that starts over: as if attempt 0, which
-- never is, had done them.
INSERT INTO {prefix}step_marks (run_seq, number, attempt, finished_at)
SELECT :seq, number, 0, {now} FROM range(1, :number) AS passed (number);

-- name: list_steps
SELECT s.attempt, s.number, s.name, s.hash, s.started_at,
       coalesce(m.finished_at, s.finished_at) AS finished_at,
       CASE WHEN m.number IS NOT NULL THEN 'succeeded' ELSE s.status END AS status,
       m.rows, m.result, s.error, s.note
  FROM {prefix}steps AS s
  LEFT JOIN {prefix}step_marks AS m
         ON m.run_seq = s.run_seq AND m.attempt = s.attempt AND m.number = s.number
 WHERE s.run_seq = :seq ORDER BY s.attempt, s.number LIMIT :limit;

-- name: delete_run_files
DELETE FROM {prefix}run_files
 WHERE run_seq IN (SELECT unnest(from_json_strict(:rows, '[{"seq": "BIGINT"}]'), recursive := true));

-- name: delete_steps
DELETE FROM {prefix}steps
 WHERE run_seq IN (SELECT unnest(from_json_strict(:rows, '[{"seq": "BIGINT"}]'), recursive := true));

-- name: delete_marks
DELETE FROM {prefix}step_marks
 WHERE run_seq IN (SELECT unnest(from_json_strict(:rows, '[{"seq": "BIGINT"}]'), recursive := true));

-- name: old_texts
SELECT t.hash FROM {prefix}job_texts AS t
 WHERE t.kept_at < {now} - to_microseconds(CAST(:age_seconds::DOUBLE * 1000000 AS BIGINT))
   AND NOT EXISTS (SELECT 1 FROM {prefix}run_files AS f WHERE f.hash = t.hash)
 LIMIT :limit;

-- name: delete_texts
DELETE FROM {prefix}job_texts
 WHERE hash IN (SELECT unnest(from_json_strict(:rows, '[{"hash": "VARCHAR"}]'), recursive := true));

-------------------------------------------------------------------------------------- files

-- name: insert_file
INSERT INTO {prefix}files (id, name, content_type, size, sha256, job, run_id, created_at, until,
       content)
SELECT :id, :name, :content_type, :size, :digest, :job, :run_id, {now},
       {now} + to_microseconds(CAST(:ttl_seconds::DOUBLE * 1000000 AS BIGINT)), :content
RETURNING id, name, content_type, size, sha256, job, run_id, created_at, until;

-- name: lock_files
-- Nothing to lock: a transaction that writes is alone until its end.
SELECT 1 AS locked;

-- name: file_usage
-- What has run out takes no room, though its row goes a little later.
SELECT count(*) AS files, coalesce(sum(size), 0) AS bytes
  FROM {prefix}files WHERE until IS NULL OR until > {now};

-- name: kept_file
SELECT id, name, content_type, size, sha256, job, run_id, created_at, until
  FROM {prefix}files WHERE id = :id AND (until IS NULL OR until > {now});

-- name: file_content
SELECT content FROM {prefix}files WHERE id = :id AND (until IS NULL OR until > {now});

-- name: list_files
SELECT id, name, content_type, size, sha256, job, run_id, created_at, until
  FROM {prefix}files
 WHERE id > :after AND starts_with(name, :prefix) AND (until IS NULL OR until > {now})
 ORDER BY id LIMIT :limit;

-- name: delete_file
DELETE FROM {prefix}files WHERE id = :id RETURNING name;

-- name: expired_files
SELECT id FROM {prefix}files WHERE until <= {now} ORDER BY until LIMIT :limit;

------------------------------------------------------------------------------------- rescue

-- name: expired_runs
SELECT seq, id, job, queue, attempt, failures, lost, max_attempts, args, timeout, backoff,
       overlap_key, concurrency_key, schedule_id, occurrence, due_at, missed_count,
       cancel_requested_at, correlation_id, trace, priority
  FROM {prefix}runs
 WHERE state = 'running' AND lease_until <= {now}
   AND seq NOT IN (SELECT unnest(from_json_strict(:without, '["BIGINT"]')))
 ORDER BY lease_until LIMIT :limit;

-- name: expired_leases
SELECT count(*) AS runs, min(lease_until) AS oldest_at FROM {prefix}runs
 WHERE state = 'running' AND lease_until <= {now};

-- name: slot_owners_after
SELECT owner_run FROM {prefix}slots WHERE owner_run > :after ORDER BY owner_run LIMIT :limit;

-- name: sweep_slots
-- Slots whose owner has ended or is gone. Nothing should leave one behind; this repairs it.
DELETE FROM {prefix}slots
 WHERE owner_run IN (SELECT unnest(from_json_strict(:owners, '["BIGINT"]')))
   AND owner_run NOT IN (SELECT seq FROM {prefix}runs
                          WHERE seq IN (SELECT unnest(from_json_strict(:owners, '["BIGINT"]')))
                            AND state NOT IN ('succeeded', 'dead', 'cancelled'))
RETURNING key;

-- name: stranded_delay_schedules
-- Delay schedules that wait for a run which no longer exists (deleted, or never admitted).
SELECT id, expr FROM {prefix}schedules AS s
 WHERE enabled AND NOT paused AND next_fire_at = :waiting_at
   AND NOT EXISTS (SELECT 1 FROM {prefix}runs AS r WHERE r.schedule_id = s.id
                      AND r.state IN ('waiting', 'held', 'queued', 'running', 'paused'))
 LIMIT :limit;

------------------------------------------------------------------------- jobs and schedules

-- name: put_jobs
-- Of two versions the later one wins; the same version keeps its instant.
MERGE INTO {prefix}jobs AS j
USING (SELECT unnest(from_json_strict(:rows,
               '[{"name": "VARCHAR", "executor": "VARCHAR", "source": "VARCHAR",
               "origin": "VARCHAR", "spec": "VARCHAR", "args_schema": "VARCHAR",
               "description": "VARCHAR", "queue": "VARCHAR", "priority": "INTEGER",
               "timeout": "VARCHAR", "policies": "VARCHAR", "enabled": "BOOLEAN",
               "error": "VARCHAR", "version": "VARCHAR"}]'),
              recursive := true)) AS a
   ON j.name = a.name
 WHEN MATCHED AND (j.version <> a.version OR j.error IS DISTINCT FROM a.error
                   OR j.enabled <> a.enabled)
 THEN UPDATE
   SET executor = a.executor, source = a.source, origin = a.origin, spec = a.spec,
       args_schema = a.args_schema, description = a.description, queue = a.queue,
       priority = a.priority, timeout = a.timeout, policies = a.policies, enabled = a.enabled,
       error = a.error, version = a.version, version_at = {now}
 WHEN NOT MATCHED THEN INSERT (name, executor, source, origin, spec, args_schema, description, queue,
       priority, timeout, policies, enabled, error, version, version_at)
VALUES (a.name, a.executor, a.source, a.origin, a.spec, a.args_schema, a.description, a.queue,
       a.priority, a.timeout, a.policies, a.enabled, a.error, a.version, {now});

-- name: jobs_named
SELECT * FROM {prefix}jobs WHERE name IN (SELECT unnest(from_json_strict(:names, '["VARCHAR"]')));

-- name: list_jobs
SELECT * FROM {prefix}jobs WHERE name > :after ORDER BY name LIMIT :limit;

-- name: insert_schedules
INSERT INTO {prefix}schedules (id, name, job, kind, expr, next_fire_at, enabled, paused,
       overlap_key, ends_at, args, priority, options, plan_key, created_at, state, error, registered)
SELECT nextval('{prefix}schedules_id'), a.name, a.job, a.kind, a.expr, a.next_fire_at, a.enabled,
       false, a.overlap_key, a.ends_at, a.args, a.priority, a.options, a.plan_key, {now}, a.state,
       a.error, a.registered
  FROM (SELECT unnest(from_json_strict(:rows,
                '[{"name": "VARCHAR", "job": "VARCHAR", "kind": "VARCHAR", "expr": "VARCHAR",
                "next_fire_at": "TIMESTAMPTZ", "enabled": "BOOLEAN", "overlap_key": "VARCHAR",
                "ends_at": "TIMESTAMPTZ", "args": "VARCHAR", "priority": "INTEGER",
                "options": "VARCHAR", "plan_key": "VARCHAR", "state": "VARCHAR",
                "error": "VARCHAR", "registered": "VARCHAR"}]'),
               recursive := true)) AS a
 WHERE a.name NOT IN (SELECT name FROM {prefix}schedules)
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
SELECT {columns schedules} FROM {prefix}schedules WHERE name = :name;

-- name: schedules_named
SELECT {columns schedules} FROM {prefix}schedules
 WHERE name IN (SELECT unnest(from_json_strict(:names, '["VARCHAR"]')));

-- name: lock_schedule
SELECT {columns schedules} FROM {prefix}schedules WHERE name = :name;

-- name: list_schedules
SELECT {columns schedules} FROM {prefix}schedules
 WHERE name > :after AND (:job IS NULL OR job = :job) ORDER BY name LIMIT :limit;

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
SELECT {columns schedules} FROM {prefix}schedules WHERE NOT paused ORDER BY id LIMIT :limit;

-- name: paused_because
SELECT id, name FROM {prefix}schedules
 WHERE paused AND paused_reason LIKE :mark AND id > :after ORDER BY id LIMIT :limit;

-- name: drop_schedule
DELETE FROM {prefix}schedules WHERE id = :id RETURNING id;

-- name: insert_schedule_changes
INSERT INTO {prefix}schedule_changes (id, schedule_id, name, "at", "by", action, reason, before,
       after)
SELECT nextval('{prefix}schedule_changes_id'), a.schedule_id, a.name, {now}, a."by", a.action,
       a.reason, a.before, a.after
  FROM (SELECT unnest(from_json_strict(:rows,
                '[{"schedule_id": "BIGINT", "name": "VARCHAR", "by": "VARCHAR",
                "action": "VARCHAR", "reason": "VARCHAR", "before": "VARCHAR",
                "after": "VARCHAR"}]'),
               recursive := true)) AS a;

-- name: list_schedule_changes
SELECT id, schedule_id, name, "at", "by", action, reason, before, after
  FROM {prefix}schedule_changes
 WHERE schedule_id = :schedule_id AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: dropped_schedule
-- The last of its name that was dropped.
SELECT id, schedule_id, name, "at", "by", action, reason, before, after
  FROM {prefix}schedule_changes
 WHERE name = :name AND action = 'drop' ORDER BY id DESC LIMIT 1;

-- name: occurrence_at
SELECT schedule_id, occurrence, last_occurrence, count, outcome, reason, run_id, recorded_at
  FROM {prefix}occurrences
 WHERE schedule_id = :schedule_id AND occurrence <= :instant AND last_occurrence >= :instant
 ORDER BY occurrence DESC LIMIT 1;

-- name: slot_owners
SELECT * FROM {prefix}runs
 WHERE seq IN (SELECT owner_run FROM {prefix}slots WHERE key = :key ORDER BY number LIMIT 100);

-- name: list_occurrences
SELECT schedule_id, occurrence, last_occurrence, count, outcome, reason, run_id, recorded_at
  FROM {prefix}occurrences
 WHERE schedule_id = :schedule_id AND occurrence < :before ORDER BY occurrence DESC LIMIT :limit;

------------------------------------------------------------------------------- jobs of files

-- name: lock_job
SELECT * FROM {prefix}jobs WHERE name = :name;

-- name: see_versions
-- A version that comes back keeps its instant, unless somebody saw the files change to it.
MERGE INTO {prefix}job_versions AS v
USING (SELECT unnest(from_json_strict(:rows,
               '[{"job": "VARCHAR", "version": "VARCHAR", "anew": "VARCHAR"}]'),
              recursive := true)) AS a
   ON v.job = a.job AND v.version = a.version
 WHEN MATCHED THEN UPDATE SET seen_at = CASE WHEN a.anew = a.job THEN {now} ELSE v.seen_at END
 WHEN NOT MATCHED THEN INSERT (job, version, seen_at) VALUES (a.job, a.version, {now})
RETURNING job, seen_at;

-- name: forget_versions
DELETE FROM {prefix}job_versions
 WHERE job = :job AND version NOT IN (SELECT version FROM {prefix}job_versions
                                       WHERE job = :job ORDER BY seen_at DESC LIMIT :keep);

-- name: put_file_jobs
MERGE INTO {prefix}jobs AS j
USING (SELECT unnest(from_json_strict(:rows,
               '[{"name": "VARCHAR", "executor": "VARCHAR", "source": "VARCHAR",
               "origin": "VARCHAR", "spec": "VARCHAR", "args_schema": "VARCHAR",
               "description": "VARCHAR", "queue": "VARCHAR", "priority": "INTEGER",
               "timeout": "VARCHAR", "policies": "VARCHAR", "enabled": "BOOLEAN",
               "error": "VARCHAR", "version": "VARCHAR", "version_at": "TIMESTAMPTZ"}]'),
              recursive := true)) AS a
   ON j.name = a.name
 WHEN MATCHED THEN UPDATE
   SET executor = a.executor, source = a.source, origin = a.origin, spec = a.spec,
       args_schema = a.args_schema, description = a.description, queue = a.queue,
       priority = a.priority, timeout = a.timeout, policies = a.policies, enabled = a.enabled,
       error = a.error, version = a.version, version_at = a.version_at
 WHEN NOT MATCHED THEN INSERT (name, executor, source, origin, spec, args_schema, description, queue,
       priority, timeout, policies, enabled, error, version, version_at)
VALUES (a.name, a.executor, a.source, a.origin, a.spec, a.args_schema, a.description, a.queue,
       a.priority, a.timeout, a.policies, a.enabled, a.error, a.version, a.version_at);

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
SELECT id, origin, jobs FROM {prefix}workers
 WHERE seen_at >= {now} - to_microseconds(CAST(:live_seconds::DOUBLE * 1000000 AS BIGINT))
 ORDER BY id LIMIT :limit;

-- name: unstarted_retired_runs
-- Runs that nobody will ever work on, newest first: to end the first in line would let in the next.
SELECT r.id FROM {prefix}jobs AS j JOIN {prefix}runs AS r ON r.job = j.name
 WHERE j.source = 'file' AND j.origin = :origin AND j.error LIKE 'retired: %'
   AND r.state IN ('waiting', 'held', 'queued', 'paused')
 ORDER BY r.seq DESC LIMIT :limit;

-- name: shared_jobs
-- SQL jobs that a statement made. Every worker may serve them.
SELECT * FROM {prefix}jobs WHERE source = 'api' AND executor = 'sql' ORDER BY name LIMIT :limit;

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
SELECT * FROM {prefix}runs WHERE id = :id;

-- name: run_ids_between
SELECT id FROM {prefix}runs WHERE id BETWEEN :low AND :high ORDER BY id LIMIT :limit;

-- name: lock_run
-- Our write transaction is the only one there is, so reading is locking.
SELECT * FROM {prefix}runs WHERE id = :id;

-- name: run_by_seq
SELECT * FROM {prefix}runs WHERE seq = :seq;

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
DELETE FROM {prefix}runs
 WHERE seq IN (SELECT unnest(from_json_strict(:rows, '[{"seq": "BIGINT"}]'), recursive := true))
   AND state <> 'running'
RETURNING seq, id;

-- name: delete_attempts
DELETE FROM {prefix}attempts
 WHERE run_seq IN (SELECT unnest(from_json_strict(:rows, '[{"seq": "BIGINT"}]'), recursive := true));

-- name: delete_logs
DELETE FROM {prefix}logs
 WHERE run_seq IN (SELECT unnest(from_json_strict(:rows, '[{"seq": "BIGINT"}]'), recursive := true));

-- name: delete_keys
DELETE FROM {prefix}run_keys
 WHERE run_id IN (SELECT unnest(from_json_strict(:rows, '[{"id": "VARCHAR"}]'), recursive := true));

-- name: pause_queue
MERGE INTO {prefix}queues AS q
USING (SELECT :name AS name, :reason AS reason, :by AS paused_by) AS a ON q.name = a.name
 WHEN MATCHED THEN UPDATE
  SET paused = true, reason = a.reason, paused_by = a.paused_by, paused_at = {now}
 WHEN NOT MATCHED THEN INSERT (name, paused, reason, paused_by, paused_at)
VALUES (a.name, true, a.reason, a.paused_by, {now});

-- name: resume_queue
UPDATE {prefix}queues SET paused = false, reason = NULL, paused_by = NULL, paused_at = NULL
 WHERE name = :name AND paused
RETURNING name;

-- name: queue_named
SELECT name FROM {prefix}queues WHERE name = :name;

-- name: list_queues
SELECT q.name, q.paused, q.reason, q.paused_by, q.paused_at,
       (SELECT count(*) FROM (SELECT 1 AS one FROM {prefix}runs r
                               WHERE r.state = 'queued' AND r.queue = q.name LIMIT :depth) AS waiting) AS queued
  FROM {prefix}queues q WHERE q.name > :after ORDER BY q.name LIMIT :limit;

-- name: set_meta
MERGE INTO {prefix}meta AS m USING (SELECT :key AS key, :value AS value) AS a ON m.key = a.key
 WHEN MATCHED THEN UPDATE SET value = a.value
 WHEN NOT MATCHED THEN INSERT (key, value) VALUES (a.key, a.value);

-- name: swap_meta
UPDATE {prefix}meta SET value = :value WHERE key = :key AND value = :expected RETURNING key;

-- name: all_meta
SELECT key, value FROM {prefix}meta;

-- name: insert_audit
INSERT INTO {prefix}audit (id, "at", "by", via, action, thing, reason, before, after)
SELECT nextval('{prefix}audit_id'), {now}, a."by", a.via, a.action, a.thing, a.reason, a.before, a.after
  FROM (SELECT unnest(from_json_strict(:rows,
                '[{"by": "VARCHAR", "via": "VARCHAR", "action": "VARCHAR", "thing": "VARCHAR",
                "reason": "VARCHAR", "before": "VARCHAR", "after": "VARCHAR"}]'),
               recursive := true)) AS a;

-- name: list_audit
SELECT id, "at", "by", via, action, thing, reason, before, after FROM {prefix}audit
 WHERE id < :before ORDER BY id DESC LIMIT :limit;

------------------------------------------------------------------------------- control rows

-- name: ask
INSERT INTO {views}control (statement, requested_by) VALUES (:statement, :requested_by);

-- name: asked_rows
SELECT id, statement, requested_by, role FROM {views}control
 WHERE status = 'asked' ORDER BY id LIMIT :limit;

-- name: lock_asked_row
SELECT id FROM {views}control WHERE id = :id AND status = 'asked';

-- name: lock_words
-- One writer at a time: nobody else can say anything meanwhile.
SELECT 1 AS locked;

-- name: waiting_words
-- Rows that may ask for this of a schedule; what they say is read by who asks for them.
SELECT id, statement, requested_by, role FROM {views}control
 WHERE status = 'asked' AND length(statement) <= :longest
   AND statement ILIKE '%' || :verb || '%SCHEDULE%' ORDER BY id LIMIT :limit;

-- name: answer_row
UPDATE {views}control
   SET status = :status, answered_at = {now}, statement = :kept, rows = :rows, more = :more,
       error = :error
 WHERE id = :id AND status = 'asked'
RETURNING id;

-- name: old_answered_rows
SELECT id FROM {views}control
 WHERE status <> 'asked'
   AND (answered_at < {now} - to_microseconds(CAST(:age_seconds::DOUBLE * 1000000 AS BIGINT))
        OR id <= (SELECT id FROM {views}control ORDER BY id DESC LIMIT 1 OFFSET :keep))
 ORDER BY id LIMIT :limit;

-- name: delete_answered_rows
DELETE FROM {views}control
 WHERE status <> 'asked'
   AND id IN (SELECT a.id FROM (SELECT unnest(from_json_strict(:rows, '[{"id": "BIGINT"}]'),
                                              recursive := true)) AS a);

-------------------------------------------------------------------------- workers and locks

-- name: put_worker
MERGE INTO {prefix}workers AS w
USING (SELECT unnest(from_json_strict(:rows,
               '[{"id": "VARCHAR", "host": "VARCHAR", "pid": "BIGINT", "version": "VARCHAR",
               "tzdata": "VARCHAR", "origin": "VARCHAR", "jobs": "VARCHAR", "queues": "VARCHAR",
               "slots": "INTEGER", "stuck": "INTEGER"}]'),
              recursive := true)) AS a
   ON w.id = a.id
 WHEN MATCHED THEN UPDATE
  SET jobs = a.jobs, queues = a.queues, slots = a.slots, stuck = a.stuck, seen_at = {now}
 WHEN NOT MATCHED THEN INSERT (id, host, pid, version, tzdata, origin, jobs, queues, slots, stuck,
       started_at, seen_at)
VALUES (a.id, a.host, a.pid, a.version, a.tzdata, a.origin, a.jobs, a.queues, a.slots, a.stuck,
       {now}, {now});

-- name: forget_worker
DELETE FROM {prefix}workers
 WHERE id IN (SELECT unnest(from_json_strict(:rows, '[{"id": "VARCHAR"}]'), recursive := true));

-- name: forget_old_workers
DELETE FROM {prefix}workers
 WHERE seen_at < (SELECT {now} - to_microseconds(CAST(age_seconds * 1000000 AS BIGINT))
                    FROM (SELECT unnest(from_json_strict(:rows, '[{"age_seconds": "DOUBLE"}]'),
                                        recursive := true)))
RETURNING id;

-- name: list_workers
SELECT id, host, pid, version, tzdata, origin, jobs, queues, slots, stuck, started_at, seen_at,
       (SELECT count(*) FROM {prefix}runs AS r
         WHERE r.state = 'running' AND r.worker_id = w.id) AS running
  FROM {prefix}workers AS w WHERE id > :after ORDER BY id LIMIT :limit;

-- name: acquire_lock
-- The token rises with each holder, also after a release: the row stays.
MERGE INTO {prefix}locks AS l
USING (SELECT name, owner,
              {now} + to_microseconds(CAST(ttl_seconds * 1000000 AS BIGINT)) AS until
         FROM (SELECT unnest(from_json_strict(:rows,
                       '[{"name": "VARCHAR", "owner": "VARCHAR", "ttl_seconds": "DOUBLE"}]'),
                      recursive := true))) AS a
   ON l.name = a.name
 WHEN MATCHED AND l.until <= {now}
 THEN UPDATE SET owner = a.owner, token = l.token + 1, until = a.until
 WHEN NOT MATCHED THEN INSERT (name, owner, token, until) VALUES (a.name, a.owner, 1, a.until)
RETURNING token;

-- name: extend_lock
UPDATE {prefix}locks AS l
   SET until = {now} + to_microseconds(CAST(a.ttl_seconds * 1000000 AS BIGINT))
  FROM (SELECT unnest(from_json_strict(:rows,
                '[{"name": "VARCHAR", "token": "BIGINT", "ttl_seconds": "DOUBLE"}]'),
               recursive := true)) AS a
 WHERE l.name = a.name AND l.token = a.token AND l.until > {now}
RETURNING l.token;

-- name: release_lock
UPDATE {prefix}locks AS l SET until = {now}, owner = NULL
  FROM (SELECT unnest(from_json_strict(:rows,
                '[{"name": "VARCHAR", "token": "BIGINT"}]'),
               recursive := true)) AS a
 WHERE l.name = a.name AND l.token = a.token AND l.until > {now}
RETURNING l.token;

-- name: list_locks
SELECT name, owner, token, until FROM {prefix}locks
 WHERE name > :after AND until > {now} ORDER BY name LIMIT :limit;

--------------------------------------------------------------------------------------- read

-- name: list_runs
SELECT * FROM {prefix}runs
 WHERE seq < :before AND (:state IS NULL OR state = :state) AND (:queue IS NULL OR queue = :queue)
 ORDER BY seq DESC LIMIT :limit;

-- name: recent_runs_of_job
-- Among the newest runs of all: where a job has many, they are here.
SELECT * FROM (SELECT * FROM {prefix}runs WHERE seq < :before ORDER BY seq DESC LIMIT :recent)
 WHERE job = :job AND (:state IS NULL OR state = :state) AND (:queue IS NULL OR queue = :queue)
 ORDER BY seq DESC LIMIT :limit;

-- name: list_runs_of_job
SELECT * FROM {prefix}runs
 WHERE job = :job AND seq < :before AND (:state IS NULL OR state = :state)
   AND (:queue IS NULL OR queue = :queue)
 ORDER BY seq DESC LIMIT :limit;

-- name: list_runs_of_schedule
SELECT * FROM {prefix}runs
 WHERE schedule_id = :schedule_id AND seq < :before AND (:state IS NULL OR state = :state)
   AND (:queue IS NULL OR queue = :queue)
   AND (:job IS NULL OR job = :job)
 ORDER BY seq DESC LIMIT :limit;

-- name: count_matching_runs
-- No further than the limit: who asks wants to know how many, and not to wait for it.
SELECT count(*) AS runs FROM (
    SELECT 1 FROM {prefix}runs
     WHERE state = :state AND (:job IS NULL OR job = :job)
       AND (:queue IS NULL OR queue = :queue)
       AND (:schedule_id IS NULL OR schedule_id = :schedule_id)
     LIMIT :limit);

-- name: list_attempts
SELECT run_seq, number, worker_id, started_at, finished_at, outcome, error
  FROM {prefix}attempts WHERE run_seq = :seq ORDER BY number LIMIT :limit;

-- name: attempts_above
-- Those of several runs, each above a number of its own, in their order.
SELECT a.run_seq, a.number, a.worker_id, a.started_at, a.finished_at, a.outcome, a.error
  FROM (SELECT unnest(from_json_strict(:seqs, '["BIGINT"]')) AS seq,
               unnest(from_json_strict(:numbers, '["BIGINT"]')) AS number) AS s
  JOIN {prefix}attempts AS a ON a.run_seq = s.seq AND a.number > s.number
 ORDER BY a.run_seq, a.number LIMIT :limit;

-- name: list_logs
SELECT id, attempt, "at", level, text FROM {prefix}logs
 WHERE run_seq = :seq AND id > :after ORDER BY id LIMIT :limit;

-- name: tail_logs
SELECT id, attempt, "at", level, text FROM {prefix}logs
 WHERE run_seq = :seq AND id < :before ORDER BY id DESC LIMIT :limit;

-- name: list_events
SELECT id, "at", kind, run_id, name, detail FROM {prefix}events
 WHERE id < :before AND (:run_id IS NULL OR run_id = :run_id) ORDER BY id DESC LIMIT :limit;

-- name: count_runs
SELECT state, count(*) AS runs FROM {prefix}runs GROUP BY state;

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
SELECT queue, min(due_at) AS due_at FROM {prefix}runs WHERE state = 'queued' GROUP BY queue;

-- name: schedule_statuses
SELECT status, count(*) AS schedules FROM (
    SELECT CASE WHEN error IS NOT NULL THEN 'BROKEN' WHEN NOT enabled THEN 'DISABLED'
            WHEN paused THEN 'PAUSED' WHEN next_fire_at IS NULL THEN 'FINISHED'
            ELSE 'ACTIVE' END AS status
      FROM {prefix}schedules
) AS told GROUP BY status;

-- name: last_successes
-- A scan of three columns, which costs less here than the latest runs of each job.
SELECT j.name AS job, max(r.finished_at) AS finished_at
  FROM (SELECT name FROM {prefix}jobs ORDER BY name LIMIT :jobs) AS j
  LEFT JOIN {prefix}runs AS r ON r.job = j.name AND r.state = 'succeeded' AND :recent > 0
 GROUP BY j.name;

-- name: count_live_workers
SELECT count(*) AS workers FROM {prefix}workers
 WHERE seen_at >= {now} - to_microseconds(CAST(:live_seconds::DOUBLE * 1000000 AS BIGINT));

-------------------------------------------------------------------------------------- prune

-- name: old_runs
-- Older than its state's retention and not among the last of its job that wait or have ended.
WITH old AS (
    SELECT seq, job, finished_at FROM {prefix}runs
     WHERE state = :state AND state IN ('succeeded', 'dead', 'cancelled')
       AND finished_at < {now} - to_microseconds(CAST(:age_seconds::DOUBLE * 1000000 AS BIGINT))
)
SELECT old.seq
  FROM old
  JOIN (SELECT seq FROM {prefix}runs WHERE job IN (SELECT job FROM old)
                                         AND state <> 'queued' AND state <> 'running'
        QUALIFY row_number() OVER (PARTITION BY job ORDER BY seq DESC) > :keep_last) AS beyond
    ON beyond.seq = old.seq
 ORDER BY old.finished_at LIMIT :limit;

-- name: ledger_ids
SELECT DISTINCT schedule_id FROM {prefix}occurrences
 WHERE schedule_id > :after ORDER BY schedule_id LIMIT :limit;

-- name: uncounted_occurrence
SELECT schedule_id, occurrence, last_occurrence, outcome, run_id
  FROM {prefix}occurrences WHERE count IS NULL LIMIT 1;

-- name: schedules_by_id
SELECT {columns schedules}
  FROM {prefix}schedules WHERE id IN (SELECT unnest(from_json_strict(:ids, '["BIGINT"]')));

-- name: count_occurrences
UPDATE {prefix}occurrences AS o SET count = a.count
  FROM (SELECT unnest(from_json_strict(:rows,
                '[{"schedule_id": "BIGINT", "occurrence": "TIMESTAMPTZ", "count": "BIGINT"}]'),
               recursive := true)) AS a
 WHERE o.schedule_id = a.schedule_id AND o.occurrence = a.occurrence AND o.count IS NULL;

-- name: count_run
UPDATE {prefix}runs SET missed_count = :count WHERE id = :run_id;

-- name: foldable_occurrences
-- The ledger outlives the runs, and is never touched past the cursor.
SELECT o.occurrence, o.last_occurrence, o.count, o.outcome, o.reason
  FROM {prefix}occurrences AS o
 WHERE o.schedule_id = :schedule_id
   AND o.count IS NOT NULL
   AND (o.recorded_at < {now} - to_microseconds(CAST(:age_seconds::DOUBLE * 1000000 AS BIGINT))
        OR o.occurrence <= (SELECT occurrence FROM {prefix}occurrences
                            WHERE schedule_id = :schedule_id
                            ORDER BY occurrence DESC LIMIT 1 OFFSET :keep_rows))
   AND o.last_occurrence < coalesce((SELECT next_fire_at FROM {prefix}schedules
                                      WHERE id = :schedule_id), 'infinity'::TIMESTAMPTZ)
 ORDER BY o.occurrence LIMIT :limit;

-- name: delete_occurrences
DELETE FROM {prefix}occurrences AS o
 USING (SELECT unnest(from_json_strict(:rows,
                '[{"schedule_id": "BIGINT", "occurrence": "TIMESTAMPTZ"}]'),
               recursive := true)) AS a
 WHERE o.schedule_id = a.schedule_id AND o.occurrence = a.occurrence;

-- name: stretch_occurrences
UPDATE {prefix}occurrences AS o
   SET last_occurrence = a.last_occurrence, count = a.count, reason = a.reason, run_id = NULL
  FROM (SELECT unnest(from_json_strict(:rows,
                '[{"schedule_id": "BIGINT", "occurrence": "TIMESTAMPTZ",
                "last_occurrence": "TIMESTAMPTZ", "count": "BIGINT", "reason": "VARCHAR"}]'),
               recursive := true)) AS a
 WHERE o.schedule_id = a.schedule_id AND o.occurrence = a.occurrence;

-------------------------------------------------------------------- surfaces: what they show

-- name: follow_position
SELECT coalesce((SELECT max(seq) FROM {prefix}runs), 0) AS seq,
       coalesce((SELECT max(id) FROM {prefix}audit), 0) AS audit_id;

-- name: brief_runs_after
SELECT seq, id, job, queue, state, schedule_id, occurrence, due_at, started_at, finished_at,
       attempt, redo, progress, error, reason
  FROM {prefix}runs WHERE seq > :after ORDER BY seq LIMIT :limit;

-- name: brief_running
SELECT seq, id, job, queue, state, schedule_id, occurrence, due_at, started_at, finished_at,
       attempt, redo, progress, error, reason
  FROM {prefix}runs WHERE state = 'running' ORDER BY lease_until LIMIT :limit;

-- name: brief_runs
SELECT seq, id, job, queue, state, schedule_id, occurrence, due_at, started_at, finished_at,
       attempt, redo, progress, error, reason
  FROM {prefix}runs WHERE seq IN (SELECT unnest(from_json_strict(:seqs, '["BIGINT"]')));

-- name: brief_ended
-- Those that ended in a stretch of time, the latest first; each state by its part of the index.
SELECT seq, id, job, queue, state, schedule_id, occurrence, due_at, started_at, finished_at,
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
SELECT id, "at", "by", via, action, thing, reason FROM {prefix}audit
 WHERE id > :after ORDER BY id LIMIT :limit;

-- name: list_runs_of_state
-- For states that few runs are in: each by its own index, and not along all runs that ever were.
SELECT *
  FROM {prefix}runs WHERE seq IN (SELECT seq FROM (
    SELECT * FROM (SELECT seq FROM {prefix}runs
                    WHERE :state = 'dead' AND state = 'dead' AND seq < :before
                      AND (:queue IS NULL OR queue = :queue)
                    ORDER BY seq DESC LIMIT :limit) AS dead
    UNION ALL
    SELECT * FROM (SELECT seq FROM {prefix}runs
                    WHERE :state = 'cancelled' AND state = 'cancelled' AND seq < :before
                      AND (:queue IS NULL OR queue = :queue)
                    ORDER BY seq DESC LIMIT :limit) AS cancelled
    UNION ALL
    SELECT * FROM (SELECT seq FROM {prefix}runs
                    WHERE :state = 'paused' AND state = 'paused' AND seq < :before
                      AND (:queue IS NULL OR queue = :queue)
                    ORDER BY seq DESC LIMIT :limit) AS paused
    UNION ALL
    SELECT seq FROM {prefix}runs
     WHERE :state = 'running' AND state = 'running' AND seq + 0 < :before
       AND (:queue IS NULL OR queue = :queue)
    UNION ALL
    SELECT seq FROM {prefix}runs
     WHERE :state = 'queued' AND state = 'queued' AND seq + 0 < :before
       AND (:queue IS NULL OR queue = :queue)
    UNION ALL
    SELECT seq FROM {prefix}runs
     WHERE :state = 'waiting' AND state = 'waiting' AND seq + 0 < :before
       AND (:queue IS NULL OR queue = :queue)
    UNION ALL
    SELECT seq FROM {prefix}runs
     WHERE :state = 'held' AND state = 'held' AND seq + 0 < :before
       AND (:queue IS NULL OR queue = :queue)
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
     WHERE :state = 'dead' AND state = 'dead' AND (:job IS NULL OR job = :job)
       AND (:queue IS NULL OR queue = :queue)
       AND (:schedule_id IS NULL OR schedule_id = :schedule_id)
    UNION ALL
    SELECT 1 FROM {prefix}runs
     WHERE :state = 'cancelled' AND state = 'cancelled' AND (:job IS NULL OR job = :job)
       AND (:queue IS NULL OR queue = :queue)
       AND (:schedule_id IS NULL OR schedule_id = :schedule_id)
    UNION ALL
    SELECT 1 FROM {prefix}runs
     WHERE :state = 'paused' AND state = 'paused' AND (:job IS NULL OR job = :job)
       AND (:queue IS NULL OR queue = :queue)
       AND (:schedule_id IS NULL OR schedule_id = :schedule_id)
    UNION ALL
    SELECT 1 FROM {prefix}runs
     WHERE :state = 'running' AND state = 'running' AND (:job IS NULL OR job = :job)
       AND (:queue IS NULL OR queue = :queue)
       AND (:schedule_id IS NULL OR schedule_id = :schedule_id)
    UNION ALL
    SELECT 1 FROM {prefix}runs
     WHERE :state = 'queued' AND state = 'queued' AND (:job IS NULL OR job = :job)
       AND (:queue IS NULL OR queue = :queue)
       AND (:schedule_id IS NULL OR schedule_id = :schedule_id)
    UNION ALL
    SELECT 1 FROM {prefix}runs
     WHERE :state = 'waiting' AND state = 'waiting' AND (:job IS NULL OR job = :job)
       AND (:queue IS NULL OR queue = :queue)
       AND (:schedule_id IS NULL OR schedule_id = :schedule_id)
    UNION ALL
    SELECT 1 FROM {prefix}runs
     WHERE :state = 'held' AND state = 'held' AND (:job IS NULL OR job = :job)
       AND (:queue IS NULL OR queue = :queue)
       AND (:schedule_id IS NULL OR schedule_id = :schedule_id)
    ) AS found LIMIT :limit) AS counted;

-- name: dead_runs
SELECT seq, id, job, error, finished_at FROM {prefix}runs
 WHERE state = 'dead' AND seq < :before ORDER BY seq DESC LIMIT :limit;

-- name: schedule_ids_due
SELECT id FROM {prefix}schedules
 WHERE enabled AND NOT paused AND next_fire_at IS NOT NULL AND next_fire_at <= :until_at
 ORDER BY next_fire_at LIMIT :limit;

-- name: recent_durations
-- What the last runs of each job took that succeeded.
SELECT r.job, avg(epoch(r.finished_at) - epoch(r.started_at)) AS seconds, count(*) AS runs
  FROM (SELECT job, state, started_at, finished_at,
               row_number() OVER (PARTITION BY job ORDER BY seq DESC) AS place
          FROM {prefix}runs
         WHERE state <> 'queued' AND state <> 'running' AND job IN (SELECT unnest(from_json_strict(:names, '["VARCHAR"]')))) AS r
 WHERE r.place <= :limit AND r.state = 'succeeded' AND r.started_at IS NOT NULL
 GROUP BY r.job;

-- name: recent_outcomes
-- What became of the last occurrences of each schedule, and of their runs.
SELECT o.schedule_id, o.occurrence, o.last_occurrence, o.count, o.outcome, o.reason, o.run_id,
       r.state, r.started_at, r.finished_at
  FROM (SELECT *, row_number() OVER (PARTITION BY schedule_id ORDER BY occurrence DESC) AS place
          FROM {prefix}occurrences WHERE schedule_id IN (SELECT unnest(from_json_strict(:ids, '["BIGINT"]')))) AS o
  LEFT JOIN {prefix}runs AS r ON r.id = o.run_id
 WHERE o.place <= :limit
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
VALUES (:id, :name, :role, :hash, {now}, :created_by, :expires_at)
RETURNING id, name, role, created_at, created_by, expires_at, revoked_at, revoked_by;

-- name: lock_tokens
-- Held until the end of the transaction: two tokens of one name are made one after the other.
SELECT 1 AS locked;

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
    SELECT state, CAST(floor((epoch_us(finished_at) - epoch_us(CAST(:since_at AS TIMESTAMPTZ))) / (1000000 * :seconds)) AS INTEGER) AS bucket
      FROM {prefix}runs
     WHERE state IN ('succeeded', 'dead', 'cancelled')
       AND finished_at >= :since_at AND finished_at < :until_at
) AS ended GROUP BY state, bucket;

-- name: ended_by_job_in_buckets
SELECT job, state, bucket, count(*) AS runs, sum(took) AS seconds FROM (
    SELECT job, state, CAST(floor((epoch_us(finished_at) - epoch_us(CAST(:since_at AS TIMESTAMPTZ))) / (1000000 * :seconds)) AS INTEGER) AS bucket,
           epoch(finished_at) - epoch(coalesce(started_at, finished_at)) AS took
      FROM {prefix}runs
     WHERE state IN ('succeeded', 'dead', 'cancelled')
       AND finished_at >= :since_at AND finished_at < :until_at
) AS ended GROUP BY job, state, bucket ORDER BY job, bucket LIMIT :limit;

-- name: recent_fires
SELECT occurrence, created_at, due_at, started_at
  FROM (SELECT * FROM {prefix}runs WHERE seq > 0 ORDER BY seq DESC LIMIT :limit) AS newest
 WHERE occurrence IS NOT NULL AND retry_of IS NULL;

-- name: durations_of_schedule
SELECT id, state, occurrence, due_at, started_at, finished_at, attempt
  FROM {prefix}runs WHERE schedule_id = :schedule_id ORDER BY seq DESC LIMIT :limit;

-- name: find_schedules
-- The key is a number in every order, so that a page begins after the last one's (key, name).
SELECT id, name, sort_key FROM (
    SELECT id, name, status, CASE :sort
           WHEN 'next' THEN CASE WHEN status = 'ACTIVE' THEN least(epoch_us(next_fire_at), 9007199254740990) ELSE 9007199254740991 END
           WHEN 'last' THEN -coalesce(epoch_us(last_fired_at), 0)
           ELSE 0 END AS sort_key
      FROM (SELECT id, name, next_fire_at, last_fired_at,
                CASE WHEN error IS NOT NULL THEN 'BROKEN' WHEN NOT enabled THEN 'DISABLED'
                WHEN paused THEN 'PAUSED' WHEN next_fire_at IS NULL THEN 'FINISHED'
                ELSE 'ACTIVE' END AS status
              FROM {prefix}schedules
             WHERE (:job IS NULL OR job = :job)
               AND (:words IS NULL OR contains(lower(name), :words) OR contains(lower(job), :words))) AS told
) AS sorted
 WHERE (:status IS NULL OR status = :status)
   AND (sort_key > :after_key OR (sort_key = :after_key AND name > :after))
 ORDER BY sort_key, name LIMIT :limit;

------------------------------------------------------------------------------- lists that are searched

-- name: find_jobs
-- Retired jobs are found by that status alone. Which are broken, only who reads the rows can say.
SELECT *
  FROM {prefix}jobs
 WHERE name > :after
   AND (:words IS NULL OR contains(lower(name), :words) OR contains(lower(description), :words))
   AND (:queue IS NULL OR queue = :queue)
   AND (:executor IS NULL OR executor = :executor)
   AND (coalesce(error, '') LIKE 'retired: %') = (coalesce(:status, '') = 'retired')
   AND (:status IS NULL OR :status = 'retired'
        OR (:status = 'disabled' AND NOT enabled)
        OR (:status = 'enabled' AND enabled AND error IS NULL))
 ORDER BY name LIMIT :limit;

-- name: schedule_ids_of_jobs
-- The first `each` of every job by name, and how many it has.
SELECT id, job, schedules FROM (
    SELECT id, job, name, count(*) OVER (PARTITION BY job) AS schedules,
           row_number() OVER (PARTITION BY job ORDER BY name) AS place
      FROM {prefix}schedules WHERE job IN (SELECT unnest(from_json_strict(:names, '["VARCHAR"]')))
) AS placed WHERE place <= :each ORDER BY job, name;

-- name: good_versions
-- An error leaves the version of a job as it was: the last good one.
SELECT v.job, v.seen_at FROM {prefix}job_versions v
  JOIN {prefix}jobs j ON j.name = v.job AND j.version = v.version
 WHERE j.name IN (SELECT unnest(from_json_strict(:names, '["VARCHAR"]')));

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
SELECT id, "at", "by", via, action, thing, reason, before, after FROM {prefix}audit
 WHERE id < :before
   AND (:by IS NULL OR "by" = :by)
   AND (:action IS NULL OR action = :action)
   AND (:words IS NULL OR contains(lower(thing), :words) OR contains(lower(coalesce(reason, '')), :words))
 ORDER BY id DESC LIMIT :limit;
