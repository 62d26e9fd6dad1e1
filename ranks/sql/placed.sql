-- The clock of each rank and window: ranks of one boot of a host share it. Of a rank that was started again, only the last life is here:
-- its rows are those that begin at since_ns or later, by the clock of that boot.
-- base_ns takes a time of that clock to nanoseconds since the run began, as the hosts' wall clocks have it. It is one
-- number per boot, from the boot's first window, so a step of the wall clock later on moves nothing.
WITH lives AS (
    SELECT l.run AS run, l.rank AS rank, l.boot_id AS boot_id, l.pid AS pid, l.since_ns AS since_ns,
           ROW_NUMBER() OVER (PARTITION BY l.run, l.rank ORDER BY l.last_ns DESC, l.since_ns DESC, l.pid DESC) AS i
    FROM (
        SELECT run, rank, boot_id, pid, MIN(begin_ns) AS since_ns, MAX(begin_ns + realtime_offset_ns) AS last_ns
        FROM windows
        GROUP BY run, rank, boot_id, pid
    ) l
)
SELECT w.run AS run, w.win AS win, w.rank AS rank, w.host AS host, w.boot_id AS boot_id,
       b.base_ns - z.zero_ns AS base_ns, w.since_ns AS since_ns
FROM (
    SELECT n.run AS run, n.win AS win, n.rank AS rank, MIN(n.host) AS host, MIN(n.boot_id) AS boot_id, MIN(l.since_ns) AS since_ns
    FROM windows n
    JOIN lives l ON n.run = l.run AND n.rank = l.rank AND n.boot_id = l.boot_id AND n.pid = l.pid
    WHERE l.i = 1
    GROUP BY n.run, n.win, n.rank
) w
JOIN (
    SELECT o.run AS run, o.boot_id AS boot_id, MIN(o.realtime_offset_ns) AS base_ns
    FROM windows o
    JOIN (SELECT run, boot_id, MIN(win) AS win FROM windows GROUP BY run, boot_id) f
      ON o.run = f.run AND o.boot_id = f.boot_id AND o.win = f.win
    GROUP BY o.run, o.boot_id
) b ON w.run = b.run AND w.boot_id = b.boot_id
JOIN (SELECT run, MIN(begin_ns + realtime_offset_ns) AS zero_ns FROM windows GROUP BY run) z ON w.run = z.run
