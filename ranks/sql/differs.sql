-- Ranks that called different things under one number: another operation, or another size where all have one. A group of several
-- ranks then waits for ever, or goes on with wrong data.
SELECT c.run AS run, c.comm AS comm, c.seq AS seq, c.rank AS rank, c.kind AS kind, c.bytes AS bytes
FROM collectives c
JOIN placed q ON c.run = q.run AND c.win = q.win AND c.rank = q.rank AND c.begin_ns >= q.since_ns
JOIN (
    SELECT d.run AS run, d.comm AS comm, d.seq AS seq
    FROM collectives d
    JOIN placed p ON d.run = p.run AND d.win = p.win AND d.rank = p.rank AND d.begin_ns >= p.since_ns
    WHERE d.kind NOT IN ('send', 'recv', 'send_recv')
        -- More than two ranks that also send to each other count their calls apart.
        AND d.comm NOT IN (SELECT x.comm FROM collectives x WHERE x.kind IN ('send', 'recv', 'send_recv') AND x.comm IN (SELECT g.comm FROM comms g WHERE g.size > 2))
    GROUP BY d.run, d.comm, d.seq
    HAVING MIN(d.kind) <> MAX(d.kind)
        OR MIN(d.bytes) <> MAX(d.bytes) AND MIN(d.kind) IN ('all_reduce', 'all_gather', 'reduce_scatter', 'broadcast', 'reduce')
) m ON c.run = m.run AND c.comm = m.comm AND c.seq = m.seq
