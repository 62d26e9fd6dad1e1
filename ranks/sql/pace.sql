-- How fast each rank is, in each window: by the steps whose device work is known, with less than a twentieth of it in time in which it is not known
-- whether a zone still ran.
-- The columns are qualified, because ClickHouse takes a bare name in another expression for the sum of that name.
SELECT s.run AS run, s.win AS win, s.rank AS rank, MIN(s.host) AS host, COUNT(*) AS steps, MIN(s.step) AS first_step,
       SUM(s.wall_ns) AS wall_ns, SUM(s.compute_ns) AS compute_ns,
       SUM(s.compute_ns) / CAST(COUNT(*) AS DOUBLE) AS mean_ns
FROM steps s
WHERE 20 * COALESCE(s.uncertain_ns, 0) <= s.compute_ns
GROUP BY s.run, s.win, s.rank
