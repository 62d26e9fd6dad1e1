-- What threads and streams wait for, how often and how long.
SELECT
    COALESCE(thread, stream) AS who,
    place,
    kind,
    name,
    range,
    signalled_by,
    COUNT(*) AS n,
    SUM(dur_ns) AS total_ns,
    MAX(dur_ns) AS max_ns
FROM waits
GROUP BY COALESCE(thread, stream), place, kind, name, range, signalled_by
ORDER BY total_ns DESC, who, name, range, signalled_by
