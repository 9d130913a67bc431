#!lua flags=allow-oom
-- Releases a lease if it is still this holder's. Its token is kept for a while, so that the next token is greater even
-- if the clock is set back.
--
-- KEYS: the lease. ARGV: unused; the nonce; for how long the token is kept. Nonces are random, so the nonce alone
-- identifies the holder.

local token, holder = string.match(redis.call('GET', KEYS[1]) or '', '^(%d+):(%d*):')
if holder == ARGV[2] then redis.call('SET', KEYS[1], token .. '::0:', 'PX', ARGV[3]) end
return 0
