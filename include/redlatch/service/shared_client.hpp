#pragma once

#include <redlatch/net/per_process.hpp>
#include <redlatch/service/client_setup.hpp>
#include <redlatch/service/session.hpp>

#include <atomic>
#include <chrono>
#include <string>
#include <utility>

namespace redlatch::inline v0::detail {

/// A client as its locks and holds share it. Hands out the session of this process: after a fork
/// the child's first call makes one, without touching any mutex of the parent's, which may be
/// locked for ever.
class SharedClient {
public:
    explicit SharedClient(ClientSetup setup)
        : setup_(std::move(setup)), session_(setup_), make_session_(make_session) {}
    SharedClient(const SharedClient&) = delete;
    SharedClient& operator=(const SharedClient&) = delete;

    Session& session() {
        if (Session* const own = existing_session()) return *own;
        return make_session_(*this);
    }

    /// The client is gone. Handles that outlive it fail, also in a child that is forked later.
    void end() noexcept {
        has_ended_ = true;
        if (Session* const own = session_.existing_or_disown()) own->close();
    }

    /// Whether all keys of a lock have to lie in one slot.
    bool has_slots() const { return setup_.is(UriParts::Kind::cluster); }

    const std::string& key_space() const noexcept { return setup_.options.key_space; }

    /// Whether several masters decide; and the longest lease that is allowed.
    bool has_several_masters() const noexcept { return setup_.masters() > 1; }
    std::chrono::milliseconds longest_lease() const noexcept { return setup_.longest_lease(); }

    /// This process's session if it has one yet: for destructors, which should not start any.
    Session* existing_session() noexcept { return session_.existing(); }

private:
    /// After a fork.
    static Session& make_session(SharedClient& client) {
        ClientSetup setup = client.setup_;
        if (setup.options.tls != nullptr) setup.options.tls = setup.options.tls->afresh();
        const auto close_with_client = [&client](Session& session) {
            if (client.has_ended_) session.close();
        };
        return client.session_.renew(close_with_client, setup);
    }

    const ClientSetup setup_;
    std::atomic<bool> has_ended_{false};  // in a parent, too
    PerProcess<Session> session_;
    /// By a pointer: a file that makes no client compiles nothing that makes a session.
    Session& (*const make_session_)(SharedClient&);
};

}  // namespace redlatch::inline v0::detail
