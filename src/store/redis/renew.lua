#!lua flags=allow-oom
-- Makes a lease end at a time from now, even if it has expired, unless another holder acquired it or it was released.
--
-- KEYS: the lease, a log. ARGV: unused; token and nonce, each followed by a colon; how long the lease
-- lasts; how long it is kept after that. Answers the log's length, or nothing if the lease is no longer this holder's.

local fence, ttl = ARGV[2], ARGV[3]
if redis.call('GETRANGE', KEYS[1], 0, #fence - 1) ~= fence then return false end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lease = string.format('%s%.0f:', fence, now + ttl)
redis.call('SET', KEYS[1], lease, 'PX', string.format('%.0f', ttl + ARGV[4]))
return redis.call('LLEN', KEYS[2])
