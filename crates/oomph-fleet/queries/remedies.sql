-- Which changes help most often, and how much do they free?
SELECT
    known_by,
    coalesce(remedy, settings, gpu) AS change,
    count(DISTINCT id) AS failures,
    sum(CASE WHEN survives THEN 1 ELSE 0 END) AS survive,
    max(frees_bytes) AS most_freed_bytes
FROM what_if
WHERE coalesce(remedy, settings, gpu) <> '' AND (survives IS NULL OR NOT coalesce(as_recorded, FALSE))
GROUP BY known_by, coalesce(remedy, settings, gpu)
ORDER BY failures DESC, known_by, change
LIMIT 30
