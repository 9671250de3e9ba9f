-- The asker has filled the queues; for a while nobody needs to look again.
--
-- KEYS[1] fill  string  who fills; "done" for a while afterwards
--
-- ARGV: asker, ms of that while

if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('SET', KEYS[1], 'done', 'PX', ARGV[2])
end
return 1
