COPY (SELECT *, quantity * price AS total FROM orders ORDER BY id)
  TO '${OUT_DIR:-out}/orders.parquet' (FORMAT parquet);
