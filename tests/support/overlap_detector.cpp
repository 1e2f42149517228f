#include "support/overlap_detector.hpp"

#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace redlatch::test {
namespace {

long long as_number(const RawReply& reply) {
    if (reply.is_error()) {
        throw std::runtime_error{"overlap detector: " + reply.text};
    }
    if (reply.type == RawReply::Type::integer) {
        return reply.integer;
    }
    return reply.is_nil() ? 0 : std::stoll(reply.text);
}

}  // namespace

OverlapDetector::OverlapDetector(std::string_view address, const std::string& name,
                                 std::chrono::microseconds longest_pause)
    : OverlapDetector{RawRedis{address}, name, longest_pause} {}

OverlapDetector::OverlapDetector(RawRedis redis, const std::string& name,
                                 std::chrono::microseconds longest_pause)
    : redis_{std::move(redis)},
      inside_key_{"overlap:" + name + ":inside"},
      overlaps_key_{"overlap:" + name + ":overlaps"},
      sections_key_{"overlap:" + name + ":sections"},
      counter_key_{"overlap:" + name + ":counter"},
      random_{std::random_device{}()},
      longest_pause_{longest_pause} {}

bool OverlapDetector::enter() {
    const std::vector<RawReply> replies =
        redis_.pipeline({{"INCR", inside_key_}, {"GET", counter_key_}});
    const bool alone = as_number(replies[0]) == 1;
    seen_counter_ = as_number(replies[1]);
    if (!alone) {
        redis_.command({"INCR", overlaps_key_});
    }
    if (longest_pause_.count() > 0) {
        const auto pause = random_() % static_cast<unsigned long>(longest_pause_.count());
        std::this_thread::sleep_for(std::chrono::microseconds{pause});
    }
    return alone;
}

void OverlapDetector::leave() {
    const std::vector<RawReply> replies =
        redis_.pipeline({{"SET", counter_key_, std::to_string(seen_counter_ + 1)},
                         {"INCR", sections_key_},
                         {"DECR", inside_key_}});
    as_number(replies[2]);
}

long long OverlapDetector::overlaps() {
    return number(overlaps_key_);
}

long long OverlapDetector::sections() {
    return number(sections_key_);
}

long long OverlapDetector::counter() {
    return number(counter_key_);
}

long long OverlapDetector::inside() {
    return number(inside_key_);
}

void OverlapDetector::forget_inside() {
    redis_.del(inside_key_);
}

long long OverlapDetector::number(const std::string& key) {
    return as_number(redis_.command({"GET", key}));
}

}  // namespace redlatch::test
