#pragma once

#include <redlatch/net/process_id.hpp>
#include <redlatch/service/client_setup.hpp>
#include <redlatch/service/session.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

namespace redlatch::inline v0::detail {

/// A client as its locks and holds share it. Hands out the session of this process: after a fork
/// the child's first call makes one, without touching any mutex of the parent's, which may be
/// locked for ever.
class SharedClient {
public:
    explicit SharedClient(ClientSetup setup)
        : setup_(std::move(setup)), session_(new Session{setup_}) {}
    SharedClient(const SharedClient&) = delete;
    SharedClient& operator=(const SharedClient&) = delete;
    ~SharedClient() {
        if (Session* const own = existing_session()) {
            delete own;
        } else {
            abandon(session_.load());
        }
    }

    Session& session() {
        Session* session = session_.load(std::memory_order_acquire);
        if (session->pid() == ProcessId::of_this_process()) return *session;
        return session_after_fork(session);
    }

    /// Whether all keys of a lock have to lie in one slot.
    bool has_slots() const { return setup_.is(UriParts::Kind::cluster); }

    const std::string& key_space() const noexcept { return setup_.options.key_space; }

    /// Whether several masters decide; and the longest lease that is allowed.
    bool has_quorum() const noexcept { return setup_.masters() > 1; }
    std::chrono::milliseconds longest_lease() const noexcept { return setup_.longest_lease(); }

    /// This process's session if it has one yet: for destructors, which should not start any.
    Session* existing_session() noexcept {
        Session* const session = session_.load(std::memory_order_acquire);
        return session->pid() == ProcessId::of_this_process() ? session : nullptr;
    }

private:
    Session& session_after_fork(Session* inherited) {
        ClientSetup setup = setup_;
        if (setup.options.tls != nullptr) setup.options.tls = setup.options.tls->afresh();
        auto own = std::make_unique<Session>(setup);
        if (!session_.compare_exchange_strong(inherited, own.get())) return *inherited;
        abandon(inherited);
        return *own.release();
    }

    /// The parent's session stays as it is: its threads are not here to be joined, and closing its
    /// connections is the parent's business. Keeps it reachable, as it is no leak by mistake.
    static void abandon(Session* inherited) {
        struct Inherited {
            Session* session;
            Inherited* next;
        };
        static std::atomic<Inherited*> abandoned{nullptr};
        auto* const first = new Inherited{inherited, abandoned.load()};
        while (!abandoned.compare_exchange_weak(first->next, first)) {
        }
    }

    const ClientSetup setup_;
    std::atomic<Session*> session_;
};

}  // namespace redlatch::inline v0::detail
