-- Which ranks do the same work: those that reduce or gather large messages together. Of several such groups, a rank is compared with the
-- one on most hosts, so that a slow host is seen and a heavier stage of a pipeline is not. A rank without such a group has an
-- empty comm, and is compared with the ranks whose groups have the same sizes: those of one role. One that is a stage of a pipeline does what
-- no other does: it has a role of its own.
WITH used AS (
    SELECT c.run AS run, c.rank AS rank, c.comm AS comm, MIN(c.host) AS host, MAX(c.size) AS size
    FROM comms c JOIN placed p ON c.run = p.run AND c.win = p.win AND c.rank = p.rank
    GROUP BY c.run, c.rank, c.comm
),
heavy AS (
    SELECT run, comm FROM collectives
    WHERE kind IN ('all_reduce', 'all_gather', 'reduce_scatter') AND bytes >= 65536
    GROUP BY run, comm
),
wide AS (
    SELECT u.run AS run, u.comm AS comm, COUNT(*) AS n, COUNT(DISTINCT u.host) AS hosts
    FROM used u JOIN heavy h ON u.run = h.run AND u.comm = h.comm
    GROUP BY u.run, u.comm
    HAVING COUNT(*) > 1
),
best AS (
    SELECT o.run AS run, o.rank AS rank, o.comm AS comm
    FROM (
        SELECT u.run AS run, u.rank AS rank, u.comm AS comm,
               ROW_NUMBER() OVER (PARTITION BY u.run, u.rank ORDER BY w.hosts DESC, w.n DESC, u.comm) AS i
        FROM used u JOIN wide w ON u.run = w.run AND u.comm = w.comm
    ) o
    WHERE o.i = 1
)
SELECT w.run AS run, w.rank AS rank, COALESCE(b.comm, '') AS comm,
       CASE WHEN COALESCE(b.comm, '') <> '' THEN 0 WHEN t.rank IS NOT NULL THEN -1 - w.rank ELSE COALESCE(r.role, 0) END AS role
FROM (SELECT DISTINCT run, rank FROM windows) w
LEFT JOIN best b ON w.run = b.run AND w.rank = b.rank
LEFT JOIN (
    SELECT run, rank, CAST(SUM(CAST(size AS BIGINT) * size + 1) AS BIGINT) AS role FROM used GROUP BY run, rank
) r ON w.run = r.run AND w.rank = r.rank
LEFT JOIN (SELECT DISTINCT run, rank FROM collectives WHERE kind IN ('send', 'recv', 'send_recv')) t ON w.run = t.run AND w.rank = t.rank
