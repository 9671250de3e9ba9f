-- Put shards of one lane, site and priority into their queue. Those that wait there stay.
--
-- KEYS[1] queues  set     names of the queues, as in take.lua
-- KEYS[2] fill    string  who fills
-- KEYS[3] queue   zset    ids (16 digits) scored by priority
--
-- ARGV: asker that fills ("": a single offer), ms for which it may be silent, ms of idleness
--       after which the queue expires, the queue's name, priority, digits of an id, ids
-- Returns 0, and does nothing, if the asker no longer fills: the keys were thrown away, or it
-- was silent for too long.

if ARGV[1] ~= '' then
  if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
end
local width, ids = tonumber(ARGV[6]), ARGV[7]
for chunk = 1, #ids, 2000 * width do
  local pairs_ = {}
  for first = chunk, math.min(#ids, chunk + 2000 * width - 1), width do
    table.insert(pairs_, ARGV[5])
    table.insert(pairs_, ids:sub(first, first + width - 1))
  end
  redis.call('ZADD', KEYS[3], 'NX', unpack(pairs_))
end
redis.call('SADD', KEYS[1], ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[3], ARGV[3])
return 1
