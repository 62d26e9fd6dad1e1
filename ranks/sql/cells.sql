-- What each rank did in each step, for the heat map: its own time is the step without open communication, without waits, and without the time in
-- which a zone or a wait may have ended.
SELECT run, rank, step, wall_ns, compute_ns, compute_ns + idle_ns AS own_ns, COALESCE(uncertain_ns, 0) AS uncertain_ns, dropped, clock_err_ns
FROM steps
