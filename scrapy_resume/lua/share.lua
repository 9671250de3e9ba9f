-- Tell the run's workers the fingerprints of committed pages' requests.
--
-- KEYS[1] seen  stream  one fingerprint an entry, the oldest out first
--
-- ARGV: how many to keep, ms of idleness after which it expires, fingerprints ...

for i = 3, #ARGV do
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'f', ARGV[i])
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return #ARGV - 2
