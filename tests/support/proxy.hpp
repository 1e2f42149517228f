#pragma once

#include "support/raw_redis.hpp"
#include "support/socket.hpp"
#include "support/temp_folder.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <list>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace redlatch::test {

struct ProxyOptions {
    /// Listen on a free port of 127.0.0.1 instead of a Unix socket.
    bool tcp = false;
};

/// One direction, or both: what clients send, what the server answers.
enum class Way { requests, replies, both };

/// What has gone through a proxy since it was made.
struct ProxyCounts {
    int connections = 0;            ///< accepted
    int open = 0;                   ///< of those, still there
    std::size_t request_bytes = 0;  ///< written to the server
    std::size_t reply_bytes = 0;    ///< written to clients
    int dropped_replies = 0;        ///< by drop_replies_once
};

/// Stands between a client and a server's socket and makes faults.
///
/// At first everything passes. Each of the other verbs adds one fault to those that are on; pass()
/// ends them all. When a verb returns, it holds for every byte that arrives from then on (and,
/// where it says so, for bytes still kept). One thread serves all connections; it never blocks,
/// whatever the two sides do. Verbs may be called by any thread.
///
/// A process that the test forks inherits the proxy's sockets but not its thread: there it is of no
/// use, and its destructor must not run (ChildProcess sees to that).
class Proxy {
public:
    /// `target` is `unix:///path` or `redis://host:port`, such as RedisServer::uri().
    explicit Proxy(std::string_view target, ProxyOptions options = {});
    ~Proxy();

    Proxy(const Proxy&) = delete;
    Proxy& operator=(const Proxy&) = delete;

    /// Where clients connect: a Unix socket, or redis://127.0.0.1:port.
    [[nodiscard]] std::string uri() const { return listen_address_.uri(); }

    /// No faults; bytes that were kept or delayed go out at once, new connections work.
    void pass();

    /// The same, and ends the connections of which a black hole has swallowed something: as TCP does, which
    /// delivers nothing behind what it has lost.
    void pass_whole();

    /// Requests reach the server, replies are kept until pass().
    void hold_replies();

    /// Requests are kept until pass(); then they reach the server even if their client has gone.
    void hold_requests();

    /// The next `count` requests reach the server, but their connections end as soon as the reply
    /// arrives, and the client never sees it. A request is what comes in one piece: one command or
    /// one pipeline. With `containing`, only requests with these bytes in them count.
    void drop_replies_once(int count = 1, std::string containing = {});

    /// Keeps a copy of the next request with these bytes in it, which itself goes on as always.
    void copy_once(std::string containing);

    /// Whether there was one since.
    [[nodiscard]] bool has_copy();

    /// Sends the copy to the server once more, on a connection of its own, and returns the answer,
    /// which no client hears. Blocks until it is there. Throws std::runtime_error if nothing was
    /// copied since the last copy_once().
    RawReply deliver_copy();

    /// Nothing that arrives goes on, as if a cable were unplugged: connections stay open. After
    /// pass(), what was swallowed stays lost.
    void black_hole(Way way = Way::both);

    /// The same, but for the next `answers` pieces that come from the server: those go on, and only
    /// then nothing more does.
    void black_hole_after(int answers, Way way = Way::both);

    /// Nothing more is read from the sender, not even its end, until pass(): what it sends stays in
    /// the buffers of the system, and once they are full it cannot send.
    void stall(Way way = Way::both);

    /// New connections are refused; those that are open stay.
    void refuse();

    /// Ends all open connections now. Requests that were kept are lost. New ones are welcome.
    void cut();

    /// The same as an abort: over TCP both sides get a reset instead of an end. A Unix socket
    /// reports one only to who had not yet read everything.
    void reset();

    /// The receiver of all open connections sees the end of what is sent that way; the other way
    /// goes on until a side closes. What was kept for the receiver is lost. (A redis-server closes
    /// a connection as soon as it sees the end of the requests.)
    void half_close(Way way);

    /// The clients of all open connections get these bytes, which no server has sent.
    void say(const std::string& bytes);

    /// Bytes go out in pieces of `bytes`, one piece per connection each `every`.
    void trickle(std::size_t bytes, std::chrono::milliseconds every, Way way = Way::replies);

    /// Everything arrives so much later, give or take at most `jitter` at random, but in order. A
    /// delayed request reaches the server even if its client has gone meanwhile.
    void delay(std::chrono::microseconds time,
               std::chrono::milliseconds jitter = std::chrono::milliseconds{0},
               Way way = Way::both);
    void delay_requests(std::chrono::microseconds time) { delay(time, {}, Way::requests); }
    void delay_replies(std::chrono::microseconds time) { delay(time, {}, Way::replies); }

    [[nodiscard]] ProxyCounts counts();

private:
    using Clock = std::chrono::steady_clock;

    /// What happens to bytes that go one way.
    struct Flow {
        bool hold = false;
        bool stall = false;
        bool black_hole = false;
        std::size_t trickle_bytes = 0;
        std::chrono::milliseconds trickle_every{0};
        std::chrono::microseconds delay{0};
        std::chrono::milliseconds jitter{0};
    };

    /// Bytes on their way in one direction, each piece with the time before which it stays.
    class Stream {
    public:
        void add(std::string bytes, Clock::time_point due);
        [[nodiscard]] bool empty() const { return pieces_.empty(); }
        [[nodiscard]] Clock::time_point due() const {
            return std::max(pieces_.front().due, next_trickle_);
        }
        void hurry();

        /// Writes what is due and says how many bytes that were. A dead receiver swallows
        /// everything.
        std::size_t write(const UniqueFd& to, Clock::time_point now, const Flow& flow);

        /// Whether the receiver's buffer was full at the last write.
        [[nodiscard]] bool blocked() const { return blocked_; }

    private:
        struct Piece {
            std::string bytes;
            Clock::time_point due;
        };

        std::size_t write_due(const UniqueFd& to, Clock::time_point now, std::size_t most);

        std::deque<Piece> pieces_;
        Clock::time_point next_trickle_{};
        bool blocked_ = false;
    };

    struct Connection {
        UniqueFd client;
        UniqueFd server;
        Stream requests;
        Stream replies;
        bool client_gone = false;
        bool server_gone = false;
        bool drop_reply = false;
        bool has_gap = false;  ///< something was swallowed
        bool finished = false;
    };

    struct Faults {
        Flow requests;
        Flow replies;
        std::optional<int> answers_left;  // before the black hole
        Way hole = Way::both;
        int drop_replies = 0;
        std::string drop_containing;
        std::optional<std::string> copy_containing;
    };

    /// Changes what happens to bytes that go this way.
    void change(Way way, const std::function<void(Flow&)>& edit);

    /// Runs `action` on the proxy's thread, between two rounds, and waits for its end.
    void call(std::function<void()> action);

    // The proxy's thread; all data below is touched by it alone.
    void run();
    void wait_for_events();
    void run_calls();
    void end_faults();
    void accept_all();
    void serve(Connection& connection);
    void read_requests(Connection& connection);
    void read_replies(Connection& connection);
    void count_answer();
    [[nodiscard]] Clock::time_point due(const Flow& flow);
    void open_listener();
    void cut_connections();
    [[nodiscard]] Clock::time_point next_due() const;

    const Address target_;
    TempFolder folder_;
    Address listen_address_;
    UniqueFd reserved_port_;
    UniqueFd listener_;
    UniqueFd wake_;
    std::list<Connection> connections_;
    Faults faults_;
    std::string copy_;
    ProxyCounts counts_;
    std::minstd_rand random_;
    bool stopping_ = false;

    std::mutex calls_mutex_;
    std::vector<std::packaged_task<void()>> calls_;
    std::thread thread_;
};

}  // namespace redlatch::test
