-- The device work of each suspect in each step in which it is known, beside that of its peers. Needs the table suspects: run, rank.
SELECT x.run AS run, x.rank AS rank, s.step AS step, s.compute_ns AS compute_ns, t.n AS n,
       t.compute_ns AS all_compute_ns
FROM (SELECT DISTINCT run, rank FROM suspects) x
JOIN peers p ON x.run = p.run AND x.rank = p.rank
JOIN steps s ON x.run = s.run AND x.rank = s.rank
JOIN peer_steps t ON p.run = t.run AND p.comm = t.comm AND p.role = t.role AND s.step = t.step
WHERE 20 * COALESCE(s.uncertain_ns, 0) <= s.compute_ns
