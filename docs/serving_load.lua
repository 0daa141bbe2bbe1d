-- For wrk: POST /complete with the bodies in bodies.jsonl, one a line, in turn.
local bodies, index = {}, 0
for line in io.lines("bodies.jsonl") do bodies[#bodies + 1] = line end

request = function()
  index = index % #bodies + 1
  return wrk.format("POST", "/complete", {["Content-Type"] = "application/json"}, bodies[index])
end
