-- Where threads launch nothing for longest: the gap between two launches, and what is around it.
WITH gaps AS (
    SELECT
        thread,
        range AS next_range,
        LAG(range) OVER (PARTITION BY thread ORDER BY begin_ns) AS last_range,
        MAX(begin_ns + dur_ns) OVER (
            PARTITION BY thread ORDER BY begin_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS gap_begin_ns,
        begin_ns,
        step
    FROM launches
)
SELECT thread, gap_begin_ns AS begin_ns, begin_ns - gap_begin_ns AS gap_ns, last_range, next_range, step
FROM gaps
WHERE begin_ns > gap_begin_ns
ORDER BY gap_ns DESC, gap_begin_ns
LIMIT 100
