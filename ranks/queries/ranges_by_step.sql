-- The time of each range in a step: the median, and the step in a hundred that has most.
WITH sums AS (
    SELECT range, place, step, COUNT(*) AS zones, SUM(dur_ns) AS ns
    FROM zones
    WHERE step IS NOT NULL AND place <> 'replay'
    GROUP BY range, place, step
),
ordered AS (
    SELECT
        *,
        ROW_NUMBER() OVER (PARTITION BY range, place ORDER BY ns) AS nth,
        COUNT(*) OVER (PARTITION BY range, place) AS steps_in_all
    FROM sums
)
SELECT
    range,
    place,
    COUNT(*) AS steps,
    SUM(zones) AS zones,
    SUM(ns) / COUNT(*) AS mean_ns,
    MAX(CASE WHEN nth = (steps_in_all + 1) / 2 THEN ns END) AS p50_ns,
    MAX(CASE WHEN nth = (steps_in_all * 99 + 99) / 100 THEN ns END) AS p99_ns,
    MAX(ns) AS max_ns
FROM ordered
GROUP BY range, place
ORDER BY mean_ns DESC, range, place
