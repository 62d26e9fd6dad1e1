-- How long zones wait on their streams between the begin of their launch and their begin.
WITH ordered AS (
    SELECT
        range,
        begin_ns - launch_begin_ns AS delay_ns,
        ROW_NUMBER() OVER (PARTITION BY range ORDER BY begin_ns - launch_begin_ns) AS nth,
        COUNT(*) OVER (PARTITION BY range) AS zones_in_all
    FROM zones
    WHERE place = 'stream' AND launch_begin_ns IS NOT NULL
)
SELECT
    range,
    COUNT(*) AS n,
    MIN(delay_ns) AS min_ns,
    MAX(CASE WHEN nth = (zones_in_all + 1) / 2 THEN delay_ns END) AS p50_ns,
    MAX(CASE WHEN nth = (zones_in_all * 99 + 99) / 100 THEN delay_ns END) AS p99_ns,
    MAX(delay_ns) AS max_ns
FROM ordered
GROUP BY range
ORDER BY p50_ns DESC, range
