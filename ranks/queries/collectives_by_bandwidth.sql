-- The bus bandwidth of collectives by operation, group and size, the slowest first. Those whose length is only a bound have none.
SELECT
    kind,
    comm,
    size,
    bytes,
    COUNT(*) AS n,
    SUM(dur_ns) AS total_ns,
    MIN(bus_gb_per_s) AS min_gb_per_s,
    AVG(bus_gb_per_s) AS mean_gb_per_s,
    MAX(bus_gb_per_s) AS max_gb_per_s
FROM collectives
WHERE place = 'stream' AND bus_gb_per_s IS NOT NULL
GROUP BY kind, comm, size, bytes
ORDER BY mean_gb_per_s, kind, comm, bytes
