#pragma once

#include "plan.hpp"

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace redlatch::test::simulator {

/// Makes a plan that fails smaller, as long as it still fails: takes out processes, actors, acquisitions,
/// faults, and what is special about those that stay.
class Shrinker {
public:
    using Fails = std::function<bool(const Plan&)>;

    Shrinker(Plan plan, Fails fails) : plan_(std::move(plan)), fails_(std::move(fails)) {}

    Plan run() {
        do {
            smaller_ = false;
            drop_processes();
            drop_actors();
            drop_acquisitions();
            drop_operations();
            drop_faults();
            make_plain();
        } while (smaller_ && left_ > 0);
        return plan_;
    }

private:
    /// Whether the plan with that change fails too; then it is kept.
    template <class Change>
    bool try_with(Change change) {
        if (left_ == 0) return false;
        Plan changed = plan_;
        change(changed);
        --left_;
        if (!fails_(changed)) return false;
        plan_ = std::move(changed);
        return smaller_ = true;
    }

    template <class T>
    static void erase(std::vector<T>& from, std::size_t at) {
        from.erase(from.begin() + static_cast<std::ptrdiff_t>(at));
    }

    /// The numbers of processes are names: one that is not wanted does nothing instead.
    void drop_processes() {
        for (std::size_t i = plan_.processes.size(); i-- > 0;) {
            if (plan_.processes[i].actors.empty()) continue;
            try_with([i](Plan& plan) { plan.processes[i].actors.clear(); });
        }
    }

    void drop_actors() {
        for (std::size_t p = 0; p < plan_.processes.size(); ++p) {
            for (std::size_t i = plan_.processes[p].actors.size(); i-- > 0;) {
                try_with([p, i](Plan& plan) { erase(plan.processes[p].actors, i); });
            }
        }
    }

    template <class Visit>
    void for_each_actor(Visit visit) {
        for (std::size_t p = 0; p < plan_.processes.size(); ++p) {
            for (std::size_t a = 0; a < plan_.processes[p].actors.size(); ++a) visit(p, a);
        }
    }

    void drop_acquisitions() {
        for_each_actor([this](std::size_t p, std::size_t a) {
            for (std::size_t i = plan_.processes[p].actors[a].acquisitions.size(); i-- > 0;) {
                try_with([=](Plan& plan) { erase(plan.processes[p].actors[a].acquisitions, i); });
            }
        });
    }

    void drop_operations() {
        for (std::size_t p = 0; p < plan_.processes.size(); ++p) {
            for (std::size_t i = plan_.processes[p].operations.size(); i-- > 0;) {
                try_with([p, i](Plan& plan) { erase(plan.processes[p].operations, i); });
            }
        }
    }

    void drop_faults() {
        for (std::size_t i = plan_.troubles.size(); i-- > 0;) {
            try_with([i](Plan& plan) { erase(plan.troubles, i); });
        }
        if (plan_.has_nodes()) try_with([](Plan& plan) { have_one_node(plan); });
        if (plan_.replication_delay != 0ns) {
            try_with([](Plan& plan) { plan.replication_delay = 0ns; });
        }
        for (int Rates::*const rate : Rates::all) {
            if (plan_.rates.*rate != 0) try_with([rate](Plan& plan) { plan.rates.*rate = 0; });
        }
    }

    static void have_one_node(Plan& plan) {
        using Kind = Trouble::Kind;
        plan.nodes = {};
        std::erase_if(plan.troubles, [](const Trouble& trouble) {
            return trouble.kind == Kind::migration || trouble.kind == Kind::deafness;
        });
    }

    void make_plain() {
        for_each_actor([this](std::size_t p, std::size_t a) {
            if (plan_.processes[p].actors[a].asynchronous) {
                try_with([=](Plan& plan) { plan.processes[p].actors[a].asynchronous = false; });
            }
            for (std::size_t i = 0; i < plan_.processes[p].actors[a].acquisitions.size(); ++i) {
                make_plain(p, a, i);
            }
        });
    }

    void make_plain(std::size_t p, std::size_t a, std::size_t i) {
        const auto change = [&](auto apply) {
            Plan changed = plan_;
            if (!apply(changed.processes[p].actors[a].acquisitions[i])) return;
            try_with([=](Plan& plan) { apply(plan.processes[p].actors[a].acquisitions[i]); });
        };
        const auto unset = [&change](auto member) {
            change([member](AcquisitionPlan& plan) {
                const bool was_set = plan.*member != AcquisitionPlan{}.*member;
                plan.*member = AcquisitionPlan{}.*member;
                return was_set;
            });
        };
        change([](AcquisitionPlan& plan) { return !std::exchange(plan.nested, {}).empty(); });
        change([](AcquisitionPlan& plan) { return !std::exchange(plan.extensions, {}).empty(); });
        unset(&AcquisitionPlan::cancelled);
        unset(&AcquisitionPlan::downgraded);
        unset(&AcquisitionPlan::delivered);
        unset(&AcquisitionPlan::untaken);
        unset(&AcquisitionPlan::handed_to);
        unset(&AcquisitionPlan::set);
        unset(&AcquisitionPlan::fenced);
        unset(&AcquisitionPlan::watched);
        unset(&AcquisitionPlan::polls);
        unset(&AcquisitionPlan::owns_itself);
        unset(&AcquisitionPlan::sends_release);
        // A set is given back by what was taken, each by its own lock.
        change([](AcquisitionPlan& plan) {
            return plan.set.empty() && std::exchange(plan.is_held, false);
        });
        unset(&AcquisitionPlan::awaits_loss);
        unset(&AcquisitionPlan::hangs);
        unset(&AcquisitionPlan::max_hold);
        unset(&AcquisitionPlan::lock_delay);
        unset(&AcquisitionPlan::min_hold);
        unset(&AcquisitionPlan::replicas);
    }

    Plan plan_;
    Fails fails_;
    bool smaller_ = false;
    int left_ = 2000;  // runs
};

}  // namespace redlatch::test::simulator
