-- Stages in which a rank took a fiftieth longer than its peers, by its own clock alone: for ranks whose collectives nothing compares.
-- The first such stage of a step is the cause, if the rank itself took longer in that step, and did not wait.
-- Stages whose length is only a bound are left out.
SELECT g.run AS run, g.step AS step, p.comm AS comm, p.role AS role, g.idx AS idx, g.name AS name, g.rank AS rank,
       g.dur_ns AS dur_ns, t.n AS n, t.sum_ns AS sum_ns, t.least_ns AS least_ns,
       s.compute_ns AS compute_ns, s.idle_ns AS idle_ns, s.launch_ns AS launch_ns, o.n AS ranks,
       o.compute_ns AS all_compute_ns, o.idle_ns AS all_idle_ns, o.launch_ns AS all_launch_ns
FROM stages g
JOIN peers p ON g.run = p.run AND g.rank = p.rank
JOIN (
    SELECT h.run AS run, q.comm AS comm, q.role AS role, h.step AS step, h.idx AS idx, h.name AS name, COUNT(*) AS n,
           SUM(h.dur_ns) AS sum_ns, MIN(h.dur_ns) AS least_ns
    FROM stages h JOIN peers q ON h.run = q.run AND h.rank = q.rank
    WHERE 20 * COALESCE(h.end_early_ns, 0) <= h.dur_ns
    GROUP BY h.run, q.comm, q.role, h.step, h.idx, h.name
    HAVING COUNT(*) > 2
) t ON p.run = t.run AND p.comm = t.comm AND p.role = t.role AND g.step = t.step AND g.idx = t.idx AND g.name = t.name
JOIN steps s ON g.run = s.run AND g.rank = s.rank AND g.step = s.step
JOIN peer_steps o ON p.run = o.run AND p.comm = o.comm AND p.role = o.role AND g.step = o.step
WHERE 20 * COALESCE(g.end_early_ns, 0) <= g.dur_ns AND 50 * (g.dur_ns * t.n - t.sum_ns) > t.sum_ns - g.dur_ns
