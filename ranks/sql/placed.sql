-- The clock of each rank and window: ranks of one boot of a host share it.
-- base_ns takes a time of that clock to nanoseconds since the run began, as the hosts' wall clocks have it. It is one
-- number per boot, from the boot's first window, so a step of the wall clock later on moves nothing.
SELECT w.run AS run, w.win AS win, w.rank AS rank, w.host AS host, w.boot_id AS boot_id,
       b.base_ns - z.zero_ns AS base_ns
FROM (SELECT run, win, rank, MIN(host) AS host, MIN(boot_id) AS boot_id FROM windows GROUP BY run, win, rank) w
JOIN (
    SELECT o.run AS run, o.boot_id AS boot_id, MIN(o.realtime_offset_ns) AS base_ns
    FROM windows o
    JOIN (SELECT run, boot_id, MIN(win) AS win FROM windows GROUP BY run, boot_id) f
      ON o.run = f.run AND o.boot_id = f.boot_id AND o.win = f.win
    GROUP BY o.run, o.boot_id
) b ON w.run = b.run AND w.boot_id = b.boot_id
JOIN (SELECT run, MIN(begin_ns + realtime_offset_ns) AS zero_ns FROM windows GROUP BY run) z ON w.run = z.run
