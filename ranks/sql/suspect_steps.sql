-- What the suspects did in their steps.
SELECT x.run AS run, x.rank AS rank, x.step AS step, s.win AS win, s.begin_ns AS begin_ns, s.wall_ns AS wall_ns,
       s.compute_ns AS compute_ns, s.idle_ns AS idle_ns, s.launch_ns AS launch_ns
FROM suspects x
JOIN steps s ON x.run = s.run AND x.rank = s.rank AND x.step = s.step
JOIN placed p ON s.run = p.run AND s.win = p.win AND s.rank = p.rank AND s.begin_ns >= p.since_ns
