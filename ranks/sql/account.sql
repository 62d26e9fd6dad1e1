-- What was begun, kept and left out, and by which windows: nothing is missing silently.
-- The columns are qualified, because ClickHouse takes a bare name in another expression for the sum of that name.
SELECT w.run, COUNT(*) AS windows, COUNT(DISTINCT w.rank) AS ranks, COUNT(DISTINCT w.host) AS hosts,
       COUNT(DISTINCT w.boot_id) AS boots, COUNT(DISTINCT w.win) AS times, MIN(w.rank) AS least_rank,
       MAX(w.rank) AS most_rank, CAST(SUM(w.steps) AS BIGINT) AS steps, CAST(SUM(w.steps_dropped) AS BIGINT) AS steps_dropped, CAST(SUM(w.zones_begun) AS BIGINT) AS zones_begun,
       CAST(SUM(w.zones_dropped) AS BIGINT) AS zones_dropped, CAST(SUM(w.collectives_begun) AS BIGINT) AS collectives_begun,
       CAST(SUM(w.collectives_kept) AS BIGINT) AS collectives_kept, CAST(SUM(w.collectives_left_out) AS BIGINT) AS collectives_left_out,
       CAST(SUM(CASE WHEN w.coarsened <> '' THEN 1 ELSE 0 END) AS BIGINT) AS coarsened,
       CAST(SUM(CASE WHEN w.collectives_kept + w.collectives_left_out <> w.collectives_begun THEN 1 ELSE 0 END) AS BIGINT) AS wrong
FROM windows w
GROUP BY w.run
