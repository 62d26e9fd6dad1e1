-- Steps of ranks to look at: a rank took itself, in compute and idle time, a tenth longer than its peers on average.
-- `warpline-ranks report` puts a table in its place, with the steps of the ranks that it names and of some of their peers.
SELECT s.run AS run, s.rank AS rank, s.step AS step
FROM steps s
JOIN peers p ON s.run = p.run AND s.rank = p.rank
JOIN (
    SELECT o.run AS run, q.comm AS comm, q.role AS role, o.step AS step, COUNT(*) AS n, CAST(SUM(o.compute_ns + o.idle_ns) AS BIGINT) AS own_ns
    FROM steps o
    JOIN peers q ON o.run = q.run AND o.rank = q.rank
    GROUP BY o.run, q.comm, q.role, o.step
    HAVING COUNT(*) > 1
) t ON p.run = t.run AND p.comm = t.comm AND p.role = t.role AND s.step = t.step
WHERE 10 * (s.compute_ns + s.idle_ns) * (t.n - 1) > 11 * (t.own_ns - s.compute_ns - s.idle_ns)
