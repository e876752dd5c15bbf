-- number: 1
-- What clients call, as part of their own transaction, and what these functions use. They know the caller
-- as session_user. Public ones run with the rights of the store's owner. All have a fixed search_path, and
-- no role may call them until it is granted.
--
-- `rota migrate` replaces them where this text is another one, in one transaction with the REVOKE at the
-- end. CREATE OR REPLACE keeps grants, but it makes a second function where the parameters change, and
-- refuses another result: then DROP FUNCTION IF EXISTS name(old parameters) comes before the new definition.
-- From the first release on, each release that changes a function raises the number in the
-- first line. An older Rota never replaces functions of a higher number.

-- Fills a new row of the control table: the caller sets `statement` alone. The requester is the login,
-- whatever the row says. Members of the role that owns the store are admins; other callers are operators.
CREATE OR REPLACE FUNCTION {prefix}ask() RETURNS trigger LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.requested_by := session_user;
    NEW.requested_at := clock_timestamp();
    NEW.role := CASE WHEN pg_has_role(session_user, (SELECT relowner FROM pg_class WHERE oid = TG_RELID),
                                      'MEMBER') THEN 'admin' ELSE 'operator' END;
    NEW.status := 'asked';
    NEW.answered_at := NULL;
    NEW.rows := NULL;
    NEW.more := false;
    NEW.error := NULL;
    PERFORM pg_notify('{schema}_wake', '');
    RETURN NEW;
END $$;
DO $$ BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_trigger WHERE tgrelid = '{views}control'::regclass AND tgname = 'ask') THEN
        CREATE TRIGGER ask BEFORE INSERT ON {views}control FOR EACH ROW EXECUTE FUNCTION {prefix}ask();
    END IF;
END $$;

-- Raises an error. Codes tell a bad value (22023), a thing that does not exist (P0002) and a state that
-- forbids the call (55000) apart.
CREATE OR REPLACE FUNCTION {prefix}refuse(message text, code text, hint text DEFAULT NULL) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF hint IS NULL THEN
        RAISE EXCEPTION USING MESSAGE = message, ERRCODE = code;
    END IF;
    RAISE EXCEPTION USING MESSAGE = message, ERRCODE = code, HINT = hint;
END $$;

-- A text that people will see, without what its names or shape mark as secret: the rules of
-- model/redact.py, as far as SQL can state them. When in doubt it hides too much.
CREATE OR REPLACE FUNCTION {prefix}redact(body text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    names  text := '(?:(?:password|passwd|passphrase|pwd|secret|token|api[-_]?key|access[-_]?key'
        || '|private[-_]?key|credential|authorization|cookie|session[-_]?id|connstr'
        || '|connection[-_]?string)[[:alnum:]_.-]*'
        || '|(?<!com)(?<!by)(?<!tres)(?<!over)(?<!under)(?<!sur)pass|(?<![a-z0-9])dsn)';
    quoted text := '(?:"(?:[^"\\]|\\.|"")*"|''(?:[^''\\]|\\.|'''')*''|\([^()]*\)'
        || '|\\["''][^"''\\]*|["''][^\s&;,)}\]]+)';
    bare   text := '[^\s"''&;,)}\]\[][^\s"''&;,)}\]]*';
BEGIN
    body := left(body, 8192);
    body := regexp_replace(body, '(://[^\s/:@]*:)(?!\d{1,5}(?:[/?#]|$))(?:[^\s"''<>:]|:(?!//))+@',
                           '\1[redacted]@', 'g');
    body := regexp_replace(body,
        '((?:authorization|cookie)[[:alnum:]_-]*\\?["'']?\s{0,3}[:=,]\s{0,3}\\?["'']?)[^\r\n"'']+',
        '\1[redacted]', 'gi');
    body := regexp_replace(body, '(\mBearer\s+)[A-Za-z0-9._~+/=-]{8,}', '\1[redacted]', 'gi');
    body := regexp_replace(body, '(' || names || '\\?["'')]?\s{0,3}[:=]\s{0,3})' || quoted,
                           '\1[redacted]', 'gi');
    body := regexp_replace(body, '(' || names || '(?:\\?["'']\s{0,3}[:=]\s{0,3}|=))' || bare,
                           '\1[redacted]', 'gi');
    RETURN regexp_replace(body, '((?:passw|passphrase|pwd|_pass\M)[[:alnum:]_.-]*\s{0,3}[:=]\s{0,3})'
                          || bare, '\1[redacted]', 'gi');
END $$;

-- A reason as it is stored: within its limit, redacted.
CREATE OR REPLACE FUNCTION {prefix}check_reason(reason text) RETURNS text LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF length(reason) > 2000 THEN
        PERFORM {prefix}refuse(format('the reason has %s characters; the limit is 2000',
                                      length(reason)), '22023');
    END IF;
    RETURN left({prefix}redact(reason), 2000);
END $$;

CREATE OR REPLACE FUNCTION {prefix}record(action text, thing text, reason text, before text, after text)
    RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO {prefix}audit (at, by, via, action, thing, reason, before, after)
    VALUES (clock_timestamp(), session_user, 'function', action, thing, reason, before, after);
$$;

-- A duration as text, as Python writes it: 1d2h3m4s5ms6us.
CREATE OR REPLACE FUNCTION {prefix}span(span interval) RETURNS text LANGUAGE sql IMMUTABLE STRICT
    SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(string_agg(part || unit, '' ORDER BY place) FILTER (WHERE part > 0), '0s')
      FROM (SELECT (extract(epoch FROM span) * 1000000)::bigint AS n) AS t,
           LATERAL (VALUES (1, n / 86400000000, 'd'), (2, n / 3600000000 % 24, 'h'),
                           (3, n / 60000000 % 60, 'm'), (4, n / 1000000 % 60, 's'),
                           (5, n / 1000 % 1000, 'ms'), (6, n % 1000, 'us')) AS p(place, part, unit);
$$;

-- The seconds of such a text, also with spaces and weeks; NULL if it is no duration.
CREATE OR REPLACE FUNCTION {prefix}seconds(span text) RETURNS double precision LANGUAGE sql IMMUTABLE STRICT
    SET search_path = pg_catalog, pg_temp AS $$
    SELECT sum(part[1]::numeric * CASE part[2] WHEN 'us' THEN 0.000001 WHEN 'ms' THEN 0.001
                                               WHEN 's' THEN 1 WHEN 'm' THEN 60 WHEN 'h' THEN 3600
                                               WHEN 'd' THEN 86400 ELSE 604800 END)
      FROM regexp_matches(span, '([0-9]+(?:\.[0-9]+)?)\s*(us|ms|s|m|h|d|w)', 'g') AS part
     WHERE span ~ '^\s*(?:[0-9]+(?:\.[0-9]+)?\s*(?:us|ms|s|m|h|d|w))+\s*$';
$$;

-- Refuses arguments that do not fit the job, with all that is wrong; the rules are those of Python's enqueue.
CREATE OR REPLACE FUNCTION {prefix}check_args(job text, schema json, args jsonb, size integer) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    faults    text[] := '{}';
    known     text[] := '{}';
    parameter json;
    name      text;
    kind      text;
    argument  jsonb;
BEGIN
    IF jsonb_typeof(args) <> 'object' THEN
        PERFORM {prefix}refuse(format('job %L: args must be a JSON object', job), '22023');
    END IF;
    IF jsonb_path_exists(args, 'strict $.**{64}') THEN
        PERFORM {prefix}refuse(format('job %L: args is nested deeper than 64 levels; flatten it', job),
                               '22023');
    END IF;
    IF jsonb_path_exists(args, 'strict $.** ? (@.type() == "number"
            && (@ < -9223372036854775808 || @ >= 18446744073709551616))') THEN
        PERFORM {prefix}refuse(
            format('job %L: args holds a whole number past 64 bits; pass it as text', job), '22023');
    END IF;
    FOR parameter IN SELECT p FROM json_array_elements(schema -> 'parameters') AS p LOOP
        name := parameter ->> 'name';
        known := known || name;
        argument := args -> name;
        IF argument IS NULL THEN
            IF (parameter ->> 'required')::boolean THEN
                faults := faults || format('%L is missing', name);
            END IF;
            CONTINUE;
        END IF;
        kind := jsonb_typeof(argument);
        CONTINUE WHEN json_array_length(parameter -> 'types') = 0;
        CONTINUE WHEN EXISTS (
            SELECT 1 FROM json_array_elements_text(parameter -> 'types') AS t
             WHERE t = kind OR (kind = 'number' AND t = 'integer' AND argument::text ~ '^-?[0-9]+$'));
        faults := faults || format('%L must be %s, not %s', name,
            (SELECT string_agg(t, ' or ') FROM json_array_elements_text(parameter -> 'types') AS t), kind);
    END LOOP;
    IF NOT (schema ->> 'open')::boolean THEN
        FOR name IN SELECT k FROM jsonb_object_keys(args) AS k WHERE k <> ALL (known) LOOP
            faults := faults || format('%L is unknown', name);
        END LOOP;
    END IF;
    IF cardinality(faults) > 0 THEN
        PERFORM {prefix}refuse(format('job %L: %s (it takes %s)', job, array_to_string(faults, '; '),
            coalesce(nullif(array_to_string(known, ', '), ''), 'no arguments')), '22023');
    END IF;
    IF size > 262144 THEN
        PERFORM {prefix}refuse(format('job %L: args takes %s bytes as JSON; the limit is 262144', job,
            size), '22023', 'Store large data elsewhere and pass a reference.');
    END IF;
END $$;

-- Makes a run in the caller's transaction, which may stay open for long. It takes no slot: a run that needs
-- one is held, and a process admits it after the commit.
CREATE OR REPLACE FUNCTION {prefix}make_run(
    job text, args jsonb, overlap boolean, delay interval, at timestamptz, key text, key_ttl interval,
    priority integer, queue text, concurrency_key text, concurrency_limit integer,
    max_attempts integer, timeout interval, correlation_id text, notify boolean
) RETURNS uuid LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    j       record;
    payload text;
    random  text := replace(gen_random_uuid()::text, '-', '');
    moment  timestamptz := clock_timestamp();
    stamp   text := lpad(to_hex((extract(epoch FROM moment) * 1000)::bigint), 12, '0');
    id      uuid;
    owner   uuid;
    due     timestamptz;
    line    text;
    wanted  text;
    number  bigint;
BEGIN
    SELECT t.* INTO j FROM {prefix}jobs AS t WHERE t.name = job;
    IF NOT FOUND THEN
        PERFORM {prefix}refuse(format('job %L does not exist', job), 'P0002',
                               'The view jobs lists them.');
    END IF;
    priority := coalesce(priority, j.priority);
    queue := coalesce(queue, j.queue);
    concurrency_key := coalesce(concurrency_key, j.policies ->> 'concurrency_key');
    concurrency_limit := coalesce(concurrency_limit, (j.policies ->> 'concurrency_limit')::integer);
    max_attempts := coalesce(max_attempts, (j.policies ->> 'max_attempts')::integer);
    args := coalesce(args, '{}');
    PERFORM {prefix}refuse(format('job %L: %s', job, wrong), '22023') FROM (VALUES
        (delay IS NOT NULL AND at IS NOT NULL, 'give delay or at, not both'),
        (delay < '0' OR delay > '3660 days', 'delay must be from 0 to 3660 days'),
        (at >= '9000-01-01Z', 'at must be before the year 9000'),
        (at < '0001-01-01Z', 'at must be an instant after the year 1'),
        (length(key) NOT BETWEEN 1 AND 512, 'key must be text of 1 to 512 characters'),
        (key_ttl <= '0' OR key_ttl > '3660 days', 'key_ttl must be above 0, up to 3660 days'),
        (priority NOT BETWEEN -1000000 AND 1000000, 'priority must be from -1000000 to 1000000'),
        (queue !~ '^[A-Za-z0-9._/-]{1,128}$' COLLATE "C",
         'queue is not a valid name; use 1 to 128 letters, digits, . _ / or -'),
        (queue ~ '(^|/)\.{0,2}(/|$)',
         'queue is not a valid name; what stands between / is not empty, . or ..'),
        (length(concurrency_key) NOT BETWEEN 1 AND 512,
         'concurrency_key must be text of 1 to 512 characters'),
        (concurrency_limit NOT BETWEEN 1 AND 10000, 'concurrency_limit must be from 1 to 10000'),
        (max_attempts NOT BETWEEN 1 AND 1000, 'max_attempts must be from 1 to 1000'),
        (timeout <= '0' OR timeout > '3660 days', 'timeout must be above 0, up to 3660 days'),
        (length(correlation_id) NOT BETWEEN 1 AND 512,
         'correlation_id must be text of 1 to 512 characters')) AS rules(broken, wrong)
     WHERE broken;
    -- Without the spaces that PostgreSQL puts between its parts: the text that Python stores, in the same
    -- number of bytes.
    payload := args::text;
    IF octet_length(payload) <= 2 * 262144 THEN
        payload := regexp_replace(payload, '("(?:[^"\\]|\\.)*")|\s+', '\1', 'g');
    END IF;
    PERFORM {prefix}check_args(job, j.args_schema, args, octet_length(payload));
    -- Ids whose first bits are the time, so that new rows lie together in the index.
    id := (left(stamp, 8) || '-' || right(stamp, 4) || '-7' || substr(random, 14, 3) || '-'
           || substr(random, 17, 4) || '-' || right(random, 12))::uuid;
    IF key IS NOT NULL THEN
        INSERT INTO {prefix}run_keys AS k (job, key, run_id, until)
        VALUES (job, key, id, moment + key_ttl)
        ON CONFLICT ON CONSTRAINT run_keys_pkey
        DO UPDATE SET run_id = excluded.run_id, until = excluded.until WHERE k.until <= moment
        RETURNING k.run_id INTO owner;
        IF owner IS NULL THEN
            SELECT k.run_id INTO owner FROM {prefix}run_keys AS k WHERE k.job = job AND k.key = key;
            RETURN owner;
        END IF;
    END IF;
    -- Until the caller commits, other transactions that name the same new queue wait.
    IF NOT EXISTS (SELECT 1 FROM {prefix}queues AS q WHERE q.name = queue) THEN
        INSERT INTO {prefix}queues (name) VALUES (queue) ON CONFLICT DO NOTHING;
    END IF;
    line := CASE WHEN overlap THEN 'job ' || job END;
    wanted := coalesce('o/' || line, 'c/' || concurrency_key);
    due := coalesce(at, moment + make_interval(secs => coalesce(extract(epoch FROM delay), 0)));
    INSERT INTO {prefix}runs (id, job, queue, priority, state, due_at, created_at, queued_at,
           max_attempts, timeout, args, overlap_key, concurrency_key, concurrency_limit, wanted_key,
           created_by, correlation_id)
    VALUES (id, job, queue, priority,
            CASE WHEN due > moment THEN 'waiting' WHEN wanted IS NULL THEN 'queued' ELSE 'held' END,
            due, moment, CASE WHEN due <= moment THEN moment END,
            max_attempts, {prefix}span(timeout), payload::json, line, concurrency_key,
            concurrency_limit, wanted, session_user, left({prefix}redact(correlation_id), 512))
    RETURNING seq INTO number;
    INSERT INTO {prefix}run_ids (id, seq) VALUES (id, number);
    IF notify THEN
        PERFORM pg_notify('{schema}_wake', '');
    END IF;
    RETURN id;
END $$;

-- The id of a new run, which exists exactly if the caller commits; of a key that is taken, the id of its run.
CREATE OR REPLACE FUNCTION {views}enqueue(
    job text, args jsonb DEFAULT '{}', delay interval DEFAULT NULL, at timestamptz DEFAULT NULL,
    key text DEFAULT NULL, key_ttl interval DEFAULT NULL, priority integer DEFAULT NULL,
    queue text DEFAULT NULL, concurrency_key text DEFAULT NULL, concurrency_limit integer DEFAULT NULL,
    max_attempts integer DEFAULT NULL, timeout interval DEFAULT NULL, correlation_id text DEFAULT NULL,
    notify boolean DEFAULT true
) RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    run uuid := {prefix}make_run(job, args, false, delay, at, key, key_ttl, priority, queue,
        concurrency_key, concurrency_limit, max_attempts, timeout, correlation_id, notify);
BEGIN
    PERFORM {prefix}record('enqueue', job, NULL, NULL, run::text);
    RETURN run;
END $$;

-- The id of a run that is due now, as operators make one. It queues behind the job's other runs unless forced.
CREATE OR REPLACE FUNCTION {views}trigger_job(
    job text, args jsonb DEFAULT '{}', force boolean DEFAULT false, notify boolean DEFAULT true
) RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    overlap boolean := NOT force AND EXISTS (
        SELECT 1 FROM {prefix}jobs AS j WHERE j.name = trigger_job.job AND j.source <> 'api');
    run uuid := {prefix}make_run(job, args, overlap, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        NULL, NULL, NULL, notify);
BEGIN
    PERFORM {prefix}record('trigger', job, NULL, NULL, run::text);
    RETURN run;
END $$;

CREATE OR REPLACE FUNCTION {prefix}iso(moment timestamptz, zone text) RETURNS text LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp AS $$
    SELECT to_char(moment AT TIME ZONE 'UTC', CASE WHEN date_trunc('second', moment) = moment
                   THEN 'YYYY-MM-DD"T"HH24:MI:SS' ELSE 'YYYY-MM-DD"T"HH24:MI:SS.US' END) || zone;
$$;

-- A schedule as its history stores it.
CREATE OR REPLACE FUNCTION {prefix}schedule_json(s {prefix}schedules) RETURNS json LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp AS $$
    SELECT json_object_agg(o.key, o.value)
      FROM (SELECT * FROM json_each(json_build_object(
                'name', s.name, 'job', s.job, 'kind', s.kind, 'expr', s.expr))
            UNION ALL
            SELECT d.key, coalesce(own.value, d.value) FROM json_each({default options}) AS d
              LEFT JOIN json_each(CASE json_typeof(s.options) WHEN 'object' THEN s.options ELSE '{}' END)
                        AS own ON own.key = d.key
            UNION ALL
            SELECT * FROM json_each(json_build_object(
                'ends_at', {prefix}iso(s.ends_at, '+00:00'), 'overlap_key', s.overlap_key,
                'args', s.args, 'priority', s.priority, 'enabled', s.enabled, 'paused', s.paused,
                'next_fire_at', {prefix}iso(s.next_fire_at, 'Z')))) AS o;
$$;

CREATE OR REPLACE FUNCTION {prefix}change_schedule(
    before {prefix}schedules, after {prefix}schedules, action text, reason text
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO {prefix}schedule_changes (schedule_id, name, at, by, action, reason, before, after)
    VALUES (after.id, after.name, clock_timestamp(), session_user, action, reason,
            {prefix}schedule_json(before), {prefix}schedule_json(after));
    PERFORM {prefix}record(action || '_schedule', after.name, reason, {prefix}schedule_json(before)::text,
                           {prefix}schedule_json(after)::text);
    PERFORM pg_notify('{schema}_wake', '');
END $$;

CREATE OR REPLACE FUNCTION {prefix}lock_schedule(name text) RETURNS {prefix}schedules LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    locked {prefix}schedules;
BEGIN
    SELECT s.* INTO locked FROM {prefix}schedules AS s WHERE s.name = lock_schedule.name FOR UPDATE;
    IF NOT FOUND THEN
        PERFORM {prefix}refuse(format('schedule %L does not exist', name), 'P0002',
                               'The view schedules lists them.');
    END IF;
    RETURN locked;
END $$;

-- Fails pending control rows that ask for the opposite (`verb`) of this schedule: the latest request wins.
-- Returns their requesters, in the order of the rows. The advisory lock lets one request at a time concern
-- a schedule; rows are locked before the schedule, in the order in which processes lock them to answer.
CREATE OR REPLACE FUNCTION {prefix}supersede_requests(verb text, schedule text, because text) RETURNS text[]
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    request    record;
    requesters text[] := '{}';
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('{schema} words of ' || schedule, 0));
    FOR request IN
        SELECT c.id, c.requested_by, upper(words[1]) = verb AS opposite
          FROM {views}control AS c
         CROSS JOIN LATERAL regexp_match(c.statement,
               '^\s*(PAUSE|RESUME)\s+SCHEDULE\s+(["'']?)([A-Za-z0-9._/-]+)\2(?:[\s;]|$)', 'i') AS words
         WHERE c.status = 'asked' AND words[3] = schedule
         ORDER BY c.id FOR UPDATE OF c
    LOOP
        CONTINUE WHEN NOT request.opposite;
        UPDATE {views}control AS c
           SET status = 'failed', answered_at = clock_timestamp(),
               statement = {prefix}redact(c.statement),
               error = format('withdrawn before it was done: schedule %L was %s by %s', schedule,
                              because, session_user)
         WHERE c.id = request.id;
        requesters := requesters || coalesce(request.requested_by, 'unknown');
    END LOOP;
    RETURN requesters;
END $$;

-- Records each superseded request in the history of the schedule that it did not change.
CREATE OR REPLACE FUNCTION {prefix}record_superseded(
    s {prefix}schedules, requesters text[], action text, because text
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    requester text;
    detail    text := format('withdrawn before it was done: %s by %s', because, session_user);
BEGIN
    FOREACH requester IN ARRAY requesters LOOP
        INSERT INTO {prefix}schedule_changes (schedule_id, name, at, by, action, reason, before, after)
        VALUES (s.id, s.name, clock_timestamp(), requester, action, detail,
                {prefix}schedule_json(s), {prefix}schedule_json(s));
        INSERT INTO {prefix}audit (at, by, via, action, thing, reason, before, after)
        VALUES (clock_timestamp(), requester, 'control', action || '_schedule', s.name, detail,
                {prefix}schedule_json(s)::text, {prefix}schedule_json(s)::text);
    END LOOP;
END $$;

-- False if it was paused already and no request to resume it was pending.
CREATE OR REPLACE FUNCTION {views}pause_schedule(name text, reason text DEFAULT NULL) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    superseded text[] := {prefix}supersede_requests('RESUME', name, 'paused');
    before {prefix}schedules := {prefix}lock_schedule(name);
    after  {prefix}schedules;
BEGIN
    reason := {prefix}check_reason(reason);
    PERFORM {prefix}record_superseded(before, superseded, 'resume', 'paused');
    IF before.paused AND cardinality(superseded) = 0 THEN
        RETURN false;
    END IF;
    UPDATE {prefix}schedules AS s
       SET paused = true, paused_by = session_user, paused_at = clock_timestamp(),
           paused_reason = pause_schedule.reason,
           state = 'paused by ' || session_user || coalesce(': ' || nullif(pause_schedule.reason, ''), '')
     WHERE s.id = before.id
    RETURNING s.* INTO after;
    PERFORM {prefix}change_schedule(before, after, 'pause', reason);
    RETURN true;
END $$;

-- False if it was not paused and no request to pause it was pending. Calendars are Python's: if occurrences
-- passed meanwhile, a control row asks a process to record them and to find the next one, within a second
-- of the commit.
CREATE OR REPLACE FUNCTION {views}resume_schedule(name text, reason text DEFAULT NULL) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    superseded text[] := {prefix}supersede_requests('PAUSE', name, 'resumed');
    before {prefix}schedules := {prefix}lock_schedule(name);
    after  {prefix}schedules;
BEGIN
    reason := {prefix}check_reason(reason);
    PERFORM {prefix}record_superseded(before, superseded, 'pause', 'resumed');
    IF NOT before.paused THEN
        RETURN cardinality(superseded) > 0;
    END IF;
    IF before.next_fire_at <= clock_timestamp() THEN
        INSERT INTO {views}control (statement)
        VALUES ('RESUME SCHEDULE "' || before.name || '"'
                || coalesce(' REASON ''' || replace(reason, '''', '''''') || '''', ''));
        RETURN true;
    END IF;
    UPDATE {prefix}schedules AS s
       SET paused = false, paused_by = NULL, paused_at = NULL, paused_reason = NULL,
           state = 'resumed by ' || session_user
     WHERE s.id = before.id
    RETURNING s.* INTO after;
    PERFORM {prefix}change_schedule(before, after, 'resume', reason);
    RETURN true;
END $$;

-- Sets the cursor of a schedule with `anchor = delay` after its run has ended, if it waits for this
-- occurrence. `greatest`: after a step of the clock the cursor does not go back.
CREATE OR REPLACE FUNCTION {prefix}restart_delay(schedule_id bigint, occurrence timestamptz) RETURNS void
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    UPDATE {prefix}schedules AS s
       SET next_fire_at = CASE WHEN t.following <= coalesce(s.ends_at, t.following) THEN t.following END
      FROM (SELECT d.id, greatest(clock_timestamp(), d.last_fired_at)
                         + make_interval(secs => {prefix}seconds(d.expr)) AS following
              FROM {prefix}schedules AS d WHERE d.id = restart_delay.schedule_id) AS t
     WHERE s.id = t.id AND s.next_fire_at = '9999-01-01Z' AND s.last_fired_at = restart_delay.occurrence
       AND t.following IS NOT NULL;
$$;

-- The state of the run afterwards: cancelled, or running and asked to end.
CREATE OR REPLACE FUNCTION {views}cancel_run(id uuid, reason text DEFAULT NULL) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    run      record;
    ended_by text;
BEGIN
    reason := {prefix}check_reason(reason);
    ended_by := coalesce(nullif(reason, ''), 'cancelled by ' || session_user);
    SELECT r.seq, r.state, r.job, r.schedule_id, r.occurrence, j.executor INTO run
      FROM {prefix}runs AS r LEFT JOIN {prefix}jobs AS j ON j.name = r.job
     WHERE r.seq = (SELECT n.seq FROM {prefix}run_ids AS n WHERE n.id = cancel_run.id)
       FOR UPDATE OF r;
    IF NOT FOUND THEN
        PERFORM {prefix}refuse(format('run %L does not exist', id), 'P0002',
                               'The view runs lists them.');
    END IF;
    IF run.state IN ('succeeded', 'dead', 'cancelled') THEN
        PERFORM {prefix}refuse(format('run %s is %s; it cannot be cancelled', id, run.state), '55000');
    END IF;
    -- An executor that is not Rota's own may add statements to the end of its runs.
    IF run.executor NOT IN ('python', 'sql', 'shell', 'http') THEN
        PERFORM {prefix}refuse(format('run %s can only be cancelled where its executor %L is installed',
            id, run.executor), '55000', 'Use rota cancel there.');
    END IF;
    IF run.state = 'running' THEN
        UPDATE {prefix}runs AS r
           SET cancel_requested_at = coalesce(r.cancel_requested_at, clock_timestamp()), reason = ended_by
         WHERE r.seq = run.seq;
    ELSE
        UPDATE {prefix}runs AS r
           SET state = 'cancelled', finished_at = clock_timestamp(), reason = ended_by,
               cancel_requested_at = clock_timestamp(),
               wanted_key = coalesce('o/' || r.overlap_key, 'c/' || r.concurrency_key)
         WHERE r.seq = run.seq;
        PERFORM {prefix}restart_delay(run.schedule_id, run.occurrence);
        -- A process admits the runs that wait for its slot, after the commit.
        DELETE FROM {prefix}slots AS s WHERE s.owner_run = run.seq;
    END IF;
    PERFORM {prefix}record('cancel_run', id::text, reason, run.state, NULL);
    PERFORM pg_notify('{schema}_wake', '');
    RETURN CASE WHEN run.state = 'running' THEN 'running' ELSE 'cancelled' END;
END $$;

REVOKE ALL ON FUNCTION {prefix}ask, {prefix}refuse, {prefix}redact, {prefix}check_reason,
    {prefix}record, {prefix}span, {prefix}seconds, {prefix}check_args, {prefix}make_run,
    {views}enqueue, {views}trigger_job, {prefix}iso, {prefix}schedule_json, {prefix}change_schedule,
    {prefix}lock_schedule, {prefix}supersede_requests, {prefix}record_superseded,
    {views}pause_schedule, {views}resume_schedule, {prefix}restart_delay,
    {views}cancel_run FROM PUBLIC;
