-- Which changes help most often, and how much do they free?
WITH recorded AS (
    SELECT id, capacity_bytes, max(CASE WHEN survives THEN 1 ELSE 0 END) AS survived
    FROM what_if
    WHERE as_recorded
    GROUP BY id, capacity_bytes
)
SELECT
    known_by,
    coalesce(remedy, settings, gpu) AS change,
    count(DISTINCT what_if.id) AS jobs,
    count(DISTINCT CASE WHEN survives AND (known_by = 'run' OR survived = 0) THEN what_if.id END) AS helped,
    max(frees_bytes) AS most_freed_bytes
FROM what_if LEFT JOIN recorded ON what_if.id = recorded.id AND what_if.capacity_bytes = recorded.capacity_bytes
WHERE coalesce(remedy, settings, gpu) <> '' AND NOT coalesce(as_recorded, FALSE)
GROUP BY known_by, coalesce(remedy, settings, gpu)
ORDER BY helped DESC, jobs DESC, known_by, change
LIMIT 30
