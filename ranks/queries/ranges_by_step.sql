-- The time of each range in a step: the median, and the step in a hundred that has most.
-- Steps in which the length of one of its zones is only a bound are counted apart.
WITH sums AS (
    SELECT range, place, step, COUNT(*) AS zones, SUM(dur_ns) AS ns, BOOL_OR(dur_is_bound) AS is_bound
    FROM zones
    WHERE step IS NOT NULL AND place <> 'replay'
    GROUP BY range, place, step
),
ordered AS (
    SELECT
        *,
        ROW_NUMBER() OVER (PARTITION BY range, place, is_bound ORDER BY ns) AS nth,
        COUNT(*) OVER (PARTITION BY range, place, is_bound) AS steps_in_all
    FROM sums
)
SELECT
    range,
    place,
    SUM(CASE WHEN is_bound THEN 0 ELSE 1 END) AS steps,
    SUM(CASE WHEN is_bound THEN 1 ELSE 0 END) AS bounded_steps,
    SUM(CASE WHEN is_bound THEN 0 ELSE zones END) AS zones,
    SUM(CASE WHEN is_bound THEN 0 ELSE ns END) / NULLIF(SUM(CASE WHEN is_bound THEN 0 ELSE 1 END), 0) AS mean_ns,
    MAX(CASE WHEN NOT is_bound AND nth = (steps_in_all + 1) / 2 THEN ns END) AS p50_ns,
    MAX(CASE WHEN NOT is_bound AND nth = (steps_in_all * 99 + 99) / 100 THEN ns END) AS p99_ns,
    MAX(CASE WHEN NOT is_bound THEN ns END) AS max_ns
FROM ordered
GROUP BY range, place
ORDER BY mean_ns DESC NULLS LAST, range, place
