-- Rota's own history is a table like any other: _rota.jobs, _rota.job_queue, _rota.job_runs.
INSERT INTO alerts
SELECT run_id, job_name, error_message, finished_at
  FROM _rota.job_runs
 WHERE status = 'failed'
   AND record_type = 'run'
   AND finished_at > now() - INTERVAL '24 hours'
   AND run_id NOT IN (SELECT run_id FROM alerts);
