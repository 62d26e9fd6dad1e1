-- What was begun, kept and left out, and by which windows: nothing is missing silently.
-- The columns are qualified, because ClickHouse takes a bare name in another expression for the sum of that name.
SELECT w.run, COUNT(*) AS windows, COUNT(DISTINCT w.rank) AS ranks, COUNT(DISTINCT w.host) AS hosts,
       COUNT(DISTINCT w.boot_id) AS boots, COUNT(DISTINCT w.win) AS times, MIN(w.rank) AS least_rank,
       MAX(w.rank) AS most_rank, SUM(w.steps) AS steps, SUM(w.steps_dropped) AS steps_dropped, SUM(w.zones_begun) AS zones_begun,
       SUM(w.zones_dropped) AS zones_dropped, SUM(w.collectives_begun) AS collectives_begun,
       SUM(w.collectives_kept) AS collectives_kept, SUM(w.collectives_left_out) AS collectives_left_out,
       SUM(CASE WHEN w.coarsened <> '' THEN 1 ELSE 0 END) AS coarsened,
       SUM(CASE WHEN w.collectives_kept + w.collectives_left_out <> w.collectives_begun THEN 1 ELSE 0 END) AS wrong
FROM windows w
GROUP BY w.run
