-- Hand out waiting shards, the most urgent first, sites in turn.
--
-- KEYS[1] queues   set     "<lane>:<site>" of every queue that may hold something
-- KEYS[2] out      zset    "<priority>:<id>:<lane>:<site>" handed out, scored by when it comes back
-- KEYS[3] answer   string  the asker's last request and what it got
-- <queue prefix><lane>:<site>  zset  ids (16 digits) scored by priority
--
-- ARGV: request, how many, ms until they come back, ms of idleness after which all expires,
--       queue prefix, JSON of {lanes, ranges, sites, look}
-- Returns entries as in KEYS[2]. The same request again gets the same answer, since a reply
-- may have been lost. What was handed out and not settled in time comes back first.

local request, want = ARGV[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local answer = redis.call('GET', KEYS[3])
if answer then
  local known = cmsgpack.unpack(answer)
  if known[1] == request then return known[2] end
end

for _, entry in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, 1000)) do
  local priority, id, queue = entry:match('^(-?%d+):(%d+):(.*)$')
  redis.call('ZREM', KEYS[2], entry)
  redis.call('ZADD', ARGV[5] .. queue, 'NX', priority, id)
  redis.call('SADD', KEYS[1], queue)
  redis.call('PEXPIRE', ARGV[5] .. queue, ARGV[4])
end

local wish = cjson.decode(ARGV[6])
local names
if #wish.sites > 0 then
  names = {}
  for _, lane in ipairs(wish.lanes) do
    for _, site in ipairs(wish.sites) do table.insert(names, lane .. ':' .. site) end
  end
else
  -- In random order, so that no site starves another. With more queues than this a look at
  -- each would hold Redis up; the database sees to it that nothing more urgent is left behind.
  names = redis.call('SRANDMEMBER', KEYS[1], wish.look)
end
local by_lane = {}
for _, lane in ipairs(wish.lanes) do by_lane[tostring(lane)] = {} end
for _, queue in ipairs(names) do
  local lane = queue:match('^%d+')
  if by_lane[lane] then table.insert(by_lane[lane], queue) end
end

-- The best priority of a queue that is at least *floor* and in one of the ranges.
local function head_of(queue, floor)
  local best
  for _, range in ipairs(wish.ranges) do
    local low = math.max(range[1], floor)
    local head = redis.call('ZRANGEBYSCORE', ARGV[5] .. queue, low, range[2],
                            'WITHSCORES', 'LIMIT', 0, 1)
    local priority = tonumber(head[2])
    if priority and (not best or priority < best) then best = priority end
  end
  return best
end

local taken = {}
local function take_from(queue, priority, limit)
  local key = ARGV[5] .. queue
  local ids = redis.call('ZRANGEBYSCORE', key, priority, priority, 'LIMIT', 0, limit)
  for _, id in ipairs(ids) do
    local entry = string.format('%d:%s:%s', priority, id, queue)
    redis.call('ZREM', key, id)
    redis.call('ZADD', KEYS[2], now + ARGV[3], entry)
    table.insert(taken, entry)
  end
end

for _, lane in ipairs(wish.lanes) do
  local queues, floor = by_lane[tostring(lane)], -math.huge
  while #taken < want do
    local urgent, best = {}, nil
    for _, queue in ipairs(queues) do
      local head = head_of(queue, floor)
      if head and (not best or head < best) then urgent, best = {queue}, head
      elseif head and head == best then table.insert(urgent, queue) end
    end
    if not best then break end
    local share = math.max(1, math.floor((want - #taken) / #urgent))
    for _, queue in ipairs(urgent) do
      if #taken < want then take_from(queue, best, math.min(share, want - #taken)) end
    end
    floor = best
  end
  for _, queue in ipairs(queues) do
    if redis.call('EXISTS', ARGV[5] .. queue) == 0 then redis.call('SREM', KEYS[1], queue) end
  end
end

if #taken > 0 then
  redis.call('SET', KEYS[3], cmsgpack.pack({request, taken}), 'PX', ARGV[3])
  redis.call('PEXPIRE', KEYS[2], ARGV[4])
end
return taken
