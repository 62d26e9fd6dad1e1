-- The steps that are furthest beyond the median, and the range that exceeds its own median most in each.
-- A range whose time in the step is only a bound is not named.
WITH ordered AS (
    SELECT *, ROW_NUMBER() OVER (ORDER BY dur_ns) AS nth, COUNT(*) OVER () AS steps_in_all
    FROM steps
),
median AS (
    SELECT MAX(CASE WHEN nth = (steps_in_all + 1) / 2 THEN dur_ns END) AS dur_ns
    FROM ordered
),
sums AS (
    SELECT step, range, place, SUM(self_ns) AS ns
    FROM zones
    WHERE step IS NOT NULL AND place <> 'replay'
    GROUP BY step, range, place
    HAVING NOT BOOL_OR(self_is_bound)
),
placed AS (
    SELECT
        *,
        ROW_NUMBER() OVER (PARTITION BY range, place ORDER BY ns) AS nth,
        COUNT(*) OVER (PARTITION BY range, place) AS steps_in_all
    FROM sums
),
usual AS (
    SELECT range, place, MAX(CASE WHEN nth = (steps_in_all + 1) / 2 THEN ns END) AS ns
    FROM placed
    GROUP BY range, place
),
beyond AS (
    SELECT
        s.step,
        s.range,
        s.place,
        s.ns - u.ns AS beyond_ns,
        ROW_NUMBER() OVER (PARTITION BY s.step ORDER BY s.ns - u.ns DESC, s.range, s.place) AS nth
    FROM sums s
    JOIN usual u ON s.range = u.range AND s.place = u.place
)
SELECT
    t.step,
    t.begin_ns,
    t.dur_ns,
    t.dur_ns - m.dur_ns AS beyond_median_ns,
    b.range AS most_beyond,
    b.place,
    b.beyond_ns AS its_beyond_ns
FROM steps t
CROSS JOIN median m
LEFT JOIN beyond b ON t.step = b.step AND b.nth = 1
ORDER BY beyond_median_ns DESC, t.begin_ns
LIMIT 100
