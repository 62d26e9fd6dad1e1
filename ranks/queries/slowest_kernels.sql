-- Which kernels and copies take the most time.
SELECT
    name,
    kind,
    range,
    COUNT(*) AS n,
    SUM(dur_ns) AS total_ns,
    SUM(dur_ns) / COUNT(*) AS mean_ns,
    MAX(dur_ns) AS max_ns
FROM kernels
GROUP BY name, kind, range
ORDER BY total_ns DESC, name, range
