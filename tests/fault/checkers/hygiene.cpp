#include "hygiene.hpp"

#include <map>
#include <string>
#include <utility>

namespace redlatch::test::fault {
namespace {

using Counts = std::map<std::string, long long>;

class Hygiene {
public:
    explicit Hygiene(const History& history) {
        for (const Event& event : history) {
            if (event.op != Op::snapshot) continue;
            at_ = event.at;
            if (event.outcome == "server") {
                server_.push_back(event.counts);
            } else {
                processes_[event.process][event.outcome] = event.counts;
            }
        }
    }

    Violations check(long long growth_kib) {
        if (server_.size() >= 2) check_server(server_.front(), server_.back());
        for (auto& [process, snapshots] : processes_) {
            const std::string who = "process " + std::to_string(process);
            if (snapshots.contains("before") && snapshots.contains("after")) {
                check_same(who, "descriptors", snapshots["before"], snapshots["after"]);
                check_same(who, "threads", snapshots["before"], snapshots["after"]);
            }
            if (!snapshots.contains("warm") || !snapshots.contains("end")) continue;
            const long long growth =
                snapshots["end"]["memory_kib"] - snapshots["warm"]["memory_kib"];
            if (growth > growth_kib) {
                add(who + " has grown by " + std::to_string(growth) + " KiB");
            }
        }
        return std::move(found_);
    }

private:
    void check_server(Counts& before, Counts& after) {
        if (after["keys"] > 0) add(std::to_string(after["keys"]) + " keys are left");
        if (after["channels"] > 0) add(std::to_string(after["channels"]) + " channels are left");
        if (after["clients"] > before["clients"]) {
            add(std::to_string(after["clients"] - before["clients"]) + " connections are left");
        }
    }

    void check_same(const std::string& who, const char* what, Counts& before, Counts& after) {
        if (before[what] == after[what]) return;
        add(who + " had " + std::to_string(before[what]) + " " + what + " before and has " +
            std::to_string(after[what]) + " after" + new_threads(before, after));
    }

    /// By their names.
    static std::string new_threads(Counts& before, const Counts& after) {
        std::string text;
        for (const auto& [what, count] : after) {
            if (!what.starts_with("thread '") || count <= before[what]) continue;
            text +=
                (text.empty() ? ": " : ", ") + std::to_string(count - before[what]) + " " + what;
        }
        return text;
    }

    void add(std::string text) { found_.push_back({"hygiene", std::move(text), at_}); }

    std::vector<Counts> server_;
    std::map<int, std::map<std::string, Counts>> processes_;
    Time at_{};
    Violations found_;
};

}  // namespace

Violations check_hygiene(const History& history, long long growth_kib) {
    return Hygiene{history}.check(growth_kib);
}

}  // namespace redlatch::test::fault
