-- What does the reserved memory of the fleet consist of, and how much of it is cache?
WITH held AS (
    SELECT owner, sum(bytes) AS held_bytes, count(DISTINCT id) AS cards
    FROM owners
    WHERE in_reserved
    GROUP BY owner
)
SELECT
    owner,
    owner IN ('cached-split', 'cached-unsplit', 'slack-in-blocks') AS is_cache,
    held_bytes,
    cards,
    round(100.0 * held_bytes / (SELECT sum(held_bytes) FROM held), 2) AS percent
FROM held
ORDER BY held_bytes DESC, owner
