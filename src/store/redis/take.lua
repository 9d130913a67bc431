#!lua
-- Takes a token from a bucket, if there is one, by the generic cell rate algorithm. Redis stores the moment at which the
-- bucket will be full again.
--
-- KEYS: the bucket, the caller's recent operations, those of them that it repeated. ARGV: R if this may
-- have been done before; the operation; how long it is remembered; the microseconds that one token takes to come back;
-- the microseconds that an empty bucket takes to fill. Answers whether a token was taken, and in how many microseconds
-- the bucket will be full.

local operation, remembered, every, most = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local debt = math.max(tonumber(redis.call('GET', KEYS[1]) or 0) - now, 0)

local function remember(list)
  if redis.call('APPEND', list, operation) == #operation then
    redis.call('PEXPIRE', list, remembered)
  end
end

local function remembers(list)
  local known = redis.call('GET', list)
  return known and string.find(known, operation, 1, true)
end

local repeated = string.find(ARGV[1], 'R')
-- Either this is a repetition of an operation that took its token, or a first attempt that arrives after its repetition.
if remembers(repeated and KEYS[2] or KEYS[3]) then return {1, string.format('%.0f', debt)} end
if repeated then remember(KEYS[3]) end
local after = debt + every
if after > most then return {0, string.format('%.0f', debt)} end
local left = string.format('%.0f', math.max(math.ceil(after / 1000), 1))
redis.call('SET', KEYS[1], string.format('%.0f', now + after), 'PX', left)
remember(KEYS[2])
return {1, string.format('%.0f', after)}
