-- Needs flour.
SELECT count(*) AS sacks
  FROM flour
 WHERE sacks > 0;
