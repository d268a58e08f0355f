-- Cards of which size run out most often, and how much is missing?
SELECT
    cast(round(capacity_bytes / 1073741824.0) AS bigint) AS card_gib,
    count(*) AS failures,
    sum(CASE WHEN cause = 'other-process' OR cause = 'other-processes' THEN 1 ELSE 0 END) AS shared_cards,
    cast(floor(cast(sum(shortfall_bytes) AS double) / count(shortfall_bytes)) AS bigint) AS mean_missing_bytes,
    max(requested_bytes) AS most_requested_bytes
FROM failures
WHERE is_gpu_oom AND capacity_bytes > 0
GROUP BY cast(round(capacity_bytes / 1073741824.0) AS bigint)
ORDER BY failures DESC, card_gib
