-- A file that fails ends the run: what is wrong is never published.
SELECT CASE WHEN count(*) > 0
            THEN error(count(*) || ' orders without a sensible quantity or price')
            ELSE 'all orders are sensible' END AS verdict
  FROM orders
 WHERE quantity <= 0 OR price <= 0;
