-- The step of each suspect and the one before it, beside what its peers did in them.
-- Needs the table suspects: run, rank, and begin_ns, a time of the rank's clock in that step.
SELECT x.run AS run, x.rank AS rank, x.begin_ns AS at_ns, s.win AS win, s.step AS step, s.begin_ns AS begin_ns,
       s.wall_ns AS wall_ns, s.compute_ns AS compute_ns, s.idle_ns AS idle_ns, s.launch_ns AS launch_ns,
       t.n AS n, t.compute_ns AS all_compute_ns, t.idle_ns AS all_idle_ns, t.launch_ns AS all_launch_ns
FROM suspects x
JOIN steps s ON x.run = s.run AND x.rank = s.rank AND s.begin_ns <= x.begin_ns AND x.begin_ns < s.begin_ns + 3 * s.wall_ns
JOIN peers p ON x.run = p.run AND x.rank = p.rank
JOIN peer_steps t ON p.run = t.run AND p.comm = t.comm AND p.role = t.role AND s.step = t.step
