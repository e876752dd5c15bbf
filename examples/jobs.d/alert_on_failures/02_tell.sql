-- Another program may watch this file; an extension of DuckDB may post it.
COPY (SELECT * FROM alerts ORDER BY failed_at) TO '${OUT_DIR:-out}/alerts.csv' (HEADER);
SELECT job_name, count(*) AS failures, max(failed_at) AS latest FROM alerts GROUP BY job_name;
