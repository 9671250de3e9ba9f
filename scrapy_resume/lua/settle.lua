-- The database has answered for these entries: they are not offered again.
--
-- KEYS[1] out  zset  what is handed out, as in take.lua
-- <queue prefix><lane>:<site>  zset  where an entry may have come back to meanwhile
--
-- ARGV: queue prefix, entries ...

for i = 2, #ARGV do
  redis.call('ZREM', KEYS[1], ARGV[i])
  local id, queue = ARGV[i]:match('^-?%d+:(%d+):(.*)$')
  redis.call('ZREM', ARGV[1] .. queue, id)
end
return #ARGV - 1
