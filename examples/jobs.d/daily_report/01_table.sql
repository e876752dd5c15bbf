CREATE OR REPLACE TABLE daily_report AS
SELECT day,
       count(*) AS orders,
       sum(quantity * price) AS revenue,
       arg_max(product, quantity * price) AS best_seller
  FROM orders
 GROUP BY day;
