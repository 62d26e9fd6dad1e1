-- How much longer the first call of each range took than the others.
SELECT
    range,
    place,
    COUNT(*) AS n,
    MAX(CASE WHEN call = 1 THEN dur_ns END) AS first_ns,
    SUM(CASE WHEN call > 1 THEN dur_ns END) / SUM(CASE WHEN call > 1 THEN 1 ELSE 0 END) AS others_mean_ns,
    MAX(CASE WHEN call > 1 THEN dur_ns END) AS others_max_ns,
    MAX(CASE WHEN call = 1 THEN dur_ns END)
        - SUM(CASE WHEN call > 1 THEN dur_ns END) / SUM(CASE WHEN call > 1 THEN 1 ELSE 0 END) AS longer_ns
FROM zones
GROUP BY range, place
HAVING COUNT(*) > SUM(CASE WHEN call = 1 THEN 1 ELSE 0 END)
ORDER BY longer_ns DESC, range, place
