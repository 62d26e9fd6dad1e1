-- Ranks that two processes claim at one time: their rows cannot be told apart.
-- Processes and sessions of a rank that follow one another are none, also in one window. Of one boot of a host, the windows themselves are
-- compared. Of two boots, the wall clocks of the hosts say when each of them wrote in a window.
SELECT a.run AS run, a.rank AS rank, COUNT(*) AS windows
FROM (
    SELECT o.run AS run, o.win AS win, o.rank AS rank
    FROM (
        SELECT w.run AS run, w.win AS win, w.rank AS rank, w.begin_ns AS begin_ns,
               MAX(w.end_ns) OVER (
                   PARTITION BY w.run, w.rank, w.boot_id ORDER BY w.begin_ns, w.end_ns
                   ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
               ) AS before_ns
        FROM windows w
    ) o
    WHERE o.begin_ns < o.before_ns
    UNION
    SELECT x.run AS run, x.win AS win, x.rank AS rank
    FROM (
        SELECT p.run AS run, p.win AS win, p.rank AS rank, p.boot_id AS boot_id,
               MIN(p.begin_ns + p.realtime_offset_ns) AS begin_ns, MAX(p.end_ns + p.realtime_offset_ns) AS end_ns
        FROM windows p
        GROUP BY p.run, p.win, p.rank, p.boot_id
    ) x
    JOIN (
        SELECT q.run AS run, q.win AS win, q.rank AS rank, q.boot_id AS boot_id,
               MIN(q.begin_ns + q.realtime_offset_ns) AS begin_ns, MAX(q.end_ns + q.realtime_offset_ns) AS end_ns
        FROM windows q
        GROUP BY q.run, q.win, q.rank, q.boot_id
    ) y ON x.run = y.run AND x.win = y.win AND x.rank = y.rank
    WHERE x.boot_id < y.boot_id AND x.begin_ns < y.end_ns AND y.begin_ns < x.end_ns
) a
GROUP BY a.run, a.rank
