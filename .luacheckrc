-- What Lua scripts in Redis may use. The test static.lua checks each script with what it includes.
std = "lua51"
read_globals = {"redis", "KEYS", "ARGV"}
max_line_length = 100

-- For editors, which see a file without what it includes, or without what includes it.
files["include/redlatch/lua"] = {ignore = {"113", "211", "431", "542"}}
