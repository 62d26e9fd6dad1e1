-- Where hosts meet: for each synchronising collective of several hosts, its latest begin and its earliest end on each.
-- Nobody leaves such a collective before the last one has come. A broadcast or a send makes no such promise. The end is the latest one that is
-- possible: where it is not timed, it may be earlier by early_ns.
SELECT c.run AS run, c.comm AS comm, c.seq AS seq, p.boot_id AS boot_id, MIN(p.host) AS host,
       MAX(c.begin_ns + p.base_ns) AS begin_ns,
       MIN(c.begin_ns + c.dur_ns + p.base_ns) AS end_ns,
       MAX(c.err_ns - COALESCE(c.end_early_ns, 0)) AS err_ns,
       MIN(c.begin_ns + c.dur_ns + p.base_ns)
           - MIN(c.begin_ns + c.dur_ns + p.base_ns
                 - CASE WHEN 20 * COALESCE(c.end_early_ns, 0) > c.dur_ns THEN c.end_early_ns ELSE 0 END) AS early_ns
FROM collectives c
JOIN (
    SELECT g.run AS run, g.comm AS comm
    FROM comms g JOIN placed q ON g.run = q.run AND g.win = q.win AND g.rank = q.rank
    GROUP BY g.run, g.comm
    HAVING MIN(q.boot_id) <> MAX(q.boot_id)
) s ON c.run = s.run AND c.comm = s.comm
JOIN placed p ON c.run = p.run AND c.win = p.win AND c.rank = p.rank AND c.begin_ns >= p.since_ns
WHERE c.why = 'sample' AND c.kind IN ('all_reduce', 'all_gather', 'all_gather_v', 'reduce_scatter', 'all_to_all', 'barrier')
GROUP BY c.run, c.comm, c.seq, p.boot_id
