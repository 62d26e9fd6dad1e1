-- How much longer the first call of each range took than the others. Calls whose length is only a bound are counted, and are in no figure.
WITH timed AS (
    SELECT *, CASE WHEN NOT dur_is_bound THEN dur_ns END AS timed_ns
    FROM zones
)
SELECT
    range,
    place,
    COUNT(*) AS n,
    SUM(CASE WHEN dur_is_bound THEN 1 ELSE 0 END) AS bounded,
    MAX(CASE WHEN call = 1 THEN timed_ns END) AS first_ns,
    SUM(CASE WHEN call > 1 THEN timed_ns END)
        / NULLIF(SUM(CASE WHEN call > 1 AND NOT dur_is_bound THEN 1 ELSE 0 END), 0) AS others_mean_ns,
    MAX(CASE WHEN call > 1 THEN timed_ns END) AS others_max_ns,
    MAX(CASE WHEN call = 1 THEN timed_ns END)
        - SUM(CASE WHEN call > 1 THEN timed_ns END)
        / NULLIF(SUM(CASE WHEN call > 1 AND NOT dur_is_bound THEN 1 ELSE 0 END), 0) AS longer_ns
FROM timed
GROUP BY range, place
HAVING COUNT(*) > SUM(CASE WHEN call = 1 THEN 1 ELSE 0 END)
ORDER BY longer_ns DESC NULLS LAST, range, place
