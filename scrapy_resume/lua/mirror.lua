-- Mirror where the shards of one worker stand, as the database has it.
--
-- KEYS[1] mirror  hash  by shard id: token, version and position; by "of": whose it is
--
-- ARGV: ms of idleness after which it expires, whose it is, then of each shard its id, token,
--       version and position ("" for a shard that is held no more)
-- Nothing older than what is there is written, and nothing newer is removed. What another one
-- wrote is thrown away.
-- Returns how many shards it holds now.

local mirror = KEYS[1]
if redis.call('HGET', mirror, 'of') ~= ARGV[2] then
  redis.call('UNLINK', mirror)
  redis.call('HSET', mirror, 'of', ARGV[2])
end
for i = 3, #ARGV, 4 do
  local id, token, version = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  local known = redis.call('HGET', mirror, id) or ''
  local itstoken, itsversion = known:match('^(%d+):(%d+):')
  itstoken, itsversion = tonumber(itstoken or -1), tonumber(itsversion or -1)
  if ARGV[i + 3] == '' then
    if itstoken <= token then redis.call('HDEL', mirror, id) end
  elseif itstoken < token or (itstoken == token and itsversion <= version) then
    redis.call('HSET', mirror, id, ARGV[i + 1] .. ':' .. ARGV[i + 2] .. ':' .. ARGV[i + 3])
  end
end
redis.call('PEXPIRE', mirror, ARGV[1])
local shards = redis.call('HLEN', mirror) - 1
if shards == 0 then redis.call('UNLINK', mirror) end
return shards
