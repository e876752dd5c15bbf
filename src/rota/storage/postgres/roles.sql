-- Three roles that nobody can log in as: grant them to those who may. Repeatable, and repeated by
-- `rota migrate` once they are there, so that what a new version brings is covered.

DO $$
DECLARE
    called text;
BEGIN
    FOREACH called IN ARRAY ARRAY['{schema}_viewer', '{schema}_operator', '{schema}_worker'] LOOP
        IF to_regrole(quote_ident(called)) IS NULL THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', called);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;  -- roles are the server's: another database was faster
            END;
        END IF;
    END LOOP;
END $$;

-- A viewer reads the views and nothing else.
GRANT USAGE ON SCHEMA "{schema}" TO "{schema}_viewer", "{schema}_operator", "{schema}_worker";
DO $$
DECLARE
    called text;
BEGIN
    FOR called IN SELECT viewname FROM pg_views
                   WHERE schemaname = '{schema}' AND viewowner = current_user LOOP
        EXECUTE format('GRANT SELECT ON "{schema}".%I TO "{schema}_viewer", "{schema}_worker"', called);
    END LOOP;
END $$;

-- An operator also calls the functions, and inserts control rows.
-- Asked before: to grant a role again needs the right to grant it, and migrations of the owner repeat all this.
DO $$ BEGIN
    IF NOT pg_has_role('{schema}_operator', '{schema}_viewer', 'MEMBER') THEN
        GRANT "{schema}_viewer" TO "{schema}_operator";
    END IF;
END $$;
GRANT EXECUTE ON FUNCTION {views}enqueue, {views}trigger_job, {views}pause_schedule,
    {views}resume_schedule, {views}cancel_run TO "{schema}_operator";
GRANT SELECT, INSERT (statement) ON {views}control TO "{schema}_operator";

-- A worker is what a process of Rota connects as: all rows, and no right to change the tables. To
-- migrate is the owner's.
GRANT USAGE ON SCHEMA "{schema}_data" TO "{schema}_worker";
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "{schema}_data" TO "{schema}_worker";
GRANT USAGE ON ALL SEQUENCES IN SCHEMA "{schema}_data" TO "{schema}_worker";
GRANT SELECT, UPDATE, DELETE ON {views}control TO "{schema}_worker";
DROP POLICY IF EXISTS worker ON {views}control;
CREATE POLICY worker ON {views}control TO "{schema}_worker" USING (true) WITH CHECK (true);
