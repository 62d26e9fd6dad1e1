-- How long so many streams of a device worked at the same time: certainly, and at most, where a zone may have ended already.
WITH certain AS (
    SELECT device, stream, begin_ns,
        GREATEST(begin_ns, begin_ns + dur_ns - CASE WHEN dur_is_bound THEN end_early_by_ns ELSE 0 END) AS end_ns,
        1 AS surely
    FROM work
    UNION ALL
    SELECT device, stream, begin_ns, begin_ns + dur_ns AS end_ns, 0 AS surely
    FROM work
),
placed AS (
    SELECT
        *,
        MAX(end_ns) OVER (
            PARTITION BY device, stream, surely ORDER BY begin_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS before_ns
    FROM certain
),
-- The part of each work that is in no earlier one of its stream: parts of one stream do not overlap.
parts AS (
    SELECT device, surely, GREATEST(begin_ns, COALESCE(before_ns, begin_ns)) AS begin_ns, end_ns
    FROM placed
    WHERE before_ns IS NULL OR end_ns > before_ns
),
edges AS (
    SELECT device, begin_ns AS at_ns, surely AS more, 1 - surely AS more_at_most FROM parts
    UNION ALL
    SELECT device, end_ns AS at_ns, -surely AS more, surely - 1 AS more_at_most FROM parts
),
counted AS (
    SELECT
        device,
        SUM(more) OVER (
            PARTITION BY device ORDER BY at_ns, more, more_at_most ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS streams,
        SUM(more_at_most) OVER (
            PARTITION BY device ORDER BY at_ns, more, more_at_most ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS streams_at_most,
        LEAD(at_ns) OVER (PARTITION BY device ORDER BY at_ns, more, more_at_most) - at_ns AS ns
    FROM edges
)
SELECT device, streams, streams_at_most, SUM(ns) AS total_ns
FROM counted
WHERE ns > 0
GROUP BY device, streams, streams_at_most
ORDER BY device, streams, streams_at_most
