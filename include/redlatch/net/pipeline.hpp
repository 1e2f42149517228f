#pragma once

#include <redlatch/core/fault.hpp>
#include <redlatch/net/connection.hpp>

#include <poll.h>

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace redlatch::inline v0::detail {

/// A connection on which commands go out without waiting for the answers to those before. Answers
/// come in the order of the commands, so a command that its sender has given up keeps its place.
/// `Order` is what the owner knows a command by. Never blocks. One thread.
template <class Order>
class Pipeline {
public:
    /// An answer, and what it is the answer to.
    struct Answered {
        Order order;
        Expected<Reply, Fault> reply;
    };

    explicit Pipeline(Connection connection) : connection_(std::move(connection)) {}

    Connection& connection() noexcept { return connection_; }

    /// No answer is expected.
    bool idle() const noexcept { return expected_.empty(); }

    /// When the command was added whose answer is next; for ever where none is expected.
    TimePoint oldest() const noexcept {
        return idle() ? TimePoint::max() : expected_.front().added;
    }

    /// Adds one command to what `flush` writes.
    void add(std::string_view command, Order order) {
        unwritten_ += command;
        expected_.push_back({std::move(order), Clock::now()});
    }

    /// Writes what the connection takes without waiting. After a fault it is closed.
    Expected<void, Fault> flush() {
        for (;;) {
            if (written_ == writing_.size()) {
                writing_ = std::exchange(unwritten_, {});
                written_ = 0;
            }
            if (writing_.empty()) return {};
            auto n = connection_.send_if_possible(std::string_view{writing_}.substr(written_));
            if (!n) return Unexpected{std::move(n).error()};
            if (*n == 0) return {};
            written_ += *n;
        }
    }

    /// The next answer; nothing where it has not come. A fault of the connection ends it; an error
    /// that the server answered is an answer.
    Expected<std::optional<Answered>, Fault> next_answer() {
        if (idle()) return std::optional<Answered>{};
        auto reply = connection_.receive_if_there();
        if (!reply && !connection_.alive()) return Unexpected{std::move(reply).error()};
        if (reply && !*reply) return std::optional<Answered>{};
        Order order = std::move(expected_.front().order);
        expected_.pop_front();
        if (!reply) return std::optional{Answered{std::move(order), Unexpected{reply.error()}}};
        return std::optional{Answered{std::move(order), **std::move(reply)}};
    }

    /// What `poll` has to wait for before there is something to do.
    pollfd more_to_come() const noexcept {
        return connection_.more_to_come(written_ < writing_.size() || !unwritten_.empty());
    }

    /// The commands that have no answer, at the end of the connection.
    std::vector<Order> take_unanswered() {
        std::vector<Order> orders;
        for (Awaited& awaited : std::exchange(expected_, {})) {
            orders.push_back(std::move(awaited.order));
        }
        return orders;
    }

private:
    struct Awaited {
        Order order;
        TimePoint added;
    };

    Connection connection_;
    std::deque<Awaited> expected_;
    std::string writing_;  // stays as it is until all of it is written: TLS wants that
    std::size_t written_ = 0;
    std::string unwritten_;  // behind `writing_`
};

}  // namespace redlatch::inline v0::detail
