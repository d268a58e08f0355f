-- Which changes help most often, and how much do they free?
WITH changes AS (
    SELECT *, coalesce(remedy, settings, gpu) AS change
    FROM what_if
    WHERE coalesce(remedy, settings, gpu) <> '' AND NOT coalesce(as_recorded, FALSE)
), lost AS (
    SELECT id, capacity_bytes
    FROM what_if
    WHERE as_recorded
    GROUP BY id, capacity_bytes
    HAVING NOT bool_or(survives)
), helps AS (
    SELECT known_by, change, id FROM changes WHERE survives AND known_by = 'run'
    UNION ALL
    SELECT known_by, change, id FROM changes JOIN lost USING (id, capacity_bytes) WHERE survives AND known_by <> 'run'
), counted AS (
    SELECT known_by, change, count(DISTINCT id) AS helped FROM helps GROUP BY known_by, change
)
SELECT
    known_by,
    change,
    count(DISTINCT id) AS jobs,
    coalesce(max(helped), 0) AS helped,
    max(frees_bytes) AS most_freed_bytes
FROM changes LEFT JOIN counted USING (known_by, change)
GROUP BY known_by, change
ORDER BY helped DESC, jobs DESC, known_by, change
LIMIT 30
