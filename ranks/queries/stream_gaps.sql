-- Where the stream with the most work has none for longest, and what is around it: for so long at least, and at most, where the end before is not timed.
WITH busiest AS (
    SELECT device, stream
    FROM streams
    ORDER BY busy_ns - uncertain_ns DESC, device, stream
    LIMIT 1
),
gaps AS (
    SELECT
        w.device,
        w.stream,
        w.name AS next_work,
        LAG(w.name) OVER (ORDER BY w.begin_ns, w.dur_ns, w.name) AS last_work,
        MAX(w.begin_ns + w.dur_ns) OVER (
            ORDER BY w.begin_ns, w.dur_ns, w.name ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS gap_begin_ns,
        MAX(GREATEST(w.begin_ns, w.begin_ns + w.dur_ns - CASE WHEN w.dur_is_bound THEN w.end_early_by_ns ELSE 0 END)) OVER (
            ORDER BY w.begin_ns, w.dur_ns, w.name ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS certain_ns,
        w.begin_ns,
        w.step
    FROM work w
    JOIN busiest b ON w.device = b.device AND w.stream = b.stream
)
SELECT
    device,
    stream,
    gap_begin_ns AS begin_ns,
    GREATEST(begin_ns - gap_begin_ns, 0) AS gap_ns,
    begin_ns - certain_ns AS gap_at_most_ns,
    last_work,
    next_work,
    step
FROM gaps
WHERE begin_ns > certain_ns
ORDER BY gap_ns DESC, gap_at_most_ns DESC, gap_begin_ns
LIMIT 100
