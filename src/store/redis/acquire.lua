#!lua
-- Acquires a lease that is free or has expired.
--
-- KEYS: the lease. ARGV: unused; the nonce; how long the lease lasts; how long it is kept after that, both in
-- milliseconds. Answers the token and the time in microseconds, both as text, or nothing while another holder has the
-- lease.
--
-- A lease is its token, its nonce and its end, each followed by a colon. The token is the time. If the clock stands
-- behind the last token, it is the number after that token. Counting alone would grant a token twice after a failover
-- that lost the last grant.

local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)
local nonce, ttl = ARGV[2], ARGV[3]
local token, holder, ends = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+):(%d*):(%d+):$')
local mine = holder == nonce
if not mine then
  if holder and holder ~= '' and tonumber(ends) > now then return false end
  token = string.format('%.0f', math.max(tonumber(token or 0) + 1, micros))
end
local lease = string.format('%s:%s:%.0f:', token, nonce, now + ttl)
redis.call('SET', KEYS[1], lease, 'PX', string.format('%.0f', ttl + ARGV[4]))
return {token, string.format('%.0f', micros)}
