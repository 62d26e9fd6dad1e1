-- How much of the time of collectives the device computed, and how much was exposed: in kernels that are none of a collective, or, on a device
-- without kernels, in other zones.
-- Collectives whose length is only a bound are counted, and their time is left out.
WITH with_kernels AS (
    SELECT DISTINCT device FROM kernels WHERE kind = 'kernel'
),
computed AS (
    SELECT device, begin_ns, begin_ns + dur_ns AS end_ns FROM kernels WHERE kind = 'kernel' AND NOT is_collective
    UNION ALL
    -- The end of a zone may have been found late.
    SELECT z.device, z.begin_ns, GREATEST(z.begin_ns, z.begin_ns + z.dur_ns - z.end_early_by_ns) AS end_ns
    FROM zones z
    LEFT JOIN with_kernels w ON z.device = w.device
    WHERE w.device IS NULL AND z.place <> 'thread' AND NOT z.is_collective
),
edges AS (
    SELECT device, begin_ns AS at_ns, 1 AS comm, 0 AS compute FROM zones
    WHERE place <> 'thread' AND is_collective AND NOT dur_is_bound
    UNION ALL
    SELECT device, begin_ns + dur_ns AS at_ns, -1 AS comm, 0 AS compute FROM zones
    WHERE place <> 'thread' AND is_collective AND NOT dur_is_bound
    UNION ALL
    SELECT device, begin_ns AS at_ns, 0 AS comm, 1 AS compute FROM computed
    UNION ALL
    SELECT device, end_ns AS at_ns, 0 AS comm, -1 AS compute FROM computed
),
counted AS (
    SELECT
        device,
        SUM(comm) OVER (
            PARTITION BY device ORDER BY at_ns, comm, compute ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS comms,
        SUM(compute) OVER (
            PARTITION BY device ORDER BY at_ns, comm, compute ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS computes,
        LEAD(at_ns) OVER (PARTITION BY device ORDER BY at_ns, comm, compute) - at_ns AS ns
    FROM edges
),
timed AS (
    SELECT
        device,
        SUM(ns) AS comm_ns,
        SUM(CASE WHEN computes > 0 THEN ns ELSE 0 END) AS hidden_ns,
        SUM(CASE WHEN computes > 0 THEN 0 ELSE ns END) AS exposed_ns
    FROM counted
    WHERE comms > 0 AND ns > 0
    GROUP BY device
),
collected AS (
    SELECT device, COUNT(*) AS n, SUM(CASE WHEN dur_is_bound THEN 1 ELSE 0 END) AS bounded
    FROM zones
    WHERE place <> 'thread' AND is_collective
    GROUP BY device
)
SELECT c.device, c.n, c.bounded, t.comm_ns, t.hidden_ns, t.exposed_ns
FROM collected c
LEFT JOIN timed t ON c.device = t.device
ORDER BY c.device
