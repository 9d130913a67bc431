#!lua
-- Makes one commit in one partition, all or nothing: first it checks conditions on what Redis holds now, in order, then
-- it writes. The caller has worked out whatever depends on earlier writes of the same commit. So everything is decided
-- before the first write, and no write can fail. While a slot moves to another node, the server runs this only if all
-- keys are still here, and refuses commands on a key that has been removed: so keys are removed at the end.
--
-- KEYS: the list of the caller's recent operations, the list of those that it repeated, the index of documents, what
-- keeps the index from expiring, then the keys that the commit names.
-- ARGV: R if this may have been done before, C if a replica must confirm the answer; the operation; how long it is
-- remembered; the prefix of documents; the number of conditions, then each as kind, key, argument; the number of
-- writes, then each as kind, key, arguments; the channel to nudge, or nothing; the message for it.
-- Answers 0 when done, 2 when done before, or the number of the first condition that does not hold and
-- what Redis holds instead.

local repeated, confirmed = string.find(ARGV[1], 'R'), string.find(ARGV[1], 'C')
local operation, remembered, prefix = ARGV[2], ARGV[3], ARGV[4]
local operations, repeats, index, kept = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local function remember(list)
  if redis.call('APPEND', list, operation) == #operation then
    redis.call('PEXPIRE', list, remembered)
  end
end

local function remembers(list)
  local known = redis.call('GET', list)
  return known and string.find(known, operation, 1, true)
end

if repeated then
  if remembers(operations) then
    -- A write, so that the caller's WAIT covers the writes of the first attempt.
    redis.call('PEXPIRE', operations, remembered)
    return 2
  end
  remember(repeats)
elseif remembers(repeats) then
  -- This first attempt arrives after its own repetition.
  return 2
end

-- A document is its version, a space and its value; no version is longer than this.
local function version(key)
  return string.match(redis.call('GETRANGE', key, 0, 20), '^%d+') or '0'
end

-- Whether one whole number is above another, both in decimal: Lua's numbers would round them.
local function above(one, other)
  local one_negative, other_negative = string.byte(one) == 45, string.byte(other) == 45
  if one_negative ~= other_negative then return other_negative end
  if one_negative then one, other = string.sub(other, 2), string.sub(one, 2) end
  if #one ~= #other then return #one > #other end
  return one > other
end

local at = 5
for number = 1, tonumber(ARGV[at]) do
  local kind, key, expected = ARGV[at + 1], KEYS[tonumber(ARGV[at + 2])], ARGV[at + 3]
  local actual, holds
  if kind == 'V' then
    actual = version(key)
    holds = actual == expected
  elseif kind == 'F' then
    actual = redis.call('GETRANGE', key, 0, #expected - 1)
    holds = actual == expected
  elseif kind == 'L' then
    actual = tostring(redis.call('LLEN', key))
    holds = actual == expected
  else
    actual = redis.call('GET', key) or '0'
    holds = not above(actual, expected)
  end
  if not holds then
    -- WAIT covers only what this connection wrote. A refusal may have seen another caller's last write, which its own
    -- caller takes for certain; so it writes too, and that write is confirmed together with the other.
    if confirmed and not repeated then remember(repeats) end
    return {number, actual}
  end
  at = at + 3
end

-- What is removed at the end: documents with their names, anything else with false.
local gone = {}

-- Forgets a few entries of the index whose documents expired, so that it is at most twice as long as it
-- should be.
local function thin()
  for _, name in ipairs(redis.call('ZRANDMEMBER', index, 2)) do
    if redis.pcall('EXISTS', prefix .. name) == 0 then redis.call('ZREM', index, name) end
  end
end

-- While a document is permanent, so is the index. Then the set `kept` has the names of the permanent documents, and
-- under the empty name the time at which the last of the others expires.
local function put(key, name, ttl, value)
  local before = gone[key] and '0' or version(key)
  gone[key] = nil
  value = string.format('%.0f ', tonumber(before) + 1) .. value
  if ttl == '' then
    redis.call('SET', key, value)
  else
    redis.call('SET', key, value, 'PX', ttl)
  end
  local length = 0
  if before == '0' and redis.call('ZADD', index, 0, name) == 1 then
    length = redis.call('ZCARD', index)
  end
  -- The index outlives its documents and nothing else.
  if ttl == '' then
    local ends = redis.call('PEXPIRETIME', index)
    if ends > 0 then redis.call('ZADD', kept, ends, '') end
    redis.call('PERSIST', index)
    redis.call('ZADD', kept, 0, '=' .. name)
  elseif redis.call('EXISTS', kept) == 1 then
    redis.call('ZADD', kept, 'GT', redis.call('PEXPIRETIME', key), '')
    redis.call('ZREM', kept, '=' .. name)
  elseif length == 1 then
    redis.call('PEXPIRE', index, ttl)
  else
    redis.call('PEXPIRE', index, ttl, 'GT')
  end
  if length > 16 then thin() end
end

-- Makes the index expire with its documents once none of them is permanent any more. What keeps it may be gone.
local function settle()
  if redis.pcall('ZCARD', kept) ~= 1 then return end
  local ends = redis.call('ZSCORE', kept, '')
  if not ends then return end
  -- What was to expire last may have been replaced since by what expires earlier; that is worth looking for in a short
  -- index only.
  local names = redis.pcall('ZRANGE', index, 0, 16)
  if #names <= 16 then
    local last = 1
    for _, name in ipairs(names) do
      local at = redis.pcall('PEXPIRETIME', prefix .. name)
      last = math.max(last, type(at) == 'number' and at or ends)
    end
    ends = last
  end
  redis.pcall('PEXPIREAT', index, string.format('%.0f', ends))
  redis.call('UNLINK', kept)
end

local function append(key, first, last)
  local before = gone[key] == false and redis.call('LLEN', key)
  gone[key] = nil
  -- Arguments of a call lie on Lua's stack, which is not endless.
  for from = first, last, 1000 do
    redis.call('RPUSH', key, unpack(ARGV, from, math.min(from + 999, last)))
  end
  if before then
    redis.call('LTRIM', key, before, -1)
    redis.call('PERSIST', key)
  end
end

local function add(key, delta)
  if gone[key] == false then
    gone[key] = nil
    redis.call('SET', key, delta)
    return
  end
  local sum = redis.pcall('INCRBY', key, delta)
  if type(sum) == 'table' then
    -- Counters end where numbers do.
    local bound = string.byte(delta) == 45 and '-9223372036854775808' or '9223372036854775807'
    redis.call('SET', key, bound, 'KEEPTTL')
  elseif sum == 0 then
    gone[key] = false
  end
end

local function expire(key, ttl)
  if gone[key] == false then return end
  if ttl == '' then
    redis.call('PERSIST', key)
  else
    redis.call('PEXPIRE', key, ttl)
  end
end

-- Releases a lease if it is still this holder's, as release.lua does.
local function release(key, fence, released, ttl)
  if redis.call('GETRANGE', key, 0, #fence - 1) == fence then redis.call('SET', key, released, 'PX', ttl) end
end

local function remove()
  for key, name in pairs(gone) do
    redis.call('UNLINK', key)
    -- Without its last name the index is gone.
    if name then
      redis.pcall('ZREM', index, name)
      redis.pcall('ZREM', kept, '=' .. name)
    end
  end
end

at = at + 1
local writes = tonumber(ARGV[at])
if writes > 0 then remember(operations) end
at = at + 1
local fewer = false
for _ = 1, writes do
  local kind, key = ARGV[at], KEYS[tonumber(ARGV[at + 1])]
  if kind == 'P' then
    put(key, ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
    fewer = fewer or ARGV[at + 3] ~= ''
    at = at + 5
  elseif kind == 'D' then
    gone[key] = ARGV[at + 2]
    fewer = true
    at = at + 3
  elseif kind == 'A' then
    local count = tonumber(ARGV[at + 2])
    append(key, at + 3, at + 2 + count)
    at = at + 3 + count
  elseif kind == 'I' then
    add(key, ARGV[at + 2])
    at = at + 3
  elseif kind == 'E' then
    expire(key, ARGV[at + 2])
    at = at + 3
  elseif kind == 'R' then
    release(key, ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
    at = at + 5
  else
    gone[key] = false
    at = at + 2
  end
end
remove()

-- There may be fewer permanent documents than before.
if fewer then settle() end

-- A nudge is a hint: if it fails, the commit has happened nevertheless.
if ARGV[at] ~= '' then redis.pcall('SPUBLISH', ARGV[at], ARGV[at + 1]) end
return 0
