-- How long so many streams of a device had a zone at the same time.
WITH outermost AS (
    SELECT device, stream, begin_ns, begin_ns + dur_ns AS end_ns
    FROM zones
    WHERE place = 'stream'
),
placed AS (
    SELECT
        *,
        MAX(end_ns) OVER (
            PARTITION BY device, stream ORDER BY begin_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS before_ns
    FROM outermost
),
-- The part of each zone that is in no earlier one of its stream: parts of one stream do not overlap.
parts AS (
    SELECT device, GREATEST(begin_ns, COALESCE(before_ns, begin_ns)) AS begin_ns, end_ns
    FROM placed
    WHERE before_ns IS NULL OR end_ns > before_ns
),
edges AS (
    SELECT device, begin_ns AS at_ns, 1 AS more FROM parts
    UNION ALL
    SELECT device, end_ns AS at_ns, -1 AS more FROM parts
),
counted AS (
    SELECT
        device,
        SUM(more) OVER (
            PARTITION BY device ORDER BY at_ns, more ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS streams,
        LEAD(at_ns) OVER (PARTITION BY device ORDER BY at_ns, more) - at_ns AS ns
    FROM edges
)
SELECT device, streams, SUM(ns) AS total_ns
FROM counted
WHERE ns > 0
GROUP BY device, streams
ORDER BY device, streams
