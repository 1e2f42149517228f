#include "event.hpp"

#include <time.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace redlatch::test::fault {

NLOHMANN_JSON_SERIALIZE_ENUM(Op, {
                                     {Op::acquire, "acquire"},
                                     {Op::nest, "nest"},
                                     {Op::extend, "extend"},
                                     {Op::release, "release"},
                                     {Op::probe, "probe"},
                                     {Op::lost, "lost"},
                                     {Op::write, "write"},
                                     {Op::close, "close"},
                                     {Op::fault, "fault"},
                                     {Op::snapshot, "snapshot"},
                                 })

NLOHMANN_JSON_SERIALIZE_ENUM(Stage, {
                                        {Stage::invoke, "invoke"},
                                        {Stage::ok, "ok"},
                                        {Stage::fail, "fail"},
                                        {Stage::note, "note"},
                                    })

namespace {

using Json = nlohmann::ordered_json;

/// Writes a field that says something.
template <class T>
void put(Json& json, const char* name, const T& value) {
    if (value != T{}) json[name] = value;
}
void put(Json& json, const char* name, const std::optional<Time>& value) {
    if (value) json[name] = value->count();
}
void put(Json& json, const char* name, const std::optional<bool>& value) {
    if (value) json[name] = *value;
}

template <class T>
void get(const Json& json, const char* name, T& value) {
    if (json.contains(name)) json.at(name).get_to(value);
}
void get(const Json& json, const char* name, std::optional<Time>& value) {
    if (json.contains(name)) value = Time{json.at(name).get<std::int64_t>()};
}
void get(const Json& json, const char* name, std::optional<bool>& value) {
    if (json.contains(name)) value = json.at(name).get<bool>();
}

}  // namespace

Time now() {
    timespec time{};
    ::clock_gettime(CLOCK_BOOTTIME, &time);
    return std::chrono::seconds{time.tv_sec} + std::chrono::nanoseconds{time.tv_nsec};
}

long long count_of(const Event& event, const std::string& name) {
    const auto found = event.counts.find(name);
    return found == event.counts.end() ? 0 : found->second;
}

std::string to_line(const Event& event) {
    Json json;
    json["at"] = event.at.count();
    json["op"] = event.op;
    json["stage"] = event.stage;
    put(json, "process", event.process);
    put(json, "thread", event.thread);
    put(json, "call", event.call);
    put(json, "lock", event.lock);
    put(json, "policy", event.policy);
    put(json, "hold", event.hold);
    put(json, "token", event.token);
    put(json, "fence", event.fence);
    put(json, "limit", event.limit);
    put(json, "held", event.held);
    put(json, "valid_until", event.valid_until);
    put(json, "valid_at_most", event.valid_at_most);
    put(json, "outcome", event.outcome);
    put(json, "detail", event.detail);
    put(json, "counts", event.counts);
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Event from_line(std::string_view line) try {
    const Json json = Json::parse(line);
    Event event;
    event.at = Time{json.at("at").get<std::int64_t>()};
    event.op = json.at("op").get<Op>();
    event.stage = json.at("stage").get<Stage>();
    get(json, "process", event.process);
    get(json, "thread", event.thread);
    get(json, "call", event.call);
    get(json, "lock", event.lock);
    get(json, "policy", event.policy);
    get(json, "hold", event.hold);
    get(json, "token", event.token);
    get(json, "fence", event.fence);
    get(json, "limit", event.limit);
    get(json, "held", event.held);
    get(json, "valid_until", event.valid_until);
    get(json, "valid_at_most", event.valid_at_most);
    get(json, "outcome", event.outcome);
    get(json, "detail", event.detail);
    get(json, "counts", event.counts);
    return event;
} catch (const Json::exception& error) {
    throw std::runtime_error{"not an event: " + std::string{error.what()}};
}

}  // namespace redlatch::test::fault
