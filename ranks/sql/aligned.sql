-- When each rank came to each synchronising collective, on one clock.
-- Needs the table clocks: a row per boot and segment of a minute, with what its clock is ahead at mid_ns, and its drift.
-- early_ns is by how much the end may be earlier, if that makes dur_ns a bound. The begin is as certain as the clock.
SELECT c.run AS run, c.comm AS comm, c.seq AS seq, c.rank AS rank, c.kind AS kind, c.bytes AS bytes,
       c.dur_ns AS dur_ns, c.begin_ns AS begin_ns, p.boot_id AS boot_id, k.err_ns AS clock_ns,
       c.err_ns - COALESCE(c.end_early_ns, 0) AS read_ns,
       CASE WHEN 20 * COALESCE(c.end_early_ns, 0) > c.dur_ns THEN c.end_early_ns ELSE 0 END AS early_ns,
       c.begin_ns + p.base_ns
           - CAST(FLOOR(k.offset_ns + k.drift * CAST(c.begin_ns + p.base_ns - k.mid_ns AS DOUBLE)) AS BIGINT) AS at_ns
FROM collectives c
JOIN placed p ON c.run = p.run AND c.win = p.win AND c.rank = p.rank AND c.begin_ns >= p.since_ns
JOIN clocks k ON c.run = k.run AND p.boot_id = k.boot_id
    AND k.segment = CAST((c.begin_ns + p.base_ns - (c.begin_ns + p.base_ns) % 60000000000) / 60000000000 AS BIGINT)
WHERE c.why = 'sample' AND c.kind IN ('all_reduce', 'all_gather', 'all_gather_v', 'reduce_scatter', 'all_to_all', 'barrier')
