-- The bandwidth of collectives by operation, number of ranks and size: of the last rank to come, so without waiting.
-- A number of bytes per nanosecond is a number of GB/s. bus is what NCCL's tests call the bus bandwidth.
-- Only collectives that all ranks of the group recorded: the last one may be the one that is missing. None whose length is only a bound.
SELECT run, kind, n AS ranks, bytes, COUNT(*) AS calls,
       MIN(bus) AS least, AVG(bus) AS mean, MAX(bus) AS most
FROM (
    SELECT l.run AS run, l.kind AS kind, l.n AS n, l.bytes AS bytes,
           CAST(l.bytes AS DOUBLE) / CAST(l.least_dur_ns AS DOUBLE)
               * CASE WHEN l.kind = 'all_reduce' THEN 2.0 * (l.n - 1) / CAST(l.n AS DOUBLE)
                      ELSE (l.n - 1) / CAST(l.n AS DOUBLE) END AS bus
    FROM late l
    JOIN (SELECT run, comm, MAX(size) AS size FROM comms GROUP BY run, comm) g ON l.run = g.run AND l.comm = g.comm
    WHERE l.bytes > 0 AND l.least_dur_ns > 0 AND l.n = g.size
      AND 20 * (l.least_dur_ns - l.least_early_ns) <= l.least_dur_ns
) b
GROUP BY run, kind, n, bytes
