#pragma once

#include "actor.hpp"
#include "operating.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace redlatch::test::simulator {

/// One schedule, from its plan to its end.
class Simulation {
public:
    /// `models`: one for each master.
    Simulation(const Plan& plan, const std::vector<std::unique_ptr<ModelRedis>>& models,
               bool traced)
        : plan_(&plan), trace_(timeline_, traced), models_(&models) {
        for (int i = 0; i < plan.masters; ++i) {
            ModelRedis& model = *models[static_cast<std::size_t>(i)];
            servers_.push_back(std::make_unique<Server>(plan, timeline_, model, i));
            model.on_publish([this](std::string_view channel, std::string_view message) {
                publish(channel, message);
            });
        }
        if (plan.nodes.lingering != 0ns) {
            deposed_ = std::make_unique<Server>(plan, timeline_, *models[1], 1);
        }
        for (const ProcessPlan& process : plan.processes) add(process);
    }
    ~Simulation() {
        for (const auto& model : *models_) model->on_publish(nullptr);
    }
    Simulation(const Simulation&) = delete;
    Simulation& operator=(const Simulation&) = delete;

    /// Throws `Violation`.
    void run() {
        for (const auto& actor : actors_) actor.actor->start();
        for (const auto& client : clients_) plan_operations(*client);
        if (plan_->sets_permits()) restore_permits_at(plan_->faults_until + 100ms);
        for (const Trouble& trouble : plan_->troubles) {
            timeline_.at(trouble.when, [this, &trouble] { cause(trouble); });
        }
        while (!timeline_.empty()) step();
        check_finished();
        pass(checker_.tidy_at() - timeline_.now());
        checker_.check_end_of_use();
        pass(2min);
        checker_.check_quiet();
    }

    std::string trace() const { return trace_.text(); }
    std::uint64_t steps() const { return steps_; }

private:
    struct ActorOf {
        Client* client;
        std::unique_ptr<Actor> actor;
    };

    static constexpr std::uint64_t most_steps = 500'000;
    static constexpr Moment longest_restoring = 2min;

    void add(const ProcessPlan& plan) {
        const int number = static_cast<int>(clients_.size());
        clients_.push_back(std::make_unique<Client>(world_, number, plan));
        Client& client = *clients_.back();
        checker_.add(client.host());
        for (const auto& server : servers_) server->set_subscribed(number, Server::nobody);
        for (const ActorPlan& actor : plan.actors) {
            actors_.push_back({&client, std::make_unique<Actor>(client, actor, ++serials_)});
            end_of_time_ += hanging(actor.acquisitions);
        }
    }

    /// They may all have to wait for each other.
    static Moment hanging(const std::vector<AcquisitionPlan>& acquisitions) {
        Moment sum{0};
        for (const AcquisitionPlan& one : acquisitions) {
            if (one.hangs) sum += Actor::longest(one);
            sum += hanging(one.nested);
        }
        return sum;
    }

    void step() {
        if (timeline_.next() > end_of_time_ || steps_ > most_steps) checker_.fail("no end of it");
        auto task = timeline_.take();
        if (task == nullptr) return;
        ++steps_;
        checker_.check();
        (*task)();
        timeline_.give_back(std::move(task));
    }

    void pass(Moment time) {
        timeline_.at(timeline_.now() + time, [] {});
        timeline_.give_back(timeline_.take());
    }

    void check_finished() {
        for (const auto& [client, actor] : actors_) {
            if (!client->host().crashed() && !actor->finished()) {
                checker_.fail("somebody waits for ever");
            }
        }
        for (const auto& client : clients_) {
            if (client->host().crashed()) continue;
            if (!client->table().is_empty()) checker_.fail("an entry is left in the lock table");
            if (!client->closed() && client->renewal().machine().next_due() != TimePoint::max()) {
                checker_.fail("a hold is renewed for ever");
            }
        }
    }

    void publish(std::string_view channel, std::string_view message) {
        const int number = process_of(channel.substr(channel.rfind(':') + 1));
        Client& client = *clients_[static_cast<std::size_t>(number)];
        const bool elsewhere =
            plan_->has_sentinels() && client.listens_at() != servers_.front()->nodes().serving();
        if (!client.connected() || elsewhere) return trace_("  message to a dead connection");
        network_.publish(client.host(), client.noise(), std::string{message},
                         [&client](const std::string& text) { client.hear(text); });
    }

    // ---- Operators

    void plan_operations(Client& client) {
        for (const OperationPlan& operation : client.plan().operations) {
            client.host().later(operation.when,
                                [this, &client, &operation] { operate(client, operation); });
        }
    }

    void operate(Client& client, const OperationPlan& operation) {
        using Kind = OperationPlan::Kind;
        if (operation.kind == Kind::set_permits) {
            return set_permits(client, operation.lock, operation.permits);
        }
        if (operation.kind == Kind::force_anybody) return force(client, operation.lock, {});
        const auto owners = servers_.front()->owners(operation.lock);
        if (owners.empty()) return;
        const auto whose = client.noise().between(0, static_cast<std::int64_t>(owners.size()));
        client.host().soon(operation.hesitation,
                           [this, &client, lock = operation.lock,
                            owner = owners[static_cast<std::size_t>(whose)].token] {
                               force(client, lock, owner);
                           });
    }

    void force(Client& client, int lock, const std::string& owner) {
        if (client.closed()) return;
        forcings_.push_back(std::make_unique<Forcing>(client, lock, owner));
        forcings_.back()->start();
    }

    void set_permits(Client& client, int lock, std::int64_t permits) {
        if (client.closed()) return;
        settings_.push_back(std::make_unique<SettingPermits>(client, lock, permits));
        settings_.back()->start();
    }

    /// Those who want as many as there were wait for that; again and again, as a setting may fail, or another one be
    /// on its way.
    void restore_permits_at(Moment when) {
        timeline_.at(when, [this] {
            const bool all_finished = std::ranges::all_of(actors_, [](const ActorOf& one) {
                return one.actor->finished() || one.client->host().crashed();
            });
            const auto able = std::ranges::find_if(clients_, [](const auto& client) {
                return client->host().runs() && !client->closed();
            });
            if (all_finished || timeline_.now() > longest_restoring) return;
            for (int lock = 0; lock < plan_->locks && able != clients_.end(); ++lock) {
                if (checker_.is_narrowed(lock)) set_permits(**able, lock, plan_->permits);
            }
            restore_permits_at(timeline_.now() + 2s);
        });
    }

    // ---- Trouble

    void cause(const Trouble& trouble) {
        using Kind = Trouble::Kind;
        const auto whom = static_cast<std::size_t>(trouble.whom);
        switch (trouble.kind) {
            case Kind::outage: return clients_[whom]->lose_subscription(trouble.length);
            case Kind::crash: checker_.ended(timeline_.now()); return clients_[whom]->crash();
            case Kind::freeze: return freeze(*clients_[whom], trouble.length);
            case Kind::close:
                return clients_[whom]->host().later(timeline_.now(),
                                                    [this, whom] { clients_[whom]->close(); });
            case Kind::forgetting:
                if (plan_->has_several_masters()) return forget(*servers_[whom], trouble.length);
                return fail_over(trouble);
            case Kind::failover: return fail_over(trouble);
            case Kind::migration: return migrate(trouble);
            case Kind::deafness:
                trace_("Sentinel ", whom, " answers nobody for ", trouble.length / 1us, "us");
                return network_.deafen(trouble.whom, timeline_.now() + trouble.length);
            case Kind::loading: return load(*servers_[whom], trouble.length);
            case Kind::fullness: return fill(*servers_[whom], trouble.length);
            case Kind::silence: return silence(*servers_[whom], trouble.length);
            case Kind::restart: return restart(*servers_[whom], trouble.length);
            case Kind::promotion: return promote(trouble);
            case Kind::cut: return cut(trouble);
            case Kind::clock_step:
                trace_("master ", trouble.whom, " steps its clock by ", trouble.length / 1us, "us");
                servers_[whom]->step_clock(trouble.length / 1us * 1us);
                return checker_.clock_stepped(trouble.length);
        }
    }

    void freeze(Client& client, Moment length) {
        const Moment until = timeline_.now() + length;
        trace_("process ", client.number(), " freezes until ", until / 1us, "us");
        client.host().freeze_until(until);
        checker_.damaged(until);
    }

    void fail_over(const Trouble& trouble) {
        replace_master([this, &trouble] {
            const bool keeps_keys = trouble.kind == Trouble::Kind::failover;
            trace_("failover, ", keeps_keys ? "with" : "without", " keys, clock ",
                   trouble.length / 1us, "us");
            servers_.front()->fail_over(keeps_keys, trouble.length / 1us * 1us);
            checker_.failed_over(keeps_keys, trouble.length);
            if (keeps_keys && plan_->has_nodes() && trouble.length == 0ns) checker_.survived();
        });
    }

    void promote(const Trouble& trouble) {
        replace_master([this, &trouble] {
            const Moment ahead = trouble.length / 1us * 1us;
            trace_("replica ", trouble.whom, " takes over, clock ", ahead / 1us, "us");
            checker_.promotes(trouble.whom, ahead);
            servers_.front()->promote(static_cast<std::size_t>(trouble.whom),
                                      trouble.length / 1us * 1us);
            checker_.promoted(ahead);
            for (const auto& client : clients_) client->lose_subscription(1ms);
        });
    }

    /// Another server is the master, which `take_over` sees to: at the same address or, somewhat later, at another one.
    void replace_master(std::function<void()> take_over) {
        if (!plan_->has_nodes()) return take_over();
        Server& server = *servers_.front();
        if (server.nodes().is_down()) return;  // one at a time
        if (server.migration().phase() != Migration::Phase::none) server.end_migration();
        end_lingering();
        const NodesPlan& nodes = plan_->nodes;
        const bool lingers = nodes.lingering != 0ns;
        trace_("node ", server.nodes().serving(), lingers ? " is cut off" : " is gone");
        server.nodes().go_down(lingers);
        const Moment then = timeline_.now() + nodes.outage;
        checker_.damaged(then);
        if (!lingers) {
            for (const auto& client : clients_) client->lose_subscription(1ms);
        }
        timeline_.at(then, [this, lingers, take_over = std::move(take_over)] {
            if (lingers) deposed_->copy(*servers_.front());
            serve_elsewhere();
            take_over();
            if (!lingers) return;
            network_.deposed(deposed_.get());
            checker_.damaged(timeline_.now() + plan_->nodes.lingering);
            timeline_.at(timeline_.now() + plan_->nodes.lingering, [this] { end_lingering(); });
        });
    }

    void serve_elsewhere() {
        Server& server = *servers_.front();
        server.serve_at(server.nodes().next_after(0));
        const int node = server.nodes().serving();
        trace_("node ", node, " is the master");
        for (int i = 0; i < plan_->nodes.sentinels; ++i) tell_clients(i, node);
        const auto& lags = plan_->nodes.sentinel_lags;
        if (plan_->has_sentinels()) {
            checker_.damaged(
                timeline_.now() +
                *std::min_element(lags.begin(), lags.begin() + plan_->nodes.sentinels));
        }
    }

    /// A Sentinel that has heard of another master tells those that listen to it.
    void tell_clients(int sentinel, int node) {
        const Moment lag = plan_->nodes.sentinel_lags[static_cast<std::size_t>(sentinel)];
        for (const auto& client : clients_) {
            const int listens_to = client->number() % plan_->nodes.sentinels;
            if (listens_to != sentinel || network_.fault(client->noise(), 3)) continue;
            const auto [host, port] = address_of(node);
            client->host().soon(
                lag + network_.latency(client->noise()),
                [&client, message = "service old 1 " + host + ' ' + std::to_string(port)] {
                    client->hear_of_master(message);
                });
        }
    }

    /// The old master has noticed that it is none any more.
    void end_lingering() {
        network_.deposed(nullptr);
        servers_.front()->nodes().stop_lingering();
        checker_.damaged(timeline_.now());
        for (const auto& client : clients_) {
            if (client->listens_at() != servers_.front()->nodes().serving()) {
                client->lose_subscription(1ms);
            }
        }
    }

    void migrate(const Trouble& trouble) {
        Server& server = *servers_.front();
        if (server.nodes().is_down() || server.migration().phase() != Migration::Phase::none) {
            return;
        }
        const int target = server.nodes().next_after(trouble.whom);
        trace_("the slot begins to move to node ", target);
        server.begin_migration(target);
        const Moment end = timeline_.now() + trouble.length;
        checker_.disturbed(end + plan_->nodes.hand_over);
        const int steps = plan_->nodes.keys_move_last ? 0 : 3;
        for (int i = 1; i <= steps; ++i) {
            migration_step(timeline_.now() + trouble.length * i / (steps + 1),
                           [this, &server] { server.move_keys(noise_); });
        }
        migration_step(end, [this, &server] {
            trace_("the slot is handed over");
            server.hand_over();
        });
        migration_step(end + plan_->nodes.hand_over, [this, &server] {
            trace_("the slot has moved");
            server.end_migration();
            checker_.damaged(timeline_.now());
        });
    }

    /// Where it was not broken off meanwhile.
    void migration_step(Moment when, std::function<void()> step) {
        const Migration& migration = servers_.front()->migration();
        timeline_.at(when, [&migration, step = std::move(step), number = migration.number()] {
            const bool goes_on = migration.phase() != Migration::Phase::none;
            if (goes_on && migration.number() == number) step();
        });
    }

    void cut(const Trouble& trouble) {
        const Moment until = timeline_.now() + trouble.length;
        trace_("replica ", trouble.whom, " is cut off until ", until / 1us, "us");
        servers_.front()->replication().cut(static_cast<std::size_t>(trouble.whom), until);
        checker_.disturbed(until);
    }

    void load(Server& server, Moment length) {
        const Moment until = is_until(server, "loading", length);
        server.load_until(until);
        checker_.disturbed(until);
    }

    void fill(Server& server, Moment length) {
        const Moment until = is_until(server, "full", length);
        server.be_full_until(until);
        checker_.disturbed(until);
    }

    void silence(Server& server, Moment length) {
        const Moment until = is_until(server, "silent", length);
        server.be_silent_until(until);
        checker_.damaged(until);
    }

    Moment is_until(const Server& server, const char* what, Moment length) {
        const Moment until = timeline_.now() + length;
        trace_("master ", server.number(), " is ", what, " until ", until / 1us, "us");
        return until;
    }

    /// One of several masters restarts without its keys.
    void forget(Server& server, Moment length) {
        server.forget();
        restart(server, length);
    }

    void restart(Server& server, Moment length) {
        trace_("master ", server.number(), " restarts");
        server.restart();
        server.be_silent_until(timeline_.now() + length);
        checker_.failed_over(true, length);
        for (const auto& client : clients_) client->lose_subscription(length + 1ms);
    }

    const Plan* plan_;
    Timeline timeline_;
    Trace trace_;
    const std::vector<std::unique_ptr<ModelRedis>>* models_;
    std::vector<std::unique_ptr<Server>> servers_;
    std::unique_ptr<Server> deposed_{};  // that lingers
    Dice noise_{plan_->noise + 1};
    Checker checker_{*plan_, timeline_, trace_, servers_};
    Network network_{*plan_, timeline_, trace_, servers_, checker_};
    World world_{plan_, &timeline_, &trace_, &network_, &checker_, &clients_};
    std::vector<std::unique_ptr<Client>> clients_;
    std::vector<ActorOf> actors_;
    std::vector<std::unique_ptr<Forcing>> forcings_;
    std::vector<std::unique_ptr<SettingPermits>> settings_;
    std::uint64_t serials_ = 0;
    Moment end_of_time_ = 5min;
    std::uint64_t steps_ = 0;
};

}  // namespace redlatch::test::simulator
