-- The zones of each range, on threads, on streams and in replays apart.
WITH ordered AS (
    SELECT
        *,
        ROW_NUMBER() OVER (PARTITION BY range, place ORDER BY dur_ns) AS nth,
        COUNT(*) OVER (PARTITION BY range, place) AS zones_in_all
    FROM zones
)
SELECT
    range,
    place,
    COUNT(*) AS n,
    SUM(dur_ns) AS total_ns,
    SUM(self_ns) AS self_ns,
    SUM(dur_ns) / COUNT(*) AS mean_ns,
    MIN(dur_ns) AS min_ns,
    MAX(CASE WHEN nth = (zones_in_all + 1) / 2 THEN dur_ns END) AS p50_ns,
    MAX(CASE WHEN nth = (zones_in_all * 99 + 99) / 100 THEN dur_ns END) AS p99_ns,
    MAX(dur_ns) AS max_ns,
    SUM(launch_ns) AS launch_ns,
    SUM(CASE WHEN failed THEN 1 ELSE 0 END) AS failed
FROM ordered
GROUP BY range, place
