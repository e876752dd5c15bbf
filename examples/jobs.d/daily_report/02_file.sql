COPY (SELECT * FROM daily_report ORDER BY day) TO '${OUT_DIR:-out}/daily_report.csv' (HEADER);

-- What the last SELECT of a run says is its result: `rota show RUN` has it.
SELECT CAST('${ROTA_SCHEDULED_AT}' AS TIMESTAMPTZ) AS report_of,
       count(*) AS days,
       sum(revenue) AS revenue
  FROM daily_report;
