#include "injector.hpp"

#include "laboratory.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <stdexcept>
#include <thread>

namespace redlatch::test::fault {
namespace {

bool contains(const std::vector<std::string>& names, const char* name) {
    return std::ranges::find(names, name) != names.end();
}

}  // namespace

Injector::Injector(Laboratory& laboratory, std::string log, const Setup& setup)
    : laboratory_{&laboratory}, recorder_{log}, setup_{setup}, dice_{setup.seed} {
    for (const Fault& fault : all_faults()) {
        const bool wanted = (setup.only.empty() || contains(setup.only, fault.name)) &&
                            !contains(setup.except, fault.name);
        const bool allowed =
            fault.of_class == FaultClass::inside || setup.faults == FaultClass::outside;
        if (wanted && allowed) choice_.push_back(&fault);
    }
    if (choice_.empty()) throw std::runtime_error{"no such fault"};
}

void Injector::storm(std::chrono::milliseconds duration) {
    const Time end = now() + duration;
    Time next = now();
    while (now() < end) {
        end_due(now());
        if (now() >= next) {
            begin_one();
            next = now() + dice_.in(setup_.pause);
        }
        const Time moment = std::min({next, end, next_end()});
        std::this_thread::sleep_for(std::max(moment - now(), Time{0}));
    }
    end_due(Time::max());
}

void Injector::begin_one() {
    // A fault is drawn by its victim first: there are more kinds for the one than for the other.
    constexpr std::array victims{Victim::link,   Victim::link,   Victim::link,
                                 Victim::server, Victim::server, Victim::client};
    const Victim victim = victims.at(dice_.below(victims.size()));
    std::vector<const Fault*> fitting;
    std::ranges::copy_if(choice_, std::back_inserter(fitting),
                         [victim](const Fault* fault) { return fault->victim == victim; });
    const std::size_t station = dice_.below(laboratory_->stations());
    const std::size_t server = dice_.below(laboratory_->masters());
    const Place place{victim, victim == Victim::server ? 0 : station,
                      victim == Victim::client ? 0 : server};
    if (fitting.empty() || active_.contains(place)) return;
    begin_at(*fitting[dice_.below(fitting.size())], place);
}

void Injector::begin_at(const Fault& fault, const Place& place) {
    Event event;
    event.op = Op::fault;
    event.outcome = fault.name;
    const std::chrono::milliseconds duration = dice_.in(fault.duration);
    event.counts["milliseconds"] = duration.count();
    if (place.victim == Victim::client) {
        event.counts["target"] = laboratory_->station(place.station).client->pid();
    } else {
        event.counts["server"] = static_cast<long long>(place.server);
    }
    if (place.victim == Victim::link) event.counts["link"] = static_cast<long long>(place.station);
    event.call = recorder_.next_number();
    event.stage = Stage::invoke;
    event.at = now();
    recorder_.write(event);
    ++made_[fault.name];
    auto end = fault.begin(*laboratory_, {place.station, place.server, duration}, dice_);
    if (end) {
        active_[place] = {event, event.at + duration, std::move(end)};
    } else {
        write_end(event);
    }
}

void Injector::write_end(Event event) {
    event.stage = Stage::ok;
    event.at = now();
    recorder_.write(event);
}

void Injector::end_due(Time moment) {
    for (auto entry = active_.begin(); entry != active_.end();) {
        Active& active = entry->second;
        if (active.ends_at > moment) {
            ++entry;
            continue;
        }
        active.end();
        write_end(std::move(active.begun));
        entry = active_.erase(entry);
    }
}

Time Injector::next_end() const {
    Time earliest = Time::max();
    for (const auto& [place, active] : active_) earliest = std::min(earliest, active.ends_at);
    return earliest;
}

}  // namespace redlatch::test::fault
