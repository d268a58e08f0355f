-- What do guarded runs lose to memory that runs out, and which remedies end it?
SELECT
    model,
    count(DISTINCT run) AS runs,
    count(*) AS attempts,
    sum(CASE WHEN out_of_memory THEN 1 ELSE 0 END) AS deaths,
    round(sum(CASE WHEN out_of_memory THEN seconds ELSE 0 END) / 3600.0, 2) AS hours_lost,
    sum(repeated_steps) AS repeated_steps,
    max(CASE WHEN NOT out_of_memory AND remedies <> '' THEN remedies END) AS a_remedy_that_held
FROM attempts
WHERE NOT rehearsal
GROUP BY model
ORDER BY hours_lost DESC, model
LIMIT 20
