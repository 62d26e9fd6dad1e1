-- Who comes last: for each collective, its last rank and when the others came, on one clock.
-- Where a rank of the group has no row, because its window is not written yet or is lost, n is less than size, and that rank may be
-- the one that came last. Ranks that call different operations with one number do not meet. least_dur_ns is the time from the last
-- begin to the first end; where ends are not timed, it may be as short as least_early_ns.
WITH met AS (
    SELECT run, comm, seq, MIN(kind) AS kind, MIN(bytes) AS bytes, COUNT(*) AS n, MIN(at_ns) AS first_ns,
           MAX(at_ns) AS last_ns, CAST(SUM(at_ns) AS BIGINT) AS sum_ns, MIN(dur_ns) AS least_dur_ns, MIN(dur_ns - early_ns) AS least_early_ns, MAX(read_ns) AS read_ns,
           CASE WHEN MIN(boot_id) = MAX(boot_id) THEN 0 ELSE MAX(clock_ns) END AS clock_ns
    FROM aligned
    GROUP BY run, comm, seq
    HAVING COUNT(*) > 1 AND MIN(kind) = MAX(kind)
)
SELECT m.run AS run, m.comm AS comm, m.seq AS seq, MIN(m.kind) AS kind, MIN(m.bytes) AS bytes, MIN(m.n) AS n,
       COALESCE(MIN(g.size), MIN(m.n)) AS size, MIN(m.first_ns) AS first_ns,
       MIN(m.last_ns) AS last_ns, MIN(m.sum_ns) AS sum_ns, MIN(m.least_dur_ns) AS least_dur_ns,
       MIN(m.least_early_ns) AS least_early_ns,
       MIN(m.read_ns) AS read_ns, MIN(m.clock_ns) AS clock_ns, MIN(a.rank) AS rank, MIN(a.begin_ns) AS begin_ns
FROM met m
JOIN aligned a ON m.run = a.run AND m.comm = a.comm AND m.seq = a.seq AND m.last_ns = a.at_ns
LEFT JOIN (SELECT run, comm, MAX(size) AS size FROM comms GROUP BY run, comm) g ON m.run = g.run AND m.comm = g.comm
GROUP BY m.run, m.comm, m.seq
