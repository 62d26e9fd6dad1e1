-- What each rank did in each step, for the heat map: its own time is the step without open communication and without waits.
SELECT run, rank, step, wall_ns, compute_ns, compute_ns + idle_ns AS own_ns, dropped, clock_err_ns
FROM steps
