-- What the ranks that do the same work did in each step, together.
SELECT s.run AS run, p.comm AS comm, p.role AS role, s.step AS step, COUNT(*) AS n, SUM(s.compute_ns) AS compute_ns,
       SUM(s.idle_ns) AS idle_ns,
       SUM(s.launch_ns) AS launch_ns
FROM steps s
JOIN peers p ON s.run = p.run AND s.rank = p.rank
GROUP BY s.run, p.comm, p.role, s.step
