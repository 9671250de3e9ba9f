-- Which of these instances are believed alive?
--
-- KEYS[1] beats  zset  instances scored by until when (ms) they are believed alive
--
-- ARGV: instances ...

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local alive = {}
for _, instance in ipairs(ARGV) do
  local until_ = tonumber(redis.call('ZSCORE', KEYS[1], instance) or 0)
  if until_ > now then table.insert(alive, instance) end
end
return alive
