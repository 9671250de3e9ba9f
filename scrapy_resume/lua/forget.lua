-- The run is over: delete what is kept of it.
--
-- KEYS[1] queues  set, as in take.lua
-- KEYS[2] and more: the run's other keys
-- <queue prefix><lane>:<site>  zset
--
-- ARGV: queue prefix

for _, queue in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  redis.call('UNLINK', ARGV[1] .. queue)
end
return redis.call('UNLINK', unpack(KEYS))
