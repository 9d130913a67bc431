#!lua flags=no-writes
-- Reads a part of a log, at most as many bytes as other requests can wait for.
--
-- KEYS: the log. ARGV: unused; how many entries to skip; the most entries to answer; after how many bytes of entries to
-- stop. Answers the log's length, and then entries: at least one, if there is any.
--
-- The length of an entry is unknown before it is read. So a few are read at a time: as many as fit if none is longer
-- than the longest so far.

local log, first, limit, most = KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local page = {redis.call('LLEN', log)}
local beyond = math.min(first + limit, page[1])
local bytes, longest, count = 0, 1, 1
while first < beyond and bytes < most do
  for _, entry in ipairs(redis.call('LRANGE', log, first, first + count - 1)) do
    if bytes >= most then break end
    page[#page + 1] = entry
    bytes, longest = bytes + #entry, math.max(longest, #entry)
  end
  first = first + count
  local room = math.max(math.floor((most - bytes) / longest), 1)
  count = math.min(2 * count, 8, room, beyond - first)
end
return page
