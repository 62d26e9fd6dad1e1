-- The work of streams: kernels, copies and memory sets of devices that have any, and zones of the others. A zone is also around time in which nothing ran.
WITH with_kernels AS (
    SELECT DISTINCT device FROM kernels WHERE stream IS NOT NULL
)
SELECT
    device,
    stream,
    kind,
    name,
    range,
    is_collective,
    begin_ns,
    dur_ns,
    CAST(0 AS BIGINT) AS end_early_by_ns,
    FALSE AS dur_is_bound,
    step
FROM kernels
WHERE stream IS NOT NULL
UNION ALL
SELECT
    z.device,
    z.stream,
    'zone' AS kind,
    z.range AS name,
    z.range,
    z.is_collective,
    z.begin_ns,
    z.dur_ns,
    z.end_early_by_ns,
    z.dur_is_bound,
    z.step
FROM zones z
LEFT JOIN with_kernels w ON z.device = w.device
WHERE w.device IS NULL AND z.place = 'stream'
