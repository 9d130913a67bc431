#!lua flags=no-writes
-- Reads a part of a log, no more at once than others can wait for.
--
-- KEYS: the log. ARGV: unused; how many entries to pass over; the most entries to answer; after how many
-- bytes of entries to stop. Answers the log's length, and then entries: at least one, if there is any.
--
-- Nothing tells how long an entry is before it is read, so few are read at a time, and as many as will fit
-- if none is longer than those before.

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
