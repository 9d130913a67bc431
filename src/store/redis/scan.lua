#!lua flags=allow-oom
-- Reads documents in the order of their keys, and removes keys from the index whose documents expired.
--
-- KEYS: the index of documents. It names the documents' own Redis keys, which lie in the same slot.
-- ARGV: unused; the prefix of documents; the bounds of the range, the first one first; REV or nothing;
-- the most documents to return. Answers a list in which each key is followed by its document.

local prefix, first, last, limit = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[6])
local direction = {'BYLEX'}
if ARGV[5] ~= '' then direction[2] = ARGV[5] end
local found = {}
local size = math.min(limit, 256)
while #found < 2 * limit do
  local range = {'ZRANGE', KEYS[1], first, last, unpack(direction)}
  range[#range + 1], range[#range + 2], range[#range + 3] = 'LIMIT', 0, size
  local names = redis.call(unpack(range))
  if #names == 0 then break end
  local keys = {}
  for number, name in ipairs(names) do keys[number] = prefix .. name end
  local documents = redis.call('MGET', unpack(keys))
  for number, name in ipairs(names) do
    if not documents[number] then
      redis.call('ZREM', KEYS[1], name)
    elseif #found < 2 * limit then
      found[#found + 1] = name
      found[#found + 1] = documents[number]
    end
  end
  if #names < size then break end
  first = '(' .. names[#names]
end
return found
