-- The zones of each range, on threads, on streams and in replays apart. A zone whose length is only a bound is counted, and is in no figure but the
-- total. Of zones that a sample or a budget chose, others ran that have no row.
WITH ordered AS (
    SELECT
        *,
        ROW_NUMBER() OVER (PARTITION BY range, place, dur_is_bound ORDER BY dur_ns) AS nth,
        COUNT(*) OVER (PARTITION BY range, place, dur_is_bound) AS zones_in_all
    FROM zones
)
SELECT
    range,
    place,
    COUNT(*) AS n,
    COUNT(sampled) AS sampled,
    SUM(CASE WHEN dur_is_bound THEN 1 ELSE 0 END) AS bounded,
    SUM(dur_ns) AS total_ns,
    20 * SUM(CASE WHEN dur_is_bound THEN LEAST(end_early_by_ns, dur_ns) ELSE 0 END) > SUM(dur_ns) AS total_is_bound,
    SUM(CASE WHEN dur_is_bound THEN 0 ELSE self_ns END) AS self_ns,
    SUM(CASE WHEN dur_is_bound THEN 0 ELSE dur_ns END)
        / NULLIF(SUM(CASE WHEN dur_is_bound THEN 0 ELSE 1 END), 0) AS mean_ns,
    MIN(CASE WHEN NOT dur_is_bound THEN dur_ns END) AS min_ns,
    MAX(CASE WHEN NOT dur_is_bound AND nth = (zones_in_all + 1) / 2 THEN dur_ns END) AS p50_ns,
    MAX(CASE WHEN NOT dur_is_bound AND nth = (zones_in_all * 99 + 99) / 100 THEN dur_ns END) AS p99_ns,
    MAX(CASE WHEN NOT dur_is_bound THEN dur_ns END) AS max_ns,
    SUM(launch_ns) AS launch_ns,
    SUM(CASE WHEN failed THEN 1 ELSE 0 END) AS failed
FROM ordered
GROUP BY range, place
