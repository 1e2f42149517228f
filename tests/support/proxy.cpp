#include "support/proxy.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <optional>
#include <random>
#include <stdexcept>
#include <utility>

namespace redlatch::test {
namespace {

constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();

/// Ends a socket also if a forked process has inherited it.
void hang_up(UniqueFd& fd) {
    if (fd) {
        ::shutdown(fd.get(), SHUT_RDWR);
        fd.reset();
    }
}

/// Ends a TCP connection by a reset; for a Unix socket the option means nothing.
void abort_connection(UniqueFd& fd) {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    fd.reset();
}

/// Small packets are not held back to be sent together.
void send_at_once(const UniqueFd& fd) {
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // fails for Unix sockets
}

/// What has arrived: bytes, or "" for nothing yet, or nothing at all when the sender has gone.
std::optional<std::string> receive(const UniqueFd& from) {
    std::array<char, 16384> buffer{};
    const ssize_t size = ::recv(from.get(), buffer.data(), buffer.size(), 0);
    if (size > 0) {
        return std::string{buffer.data(), static_cast<std::size_t>(size)};
    }
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
        return std::string{};
    }
    return std::nullopt;
}

}  // namespace

void Proxy::Stream::add(std::string bytes, Clock::time_point due) {
    pieces_.push_back({std::move(bytes), due});
}

void Proxy::Stream::hurry() {
    next_trickle_ = {};
    for (Piece& piece : pieces_) {
        piece.due = {};
    }
}

std::size_t Proxy::Stream::write(const UniqueFd& to, Clock::time_point now, const Flow& flow) {
    if (flow.hold || now < next_trickle_) {
        return 0;
    }
    const bool trickles = flow.trickle_bytes > 0;
    const std::size_t written = write_due(to, now, trickles ? flow.trickle_bytes : no_limit);
    if (trickles && written > 0) {
        next_trickle_ = now + flow.trickle_every;
    }
    return written;
}

std::size_t Proxy::Stream::write_due(const UniqueFd& to, Clock::time_point now, std::size_t most) {
    std::size_t written = 0;
    blocked_ = false;
    while (!pieces_.empty() && pieces_.front().due <= now && written < most) {
        std::string& bytes = pieces_.front().bytes;
        const std::size_t size = std::min(bytes.size(), most - written);
        const ssize_t sent = ::send(to.get(), bytes.data(), size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            blocked_ = true;
            return written;
        }
        if (sent < 0 && errno != EINTR) {
            pieces_.clear();
            return written;
        }
        const std::size_t done = sent < 0 ? 0 : static_cast<std::size_t>(sent);
        written += done;
        bytes.erase(0, done);
        if (bytes.empty()) {
            pieces_.pop_front();
        }
    }
    return written;
}

Proxy::Proxy(std::string_view target, ProxyOptions options)
    : target_{Address::parse(target)}, wake_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)} {
    if (options.tcp) {
        listen_address_.host = "127.0.0.1";
        reserved_port_ = bind_to(listen_address_);
    } else {
        listen_address_.path = folder_.file("proxy.sock");
    }
    open_listener();
    thread_ = std::thread{[this] { run(); }};
}

Proxy::~Proxy() {
    call([this] { stopping_ = true; });
    thread_.join();
    cut_connections();
    hang_up(listener_);
}

void Proxy::pass() {
    call([this] { end_faults(); });
}

void Proxy::end_faults() {
    faults_ = {};
    for (Connection& connection : connections_) {
        connection.requests.hurry();
        connection.replies.hurry();
        connection.drop_reply = false;
    }
    if (!listener_) {
        open_listener();
    }
}

void Proxy::pass_whole() {
    call([this] {
        connections_.remove_if([](Connection& connection) {
            if (!connection.has_gap) return false;
            hang_up(connection.client);
            hang_up(connection.server);
            return true;
        });
        end_faults();
    });
}

void Proxy::hold_replies() {
    change(Way::replies, [](Flow& flow) { flow.hold = true; });
}

void Proxy::hold_requests() {
    change(Way::requests, [](Flow& flow) { flow.hold = true; });
}

void Proxy::drop_replies_once(int count, std::string containing) {
    call([&] {
        faults_.drop_replies = count;
        faults_.drop_containing = std::move(containing);
    });
}

void Proxy::copy_once(std::string containing) {
    call([&] {
        faults_.copy_containing = std::move(containing);
        copy_.clear();
    });
}

bool Proxy::has_copy() {
    bool copied = false;
    call([&] { copied = !copy_.empty(); });
    return copied;
}

RawReply Proxy::deliver_copy() {
    std::string copy;
    call([&] { copy = copy_; });
    if (copy.empty()) throw std::runtime_error{"no such request was copied"};
    return RawRedis{target_.uri()}.wire(copy);
}

void Proxy::black_hole(Way way) {
    change(way, [](Flow& flow) { flow.black_hole = true; });
}

void Proxy::black_hole_after(int answers, Way way) {
    if (answers <= 0) return black_hole(way);
    call([=, this] {
        faults_.answers_left = answers;
        faults_.hole = way;
    });
}

void Proxy::stall(Way way) {
    change(way, [](Flow& flow) { flow.stall = true; });
}

void Proxy::refuse() {
    call([this] { hang_up(listener_); });
}

void Proxy::cut() {
    call([this] { cut_connections(); });
}

void Proxy::reset() {
    call([this] {
        for (Connection& connection : connections_) {
            abort_connection(connection.client);
            abort_connection(connection.server);
        }
        connections_.clear();
    });
}

void Proxy::say(const std::string& bytes) {
    call([&, this] {
        for (Connection& connection : connections_) connection.replies.add(bytes, Clock::now());
    });
}

void Proxy::half_close(Way way) {
    call([=, this] {
        for (Connection& connection : connections_) {
            if (way != Way::replies) {
                ::shutdown(connection.server.get(), SHUT_WR);
            }
            if (way != Way::requests) {
                ::shutdown(connection.client.get(), SHUT_WR);
            }
        }
    });
}

void Proxy::trickle(std::size_t bytes, std::chrono::milliseconds every, Way way) {
    change(way, [=](Flow& flow) {
        flow.trickle_bytes = bytes;
        flow.trickle_every = every;
    });
}

void Proxy::delay(std::chrono::microseconds time, std::chrono::milliseconds jitter, Way way) {
    change(way, [=](Flow& flow) {
        flow.delay = time;
        flow.jitter = jitter;
    });
}

void Proxy::change(Way way, const std::function<void(Flow&)>& edit) {
    call([&] {
        if (way != Way::replies) {
            edit(faults_.requests);
        }
        if (way != Way::requests) {
            edit(faults_.replies);
        }
    });
}

ProxyCounts Proxy::counts() {
    ProxyCounts result;
    call([&] {
        result = counts_;
        result.open = static_cast<int>(connections_.size());
    });
    return result;
}

void Proxy::call(std::function<void()> action) {
    std::packaged_task<void()> task{std::move(action)};
    std::future<void> done = task.get_future();
    {
        const std::lock_guard lock{calls_mutex_};
        calls_.push_back(std::move(task));
    }
    ::eventfd_write(wake_.get(), 1);
    done.get();
}

void Proxy::run() {
    while (!stopping_) {
        wait_for_events();
        run_calls();
        accept_all();
        for (Connection& connection : connections_) {
            serve(connection);
        }
        connections_.remove_if([](const Connection& connection) { return connection.finished; });
    }
}

void Proxy::wait_for_events() {
    std::vector<pollfd> fds{{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
    // A descriptor without events is left out: poll would tell of its end again and again.
    const auto watch = [&fds](const UniqueFd& fd, bool reads, bool full) {
        const int events = (reads ? POLLIN : 0) | (full ? POLLOUT : 0);
        fds.push_back({.fd = events == 0 ? -1 : fd.get(),
                       .events = static_cast<short>(events),
                       .revents = 0});
    };
    watch(listener_, true, false);
    for (const Connection& connection : connections_) {
        const bool from_client = !connection.client_gone && !faults_.requests.stall;
        const bool from_server = !connection.server_gone && !faults_.replies.stall;
        watch(connection.client, from_client, connection.replies.blocked());
        watch(connection.server, from_server, connection.requests.blocked());
    }
    const std::chrono::nanoseconds left = std::clamp<std::chrono::nanoseconds>(
        next_due() - Clock::now(), std::chrono::nanoseconds{0}, std::chrono::milliseconds{999});
    const timespec timeout{.tv_sec = 0, .tv_nsec = static_cast<long>(left.count())};
    ::ppoll(fds.data(), fds.size(), &timeout, nullptr);
}

void Proxy::run_calls() {
    eventfd_t ignored = 0;
    ::eventfd_read(wake_.get(), &ignored);
    std::vector<std::packaged_task<void()>> calls;
    {
        const std::lock_guard lock{calls_mutex_};
        calls.swap(calls_);
    }
    for (std::packaged_task<void()>& task : calls) {
        task();
    }
}

void Proxy::open_listener() {
    listener_ = listen_on(listen_address_);
}

void Proxy::accept_all() {
    while (listener_) {
        UniqueFd client{::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
        if (!client) {
            return;
        }
        send_at_once(client);
        ++counts_.connections;
        UniqueFd server = connect_to(target_);
        if (!server) {
            hang_up(client);  // as the server would, were the client to connect to it directly
            continue;
        }
        Connection& connection = connections_.emplace_back();
        connection.client = std::move(client);
        connection.server = std::move(server);
    }
}

void Proxy::cut_connections() {
    for (Connection& connection : connections_) {
        hang_up(connection.client);
        hang_up(connection.server);
    }
    connections_.clear();
}

void Proxy::serve(Connection& connection) {
    read_requests(connection);
    read_replies(connection);
    const Clock::time_point now = Clock::now();
    counts_.request_bytes += connection.requests.write(connection.server, now, faults_.requests);
    counts_.reply_bytes += connection.replies.write(connection.client, now, faults_.replies);
    const bool client_done = connection.client_gone && connection.requests.empty();
    const bool server_done = connection.server_gone && connection.replies.empty();
    const bool hidden = client_done ? faults_.requests.black_hole : faults_.replies.black_hole;
    if (connection.finished || ((client_done || server_done) && !hidden)) {
        hang_up(connection.client);
        hang_up(connection.server);
        connection.finished = true;
    }
}

void Proxy::read_requests(Connection& connection) {
    if (connection.client_gone || faults_.requests.stall) {
        return;
    }
    std::optional<std::string> bytes = receive(connection.client);
    if (!bytes) {
        connection.client_gone = true;
        connection.replies = {};
    }
    if (!bytes || bytes->empty() || connection.server_gone) return;
    if (faults_.requests.black_hole) {
        connection.has_gap = true;
        return;
    }
    if (faults_.drop_replies > 0 && bytes->find(faults_.drop_containing) != std::string::npos) {
        --faults_.drop_replies;
        connection.drop_reply = true;
    }
    if (faults_.copy_containing && bytes->find(*faults_.copy_containing) != std::string::npos) {
        faults_.copy_containing.reset();
        copy_ = *bytes;
    }
    connection.requests.add(std::move(*bytes), due(faults_.requests));
}

void Proxy::read_replies(Connection& connection) {
    if (connection.server_gone || faults_.replies.stall) {
        return;
    }
    std::optional<std::string> bytes = receive(connection.server);
    if (!bytes) {
        connection.server_gone = true;
        connection.requests = {};
    }
    if (!bytes || bytes->empty() || connection.client_gone) return;
    if (faults_.replies.black_hole) {
        connection.has_gap = true;
        return;
    }
    if (connection.drop_reply) {
        ++counts_.dropped_replies;
        connection.finished = true;
        return;
    }
    connection.replies.add(std::move(*bytes), due(faults_.replies));
    count_answer();
}

void Proxy::count_answer() {
    if (!faults_.answers_left || --*faults_.answers_left > 0) return;
    faults_.answers_left.reset();
    faults_.requests.black_hole = faults_.requests.black_hole || faults_.hole != Way::replies;
    faults_.replies.black_hole = faults_.replies.black_hole || faults_.hole != Way::requests;
}

Proxy::Clock::time_point Proxy::due(const Flow& flow) {
    const auto give_or_take = flow.jitter.count();
    std::uniform_int_distribution<long long> spread{-give_or_take, give_or_take};
    return Clock::now() + flow.delay + std::chrono::milliseconds{spread(random_)};
}

Proxy::Clock::time_point Proxy::next_due() const {
    Clock::time_point earliest = Clock::time_point::max();
    const auto consider = [&earliest](const Stream& stream, const Flow& flow) {
        if (!stream.empty() && !stream.blocked() && !flow.hold) {
            earliest = std::min(earliest, stream.due());
        }
    };
    for (const Connection& connection : connections_) {
        consider(connection.requests, faults_.requests);
        consider(connection.replies, faults_.replies);
    }
    return earliest;
}

}  // namespace redlatch::test
