-- Ranks whose signatures differ from those of others of the group at one number: they have called different things up to it.
-- More than two ranks that also send to each other count their calls apart, so their signatures say nothing.
SELECT c.run AS run, c.comm AS comm, c.last_seq AS seq, c.signature AS signature, c.rank AS rank
FROM comms c
JOIN placed q ON c.run = q.run AND c.win = q.win AND c.rank = q.rank
JOIN (
    SELECT d.run AS run, d.comm AS comm, d.last_seq AS last_seq
    FROM comms d
    JOIN placed p ON d.run = p.run AND d.win = p.win AND d.rank = p.rank
    WHERE d.comm NOT IN (SELECT x.comm FROM collectives x WHERE x.kind IN ('send', 'recv', 'send_recv') AND x.comm IN (SELECT g.comm FROM comms g WHERE g.size > 2))
    GROUP BY d.run, d.comm, d.last_seq
    HAVING MIN(d.signature) <> MAX(d.signature)
) m ON c.run = m.run AND c.comm = m.comm AND c.last_seq = m.last_seq
