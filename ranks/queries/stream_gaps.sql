-- Where the stream with the most work has none for longest, and what is around it: for so long at least, and at most, where the end before is not timed.
WITH busiest AS (
    SELECT device, stream
    FROM streams
    ORDER BY busy_ns - uncertain_ns DESC, device, stream
    LIMIT 1
),
gaps AS (
    SELECT
        z.device,
        z.stream,
        z.range AS next_range,
        LAG(z.range) OVER (ORDER BY z.begin_ns, z.zone) AS last_range,
        MAX(z.begin_ns + z.dur_ns) OVER (
            ORDER BY z.begin_ns, z.zone ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS gap_begin_ns,
        MAX(GREATEST(z.begin_ns, z.begin_ns + z.dur_ns - CASE WHEN z.dur_is_bound THEN z.end_early_by_ns ELSE 0 END)) OVER (
            ORDER BY z.begin_ns, z.zone ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS certain_ns,
        z.begin_ns,
        z.step
    FROM zones z
    JOIN busiest b ON z.device = b.device AND z.stream = b.stream
    WHERE z.place = 'stream'
)
SELECT
    device,
    stream,
    gap_begin_ns AS begin_ns,
    GREATEST(begin_ns - gap_begin_ns, 0) AS gap_ns,
    begin_ns - certain_ns AS gap_at_most_ns,
    last_range,
    next_range,
    step
FROM gaps
WHERE begin_ns > certain_ns
ORDER BY gap_ns DESC, gap_at_most_ns DESC, gap_begin_ns
LIMIT 100
