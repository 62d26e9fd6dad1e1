-- What threads and streams wait for, how often and how long: at most, and at least, where the ends of waits of streams are not timed.
SELECT
    COALESCE(thread, stream) AS who,
    place,
    kind,
    name,
    range,
    signalled_by,
    COUNT(*) AS n,
    SUM(dur_ns) AS total_ns,
    SUM(GREATEST(dur_ns - end_early_by_ns, 0)) AS least_ns,
    MAX(CASE WHEN NOT dur_is_bound THEN dur_ns END) AS max_ns,
    SUM(CASE WHEN dur_is_bound THEN 1 ELSE 0 END) AS bounded
FROM waits
GROUP BY COALESCE(thread, stream), place, kind, name, range, signalled_by
ORDER BY total_ns DESC, who, name, range, signalled_by
