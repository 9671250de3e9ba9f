-- May the asker fill the queues? Only if they are empty and nobody else fills or just did.
--
-- KEYS[1] queues  set     names of the queues, as in take.lua
-- KEYS[2] fill    string  who fills; "done" for a while afterwards
--
-- ARGV: asker, ms for which it may be silent, queue prefix
-- Returns 1 for yes.

for _, queue in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  if redis.call('EXISTS', ARGV[3] .. queue) == 1 then return 0 end
end
local filler = redis.call('GET', KEYS[2])
if filler and filler ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return 1
