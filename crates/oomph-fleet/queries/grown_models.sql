-- Which models take more memory in the last seven days than in the seven before?
WITH taken AS (
    SELECT model, day, reserved_bytes FROM reports WHERE model IS NOT NULL AND reserved_bytes IS NOT NULL
    UNION ALL
    SELECT model, day, reserved_bytes FROM failures
    WHERE model IS NOT NULL AND reserved_bytes IS NOT NULL AND source <> 'dry-run'
),
latest AS (SELECT max(day) AS last_day FROM taken),
weeks AS (
    SELECT
        model,
        max(CASE WHEN day > last_day - INTERVAL '7' DAY THEN reserved_bytes END) AS last_week_bytes,
        max(CASE WHEN day <= last_day - INTERVAL '7' DAY THEN reserved_bytes END) AS week_before_bytes
    FROM taken CROSS JOIN latest
    WHERE day > last_day - INTERVAL '14' DAY
    GROUP BY model
)
SELECT model, week_before_bytes, last_week_bytes, last_week_bytes - week_before_bytes AS grown_bytes
FROM weeks
WHERE last_week_bytes > week_before_bytes
ORDER BY grown_bytes DESC, model
LIMIT 20
