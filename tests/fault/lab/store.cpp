#include "store.hpp"

#include <sstream>
#include <stdexcept>

namespace redlatch::test::fault {
namespace {

constexpr const char* write_script = R"lua(
local value, highest, log = KEYS[1], KEYS[2], KEYS[3]
local read, fence, not_after, facts = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local time = redis.call('TIME')
local verdict = 'accepted'
if fence > 0 and fence < tonumber(redis.call('GET', highest) or 0) then
  verdict = 'stale'
elseif not_after > 0 and time[1] * 1000000 + time[2] > not_after then
  verdict = 'late'
else
  redis.call('SET', value, read + 1)
  if fence > 0 then
    redis.call('SET', highest, ARGV[2])
  end
end
redis.call('RPUSH', log, verdict .. ' ' .. ARGV[2] .. ' ' .. ARGV[1] .. ' ' .. facts)
return verdict
)lua";

std::string text_of(const RawReply& reply) {
    if (reply.is_error()) throw std::runtime_error{"the store: " + reply.text};
    return reply.text;
}

}  // namespace

long long Store::read(const std::string& lock) {
    return std::stoll(redis_.get("value:" + lock).value_or("0"));
}

std::string Store::write(const Write& write) {
    std::ostringstream facts;
    facts << write.process << ' ' << write.hold << ' ' << write.at.count() << ' ' << write.lock;
    return text_of(
        redis_.command({"EVAL", write_script, "3", "value:" + write.lock, "highest:" + write.lock,
                        "log", std::to_string(write.read), std::to_string(write.fence),
                        std::to_string(write.not_after.count()), facts.str()}));
}

History Store::log() {
    History history;
    for (const RawReply& entry : redis_.command({"LRANGE", "log", "0", "-1"}).elements) {
        std::istringstream facts{entry.text};
        Event event;
        event.op = Op::write;
        event.stage = Stage::note;
        long long read = 0;
        Time::rep at = 0;
        facts >> event.outcome >> event.fence >> read >> event.process >> event.hold >> at >>
            event.lock;
        event.at = Time{at};
        const auto order = static_cast<long long>(history.size());
        event.counts = {{"order", order}, {"read", read}, {"wrote", read + 1}};
        history.push_back(event);
    }
    return history;
}

std::chrono::microseconds store_time() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::system_clock::now().time_since_epoch());
}

}  // namespace redlatch::test::fault
