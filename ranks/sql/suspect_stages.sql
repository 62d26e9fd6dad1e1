-- The stages of each suspect's step, in order, beside the shortest of its peers. Needs the table of suspect_steps.
SELECT DISTINCT g.run AS run, g.rank AS rank, g.step AS step, g.idx AS idx, g.name AS name, g.dur_ns AS dur_ns,
       CASE WHEN 20 * COALESCE(g.end_early_ns, 0) > g.dur_ns THEN g.end_early_ns ELSE 0 END AS early_ns,
       t.least_ns AS least_ns
FROM (SELECT DISTINCT run, rank, step FROM suspect_steps) x
JOIN stages g ON x.run = g.run AND x.rank = g.rank AND x.step = g.step
JOIN peers p ON x.run = p.run AND x.rank = p.rank
JOIN (
    SELECT h.run AS run, q.comm AS comm, q.role AS role, h.step AS step, h.idx AS idx, h.name AS name,
           MIN(h.dur_ns) AS least_ns
    FROM stages h
    JOIN (SELECT DISTINCT run, step FROM suspect_steps) y ON h.run = y.run AND h.step = y.step
    JOIN peers q ON h.run = q.run AND h.rank = q.rank
    GROUP BY h.run, q.comm, q.role, h.step, h.idx, h.name
) t ON p.run = t.run AND p.comm = t.comm AND p.role = t.role AND g.step = t.step AND g.idx = t.idx AND g.name = t.name
