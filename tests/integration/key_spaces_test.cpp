// `ClientOptions::key_space`: what companion keys and channels begin with.

#include "busy_machine.hpp"
#include "lock_test.hpp"
#include "support/cluster.hpp"
#include "support/process.hpp"
#include "support/sentinels.hpp"
#include "warnings.hpp"

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace redlatch::test {
namespace {

const std::string space = "svc:locks:";

ClientOptions in_space(const std::string& uri, std::shared_ptr<Observer> observer = {}) {
    return {.uris = {uri},
            .connect_timeout = 10s,
            .command_timeout = 10s,
            .key_space = space,
            .observer = std::move(observer)};
}

class KeySpace : public LockTest {
protected:
    /// Those who wait for a lock in that key space; once the server can tell each of them.
    Result<std::vector<std::string>> waiters(std::size_t number, const std::string& key_space,
                                             const std::string& name = "job") {
        std::vector<std::string> tokens;
        const bool there = eventually([&] {
            tokens.clear();
            const std::string queue = key_space + "queue:{" + name + "}";
            for (const RawReply& token : redis_.command({"ZRANGE", queue, "0", "-1"}).elements) {
                const std::string channel = key_space + "client:" + token.text.substr(0, 32);
                if (redis_.command({"PUBSUB", "NUMSUB", channel}).elements.at(1).integer > 0) {
                    tokens.push_back(token.text);
                }
            }
            return tokens.size() == number;
        });
        if (!there) return Unexpected{Error{Errc::timed_out, name, {}, "they do not wait", {}}};
        return tokens;
    }

    /// Whether the next message ends so, or the one behind it: the first may be the listener's own trial.
    static bool is_told(RawRedis& listens, const std::string& end) {
        const auto fits = [&] { return listens.next().elements.at(2).text.ends_with(end); };
        return fits() || fits();
    }

    /// Whether somebody asks the server again and again.
    bool somebody_polls() {
        const long long before = redis_.command_calls("evalsha");
        return eventually([&] { return redis_.command_calls("evalsha") >= before + 30; });
    }

    std::shared_ptr<Warnings> seen_ = std::make_shared<Warnings>();
    Client first_{in_space(server_.uri(), seen_)};
    Client second_{in_space(server_.uri(), seen_)};
};

TEST_F(KeySpace, is_what_all_companions_begin_with) {
    Lock<Fenced<Simple>> lock{first_, "job"};
    Lock<Fenced<Simple>> next{second_, "job"};
    auto held = lock.acquire();
    ASSERT_TRUE(held);
    auto waiting = in_background([&] { return next.acquire(); });
    const auto waiter = waiters(1, space);
    ASSERT_TRUE(waiter);
    EXPECT_EQ(redis_.keys(),
              (std::vector<std::string>{"job", space + "fence:{job}", space + "queue:{job}",
                                        space + "waiters:{job}"}));
    RawRedis listens{server_};
    listens.command({"SUBSCRIBE", space + "client:" + waiter->front().substr(0, 32)});
    EXPECT_EQ(held->release().value(), Release::released);
    EXPECT_TRUE(is_told(listens, waiter->front() + "job")) << "it was told, and need not ask";
    const auto granted = waiting.get();
    ASSERT_TRUE(granted);
    EXPECT_EQ(granted->token(), waiter->front());
    EXPECT_EQ(std::to_string(granted->fence()), redis_.get(space + "fence:{job}"));
    EXPECT_TRUE(seen_->all().empty());
}

TEST_F(KeySpace, is_found_by_the_scripts_whatever_the_names_are) {
    for (const std::string name :
         {"a{b}c", "queue:{x}", "queue::{y}", "queue:", "{queue::}", "a}b", ":", "svc:locks"}) {
        Lock<Reentrant> lock{first_, name};
        Lock<Reentrant> next{second_, name};
        auto held = lock.acquire();
        ASSERT_TRUE(held);
        auto waiting = in_background([&] { return next.acquire(); });
        std::string id;
        ASSERT_TRUE(eventually([&] {
            const auto channels = redis_.command({"PUBSUB", "CHANNELS", space + "client:*"});
            return !channels.elements.empty();
        }));
        const std::string queue = detail::LockKeys{name, space}.queue;
        ASSERT_TRUE(eventually([&] { return redis_.exists(queue); })) << queue;
        EXPECT_TRUE(held->release());
        EXPECT_TRUE(waiting.get()) << name;
        EXPECT_FALSE(redis_.exists(queue)) << queue;
    }
    EXPECT_TRUE(redis_.command({"PUBSUB", "CHANNELS", "redlatch:*"}).elements.empty());
}

TEST_F(KeySpace, serves_a_service_whose_acl_has_one_prefix) {
    redis_.command({"ACL", "SETUSER", "svc", "on", ">secret", "~svc:*", "+@all"});
    if (redis_server_version() >= redis_6_2) {
        redis_.command({"ACL", "SETUSER", "svc", "resetchannels", "&svc:*"});
    }
    const std::string uri = "unix://svc:secret@" + server_.socket_path();
    Client one{in_space(uri, seen_)};
    Client two{in_space(uri, seen_)};
    Lock<Fenced<Simple>> lock{one, "svc:job"};
    Lock<Fenced<Simple>> next{two, "svc:job"};
    auto held = lock.acquire();
    ASSERT_TRUE(held) << held.error().describe();
    auto waiting = in_background([&] { return next.acquire(); });
    ASSERT_TRUE(waiters(1, space, "svc:job"));
    EXPECT_TRUE(held->release());
    EXPECT_TRUE(waiting.get());
    EXPECT_TRUE(seen_->all().empty());
}

TEST_F(KeySpace, is_named_where_the_acl_forbids_it) {
    redis_.command({"ACL", "SETUSER", "svc", "on", ">secret", "~job*", "+@all"});
    Client client{in_space("unix://svc:secret@" + server_.socket_path(), seen_)};
    EXPECT_TRUE(Lock<Reentrant>(client, "job").try_lock());
    ASSERT_TRUE(eventually([&] { return seen_->all().size() == 1; }));
    EXPECT_NE(seen_->all().front().message.find("~svc:locks:queue:* ~svc:locks:waiters:*"),
              std::string::npos);
    const auto denied = Lock<Fenced<Simple>>(client, "job:2").acquire();
    ASSERT_FALSE(denied);
    EXPECT_NE(denied.error().describe().find("~svc:locks:fence:*"), std::string::npos);
}

TEST_F(KeySpace, of_its_own_is_wrong_type_where_somebody_has_data_there) {
    Lock<Simple> lock{first_, "job"};
    ASSERT_TRUE(lock.try_lock());
    redis_.set(space + "queue:{job}", "data");
    const auto refused = Lock<Simple>(second_, "job").acquire({.wait = 5s});
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().describe().find(space + "queue:{job}"), std::string::npos)
        << refused.error().describe();
}

/// One client of the usual key space, and one of another.
template <class Policy>
class TwoKeySpaces : public KeySpace {
protected:
    void expect_exclusion(Client& holds, Client& waits, const std::string& space_of_waiter) {
        Lock<Policy> lock{holds, "job", {.lease = 60s}};
        Lock<Policy> next{waits, "job", {.lease = 60s}};
        auto held = lock.acquire();
        ASSERT_TRUE(held);
        EXPECT_FALSE(next.try_lock());
        auto waiting = in_background([&] { return next.acquire(); });
        EXPECT_TRUE(waiters(1, space_of_waiter)) << "it has a place in its own queue";
        EXPECT_TRUE(somebody_polls());
        EXPECT_TRUE(held->held());
        EXPECT_EQ(held->release().value(), Release::released);
        EXPECT_TRUE(waiting.get());
    }
};
using EachKeyType = ::testing::Types<Simple, Reentrant, Watchdog<Fenced<Simple>>, Shared>;
TYPED_TEST_SUITE(TwoKeySpaces, EachKeyType);

TYPED_TEST(TwoKeySpaces, exclude_each_other_and_their_waiters_poll) {
    this->expect_exclusion(this->client_, this->first_, space);
    this->expect_exclusion(this->first_, this->client_, "redlatch:");
}

TYPED_TEST(TwoKeySpaces, are_told_of_once) {
    Lock<TypeParam> theirs{this->client_, "job"};
    theirs.lock();
    Lock<TypeParam> ours{this->first_, "job"};
    EXPECT_FALSE(ours.try_lock());
    ASSERT_TRUE(eventually([&] { return !this->seen_->all().empty(); }));
    EXPECT_FALSE(ours.try_lock());
    EXPECT_TRUE(times_out([&] { return ours.try_lock_for(300ms); }));
    theirs.unlock();
    EXPECT_TRUE(eventually([&] { return ours.try_lock(); })) << "nobody waits for long any more";
    EXPECT_FALSE(Lock<TypeParam>(this->second_, "job").try_lock()) << "no warning of its own";
    ours.unlock();
    const auto all = this->seen_->all();
    ASSERT_EQ(all.size(), 1U);
    EXPECT_EQ(all.front().node, this->server_.socket_path());
    EXPECT_NE(all.front().message.find("key_space"), std::string::npos);
    EXPECT_NE(all.front().message.find("job"), std::string::npos);
}

TEST_F(KeySpace, of_a_foreign_holder_is_not_told_of) {
    ASSERT_TRUE(foreign_set(redis_, "job"));
    EXPECT_FALSE(Lock<Simple>(first_, "job").try_lock());
    EXPECT_TRUE(times_out([&] { return Lock<Simple>(first_, "job").try_lock_for(100ms); }));
    first_.ping().value();
    EXPECT_TRUE(seen_->all().empty());
}

TEST_F(KeySpace, of_one_reader_among_others_is_waited_for) {
    Lock<Shared> ours{first_, "job", {.lease = 60s}};
    Lock<Shared> theirs{client_, "job", {.lease = 60s}};
    auto reads = ours.acquire_shared();
    auto also = theirs.acquire_shared();
    ASSERT_TRUE(reads);
    ASSERT_TRUE(also) << "readers of two key spaces read together";
    Lock<Shared> writer{second_, "job"};
    auto waiting = in_background([&] { return writer.acquire(); });
    ASSERT_TRUE(waiters(1, space));
    EXPECT_TRUE(somebody_polls());
    EXPECT_TRUE(reads->release());
    EXPECT_TRUE(also->release());
    EXPECT_TRUE(waiting.get());
}

TEST_F(KeySpace, counts_permits_of_all_but_settings_of_its_own) {
    Semaphore<> ours{first_, "gpus", 2};
    Semaphore<> theirs{client_, "gpus", 2};
    EXPECT_TRUE(theirs.try_acquire());
    EXPECT_TRUE(ours.try_acquire());
    EXPECT_FALSE(ours.try_acquire());
    EXPECT_FALSE(theirs.try_acquire());
    ASSERT_TRUE(theirs.set_permits(3));
    EXPECT_FALSE(ours.try_acquire());
    EXPECT_TRUE(theirs.try_acquire());
    EXPECT_TRUE(redis_.exists("redlatch:permits:{gpus}"));
    EXPECT_FALSE(redis_.exists(space + "permits:{gpus}"));
}

TEST_F(KeySpace, is_told_of_the_end_of_a_min_hold) {
    Lock<Simple> lock{first_, "job", {.lease = 60s, .min_hold = 60s}};
    auto held = lock.acquire();
    auto waiting =
        in_background([&] { return Lock<Simple>(second_, "job").acquire({.wait = 60s}); });
    const auto waiter = waiters(1, space);
    ASSERT_TRUE(waiter);
    RawRedis listens{server_};
    listens.command({"SUBSCRIBE", space + "client:" + waiter->front().substr(0, 32)});
    EXPECT_TRUE(held->release());
    EXPECT_TRUE(is_told(listens, waiter->front() + "job"));
    EXPECT_TRUE(Lock<Simple>(first_, "job").force_unlock());
    EXPECT_TRUE(waiting.get());
}

TEST_F(KeySpace, is_where_a_lock_that_came_too_late_is_passed_on) {
    auto held = Lock<Simple>(second_, "other").acquire();
    auto listening = in_background([&] { return Lock<Simple>(first_, "other").acquire(); });
    const auto listener = waiters(1, space, "other");
    ASSERT_TRUE(listener);

    // What the first client gave up long ago, and now has got.
    const std::string id = listener->front().substr(0, 32);
    const std::string late = id + ":client:1:999" + detail::mark_of(space);
    ASSERT_TRUE(foreign_set(redis_, "job", late));
    auto waiting = in_background([&] { return Lock<Simple>(second_, "job").acquire(); });
    const auto waiter = waiters(1, space);
    ASSERT_TRUE(waiter);
    RawRedis listens{server_};
    listens.command({"SUBSCRIBE", space + "client:" + waiter->front().substr(0, 32)});
    redis_.command({"PUBLISH", space + "client:" + id,
                    "60000 1 - s 0 " + std::to_string(late.size()) + " " + late + "job"});
    EXPECT_TRUE(is_told(listens, waiter->front() + "job"));
    EXPECT_TRUE(waiting.get());
    EXPECT_TRUE(held->release());
    EXPECT_TRUE(listening.get());
}

TEST_F(KeySpace, of_a_ticket_is_that_of_who_adopts_it) {
    auto held = Lock<Simple>(first_, "job").acquire();
    const auto ticket = held->detach();
    ASSERT_TRUE(ticket) << ticket.error().describe();
    EXPECT_EQ(code_of(Lock<Simple>(client_, "job").adopt(*ticket)), Errc::invalid_argument);
    EXPECT_TRUE(Lock<Simple>(second_, "job").adopt(*ticket));
}

TEST_F(KeySpace, stays_after_all_connections_were_cut) {
    Lock<Simple> lock{first_, "job", {.lease = 60s}};
    Lock<Simple> next{second_, "job", {.lease = 60s}};
    auto held = lock.acquire();
    auto waiting = in_background([&] { return next.acquire(); });
    ASSERT_TRUE(waiters(1, space));
    for (const char* const type : {"pubsub", "normal"}) {
        redis_.command({"CLIENT", "KILL", "TYPE", type, "SKIPME", "yes"});
    }
    ASSERT_TRUE(waiters(1, space));
    EXPECT_TRUE(held->release());
    EXPECT_TRUE(waiting.get());
    EXPECT_TRUE(redis_.command({"PUBSUB", "CHANNELS", "redlatch:*"}).elements.empty());
}

TEST_F(KeySpace, is_the_same_in_a_forked_child) {
    Lock<Fenced<Simple>> lock{first_, "job", {.lease = 60s}};
    auto held = lock.acquire();
    ASSERT_TRUE(eventually([] { return other_threads_sleep(); }));
    ChildProcess child{[&](LineChannel&) { return lock.acquire({.wait = 20s}) ? 0 : 1; }};
    ASSERT_TRUE(waiters(1, space));
    EXPECT_TRUE(held->release());
    EXPECT_EQ(child.wait(), ExitStatus{});
    EXPECT_FALSE(redis_.exists("redlatch:fence:{job}"));
}

// ---- Topologies

/// One takes the lock, and another of the same key space waits for it; only that is found in `looks`.
void expect_used_by(const ClientOptions& options, const std::vector<RedisServer*>& looks,
                    bool queues) {
    Client one{options};
    Client two{options};
    Lock<Fenced<Simple>> lock{one, "job", {.lease = 20s}};
    Lock<Fenced<Simple>> next{two, "job", {.lease = 20s}};
    auto held = lock.acquire({.wait = 20s});
    ASSERT_TRUE(held) << held.error().describe();
    auto waiting = in_background([&] { return next.acquire({.wait = 60s}); });
    const auto number_of = [&](const std::string& pattern) {
        std::size_t number = 0;
        for (RedisServer* server : looks) {
            number += RawRedis{*server}.command({"KEYS", pattern}).elements.size();
        }
        return number;
    };
    EXPECT_TRUE(eventually([&] { return !queues || number_of(space + "queue:*") > 0; }));
    EXPECT_TRUE(eventually([&] { return number_of(space + "fence:*") > 0; }));
    EXPECT_TRUE(held->release());
    const auto granted = waiting.get();
    ASSERT_TRUE(granted) << granted.error().describe();
    EXPECT_GT(granted->fence(), 0U);
    EXPECT_EQ(number_of("redlatch:*"), 0U);
}

TEST(KeySpaceOfTopologies, holds_with_sentinel) {
    SentinelGroup group;
    expect_used_by(in_space(group.uri()), {&group.first()}, true);
    ASSERT_TRUE(group.switch_master());
    expect_used_by(in_space(group.uri()), {&group.second()}, true);
}

TEST(KeySpaceOfTopologies, holds_with_a_cluster) {
    ClusterGroup group;
    expect_used_by(in_space(group.uri()), {&group.server(0), &group.server(1), &group.server(2)},
                   true);
}

TEST(KeySpaceOfTopologies, holds_with_several_masters) {
    std::deque<RedisServer> servers(3);
    ClientOptions options = in_space(servers[0].uri());
    options.uris.emplace_back(servers[1].uri());
    options.uris.emplace_back(servers[2].uri());
    options.node_timeout = 5s;
    options.longest_lease = 0ms;
    expect_used_by(options, {&servers[0], &servers[1], &servers[2]}, false);

    const auto seen = std::make_shared<Warnings>();
    options.observer = seen;
    Client ours{options};
    options.key_space = "redlatch:";
    Client theirs{options};
    Lock<Fenced<Simple>> lock{theirs, "other", {.lease = 20s}};
    ASSERT_TRUE(lock.try_lock());
    EXPECT_FALSE((Lock<Fenced<Simple>>{ours, "other"}.try_lock()));
    EXPECT_TRUE(eventually([&] { return seen->all().size() == 1; }));
}

}  // namespace
}  // namespace redlatch::test
