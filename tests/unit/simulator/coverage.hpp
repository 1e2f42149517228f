#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace redlatch::test::simulator {

/// Which transitions of the machines were taken, and how often: an event, and the action that it led to.
class Coverage {
public:
    static Coverage& get() {
        static Coverage coverage;
        return coverage;
    }

    /// Counts of one machine. Its events are literals: one address is one event.
    class Machine {
    public:
        Machine(std::string name, std::vector<std::string> actions)
            : name_(std::move(name)), actions_(std::move(actions)) {
            get().machines_.push_back(this);
        }
        Machine(const Machine&) = delete;
        Machine& operator=(const Machine&) = delete;

        void took(const char* event, std::size_t action) {
            for (Row& row : rows_) {
                if (row.event == event) return static_cast<void>(++row.counts[action]);
            }
            rows_.push_back({event, {}});
            ++rows_.back().counts[action];
        }

        const std::string& name() const { return name_; }

        std::map<std::string, std::uint64_t> transitions() const {
            std::map<std::string, std::uint64_t> all;
            for (const Row& row : rows_) {
                for (std::size_t i = 0; i < actions_.size(); ++i) {
                    if (row.counts[i] == 0) continue;
                    all[name_ + ": " + row.event + " -> " + actions_[i]] += row.counts[i];
                }
            }
            return all;
        }

    private:
        struct Row {
            const char* event;
            std::array<std::uint64_t, 24> counts;
        };

        std::string name_;
        std::vector<std::string> actions_;
        std::vector<Row> rows_{};
    };

    std::map<std::string, std::uint64_t> transitions() const {
        std::map<std::string, std::uint64_t> all;
        for (const Machine* machine : machines_) all.merge(machine->transitions());
        return all;
    }

private:
    std::vector<Machine*> machines_;
};

}  // namespace redlatch::test::simulator
