#!lua
-- Takes one from a bucket, if there is one: the generic cell rate algorithm. What is kept is the moment
-- at which the bucket will be whole again.
--
-- KEYS: the bucket, the caller's recent operations, those of them that it repeated. ARGV: R if this may
-- have been done before; the operation; how long it is remembered; microseconds that one takes to come back; microseconds that a
-- whole bucket is worth. Answers whether one was taken, and for how many microseconds the bucket will not
-- be whole.

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
-- One that was repeated took already, or it is the first attempt, which arrives after the repetition.
if remembers(repeated and KEYS[2] or KEYS[3]) then return {1, string.format('%.0f', debt)} end
if repeated then remember(KEYS[3]) end
local after = debt + every
if after > most then return {0, string.format('%.0f', debt)} end
local left = string.format('%.0f', math.max(math.ceil(after / 1000), 1))
redis.call('SET', KEYS[1], string.format('%.0f', now + after), 'PX', left)
remember(KEYS[2])
return {1, string.format('%.0f', after)}
