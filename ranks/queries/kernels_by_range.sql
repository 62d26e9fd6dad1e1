-- How many kernels and copies each range launches, and how long they run.
SELECT
    range,
    COUNT(*) AS n,
    COUNT(DISTINCT name) AS names,
    SUM(dur_ns) AS total_ns,
    SUM(CASE WHEN kind = 'copy' THEN dur_ns ELSE 0 END) AS copies_ns,
    MAX(dur_ns) AS max_ns
FROM kernels
GROUP BY range
ORDER BY total_ns DESC, range
