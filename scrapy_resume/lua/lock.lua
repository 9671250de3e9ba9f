-- Take a lock, or keep it if the asker has it already: a lost reply may be asked for again.
--
-- KEYS[1] lock  string  who has it
--
-- ARGV: asker, ms until it ends by itself
-- Returns 1 if the asker has it now.

local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
