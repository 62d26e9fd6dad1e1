-- What each rank did in each step, for the judgement and the heat map: its own time is the step without open communication, without waits, and
-- without the time in which a zone or a wait may have ended. Of a rank that was started again, the last life counts.
SELECT s.run AS run, s.rank AS rank, s.step AS step, s.win AS win, s.begin_ns AS begin_ns, s.wall_ns AS wall_ns, s.compute_ns AS compute_ns,
       s.compute_ns + s.idle_ns AS own_ns, COALESCE(s.uncertain_ns, 0) AS uncertain_ns, s.dropped AS dropped, s.clock_err_ns AS clock_err_ns
FROM steps s
JOIN placed p ON s.run = p.run AND s.win = p.win AND s.rank = p.rank AND s.begin_ns >= p.since_ns
