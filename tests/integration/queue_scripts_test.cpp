// The Lua of the queue on a real server: who is served, in which order, and what is left behind.

#include "queue_tools.hpp"

#include <cstdint>
#include <functional>
#include <map>

namespace redlatch::test {
namespace {

INSTANTIATE_TEST_SUITE_P(On, Queue, ::testing::Values(KeyType::string, KeyType::hash),
                         [](const auto& key_type) -> std::string {
                             return key_type.param == KeyType::string ? "string" : "hash";
                         });

TEST_P(Queue, refused_wait_in_the_order_of_their_coming) {
    hold();
    EXPECT_EQ(acquire({.token = c}).place, 0);
    EXPECT_EQ(acquire({.token = a}).place, 1);
    EXPECT_EQ(acquire({.token = b}).place, 2);
    expect_queue({c, a, b});
    EXPECT_EQ(owner(), holder);
}

TEST_P(Queue, refusal_tells_ttl_and_time_and_that_the_owner_is_one_of_us) {
    ASSERT_TRUE(acquire({.token = holder, .lease = 20'000}).ours);
    const long long before = now();
    const Answered refused = acquire({.token = a});
    EXPECT_EQ(score(a), std::to_string(refused.time)) << "its place, too";
    EXPECT_LE(refused.ttl, 20'000);
    EXPECT_GT(refused.ttl, 12'000);
    EXPECT_GE(refused.time, before);
    EXPECT_LE(refused.time, now());
    EXPECT_TRUE(refused.grants);
}

TEST_P(Queue, asking_too_late_gives_no_place_and_keeps_none) {
    const auto ask_late = [this] {
        return run(scripts_.acquire, {a, "60000", "90000", "1", run_id, std::to_string(now() - 1)});
    };
    hold();
    EXPECT_TRUE(ask_late().text.starts_with("LATE "));
    expect_queue({});
    acquire({.token = a});
    const Terms before = terms(a);
    EXPECT_TRUE(ask_late().text.starts_with("LATE "));
    EXPECT_EQ(terms(a).seen_until, before.seen_until);
    EXPECT_EQ(terms(a).hears, "0");
    redis_.del(keys_.lock);
    EXPECT_TRUE(ask_late().text.starts_with("LATE "));
    expect_free();
}

TEST_P(Queue, asking_again_keeps_the_place_and_updates_the_terms) {
    hold();
    acquire({.token = a, .lease = 60'000, .stay = 20'000});
    acquire({.token = b});
    const std::string before = score(a);
    EXPECT_EQ(terms(a).lease, 60'000);
    EXPECT_EQ(terms(a).hears, "0");
    EXPECT_EQ(terms(a).key_type, to_string(GetParam()));

    const Answered refused = acquire({.token = a, .lease = 5'000, .stay = 90'000, .hears = true});
    EXPECT_EQ(refused.place, 0);
    EXPECT_EQ(score(a), before);
    EXPECT_EQ(terms(a).lease, 5'000);
    EXPECT_EQ(terms(a).hears, "1");
    EXPECT_EQ(terms(a).seen_until, refused.time + 90'000'000);
    expect_queue({a, b});
}

TEST_P(Queue, asking_by_an_older_command_shortens_no_life) {
    hold();
    acquire({.token = a, .stay = 90'000});
    const auto seen_until = terms(a).seen_until;
    EXPECT_EQ(acquire({.token = a, .stay = 20'000}).place, 0);
    EXPECT_EQ(terms(a).seen_until, seen_until);
}

TEST_P(Queue, asking_for_what_is_ours_keeps_its_fencing_token_for_as_long) {
    constexpr long long day = 86'400'000;
    const Answered first = acquire({.token = holder, .lease = 60'000, .fenced = true});
    EXPECT_GT(first.fence, 0);
    EXPECT_LE(redis_.pttl(keys_.fence), day + 60'000);
    const Answered again = acquire({.token = holder, .lease = 3 * day, .fenced = true});
    EXPECT_EQ(again.fence, first.fence);
    EXPECT_GT(redis_.pttl(keys_.fence), 4 * day - 60'000);
}

TEST_P(Queue, asking_again_keeps_who_waits_alive_on_a_server_that_is_full) {
    hold();
    acquire({.token = a});
    acquire({.token = b});
    for (const std::string& token : {a, b}) {  // nobody has heard of them for too long
        redis_.command({"HSET", keys_.waiters, token, to_string(GetParam()) + " 60000 1 0 0"});
    }
    redis_.command({"CONFIG", "SET", "maxmemory", "1"});
    const Answered refused = acquire({.token = b, .lease = 20'000});
    EXPECT_EQ(refused.place, 1);
    EXPECT_EQ(terms(b).seen_until, refused.time + 30'000'000);
    EXPECT_EQ(release(holder), 1);
    expect_owner(b, 20'000);
    expect_queue({});
}

TEST_P(Queue, who_comes_to_a_server_that_is_full_gets_no_place) {
    hold();
    acquire({.token = a});
    redis_.command({"CONFIG", "SET", "maxmemory", "1"});
    const RawReply refused = run(scripts_.acquire, {b, "60000", "30000", "0", run_id, "0", "0"});
    EXPECT_NE(refused.text.find("OOM "), std::string::npos) << refused.text;
    EXPECT_NE(refused.text.find(keys_.queue), std::string::npos) << refused.text;
    expect_queue({a});
    EXPECT_EQ(owner(), holder);
}

TEST_P(Queue, nobody_overtakes_however_the_clock_is_set) {
    hold();
    acquire({.token = c});
    constexpr long long in_the_future = 4'000'000'000'000'000;
    redis_.command({"ZADD", keys_.queue, "XX", std::to_string(in_the_future), c});
    EXPECT_EQ(acquire({.token = b}).place, 1);
    EXPECT_EQ(acquire({.token = a}).place, 2);
    EXPECT_EQ(score(b), std::to_string(in_the_future + 1));
    EXPECT_EQ(score(a), std::to_string(in_the_future + 2));
    EXPECT_EQ(acquire({.token = b}).place, 1);
    expect_queue({c, b, a});
}

TEST_P(Queue, release_gives_the_lock_to_the_first_for_exactly_its_lease) {
    hold();
    acquire({.token = a, .lease = 20'000});
    acquire({.token = b, .lease = 90'000});
    EXPECT_EQ(release(holder), 1);
    expect_owner(a, 20'000);
    expect_queue({b});
    EXPECT_EQ(redis_.type(keys_.lock), GetParam() == KeyType::string ? "string" : "hash");
    EXPECT_EQ(release(a), 1);
    expect_owner(b, 90'000);
    EXPECT_EQ(redis_.keys(), Tokens{"job"}) << "nothing else is left";
    EXPECT_EQ(release(b), 1);
    EXPECT_TRUE(redis_.keys().empty());
}

TEST_P(Queue, release_tells_the_one_who_has_the_lock_now) {
    Listener ear{server_, a};
    Listener other_ear{server_, b};
    hold();
    const Answered refused = acquire({.token = a, .lease = 20'000, .hears = true});
    acquire({.token = b, .hears = true});
    EXPECT_TRUE(ear.silent());
    EXPECT_EQ(release(holder), 1);
    const auto grant = ear.next_grant();
    ASSERT_TRUE(grant);
    EXPECT_EQ(grant->token, a);
    EXPECT_EQ(grant->key, "job");
    EXPECT_EQ(grant->ttl, 20s);
    EXPECT_EQ(grant->server, run_id);
    EXPECT_EQ(std::string{grant->key_type}, to_string(GetParam()));
    EXPECT_GT(grant->time.count(), refused.time);
    EXPECT_LE(grant->time.count(), now());
    EXPECT_TRUE(ear.silent()) << "once";
    EXPECT_TRUE(other_ear.silent());
}

TEST_P(Queue, message_carries_any_bytes) {
    const std::string bytes{" a\r\n\0{b} 5 s\xff", 14};
    keys_ = LockKeys{bytes};
    const std::string mine = std::string(32, 'd') + ": a\r\n" + bytes;
    Listener ear{server_, mine};
    hold();
    acquire({.token = mine, .hears = true});
    EXPECT_EQ(release(holder), 1);
    const auto grant = ear.next_grant();
    ASSERT_TRUE(grant);
    EXPECT_EQ(grant->token, mine);
    EXPECT_EQ(grant->key, bytes);
    EXPECT_EQ(owner(), mine);
}

TEST_P(Queue, who_does_not_hear_is_given_the_lock_without_a_word) {
    Listener ear{server_, a};
    hold();
    acquire({.token = a, .hears = false});
    EXPECT_EQ(release(holder), 1);
    EXPECT_EQ(owner(), a);
    EXPECT_TRUE(ear.silent());
}

TEST_P(Queue, who_cannot_be_told_just_now_is_passed_over_and_keeps_the_place) {
    hold();
    acquire({.token = a, .lease = 20'000, .stay = 30'000, .hears = true});
    acquire({.token = b, .stay = 1'000, .hears = true});
    acquire({.token = c});
    const Terms hurried = terms(b);
    const long long before = now();
    EXPECT_EQ(release(holder), 1);
    const long long after = now();
    EXPECT_EQ(owner(), c);
    expect_queue({a, b});
    EXPECT_GE(terms(a).seen_until, before + 5'000'000);
    EXPECT_LE(terms(a).seen_until, after + 5'000'000);
    EXPECT_EQ(terms(a).lease, 20'000);
    EXPECT_EQ(terms(a).hears, "1");
    EXPECT_EQ(terms(a).key_type, to_string(GetParam()));
    EXPECT_EQ(terms(b).seen_until, hurried.seen_until) << "never lengthened";

    Listener ear{server_, a};
    EXPECT_EQ(release(c), 1);
    expect_owner(a, 20'000);
    EXPECT_TRUE(ear.next_grant());
    expect_queue({b});
}

TEST_P(Queue, who_was_passed_over_is_alive_again_when_it_asks) {
    hold();
    acquire({.token = a, .hears = true});
    EXPECT_EQ(release(holder), 1);
    expect_free();
    ASSERT_TRUE(acquire({.token = b, .stay = 0}).ours) << "nobody else could take it";
    expect_queue({a});
    const Answered refused = acquire({.token = a, .stay = 30'000, .hears = true});
    EXPECT_EQ(refused.place, 0);
    EXPECT_EQ(terms(a).seen_until, refused.time + 30'000'000);
}

TEST_P(Queue, others_channels_and_patterns_are_no_subscribers) {
    Listener other_ear{server_, b};
    RawRedis monitor{server_};
    monitor.command({"PSUBSCRIBE", "redlatch:*"});
    hold();
    acquire({.token = a, .hears = true});
    EXPECT_EQ(release(holder), 1);
    expect_free();
    expect_queue({a});
}

TEST_P(Queue, who_was_not_heard_of_for_too_long_is_removed) {
    hold();
    put(a, to_string(GetParam()) + " 60000 " + std::to_string(now() - 1) + " 0 0");
    put(b, to_string(GetParam()) + " 60000 1 1 0");
    put(c, to_string(GetParam()) + " 60000 " + std::to_string(now() + 60'000'000) + " 0 0");
    EXPECT_EQ(release(holder), 1);
    EXPECT_EQ(owner(), c);
    EXPECT_EQ(redis_.keys(), Tokens{"job"});
}

TEST_P(Queue, who_has_no_terms_that_make_sense_is_removed) {
    const std::string later = std::to_string(now() + 60'000'000);
    hold();
    for (const std::string& nonsense :
         {std::string{}, std::string{"hello"}, "s -5 " + later + " 0 0", "s 60000 " + later + " 0",
          "s 60000 " + later + " 0 0 more", "s  60000 " + later + " 0 0",
          " s 60000 " + later + " 0 0"}) {
        put("nonsense" + std::to_string(queue().size()), nonsense);
    }
    put("none", "");
    redis_.command({"HDEL", keys_.waiters, "none"});
    EXPECT_EQ(acquire({.token = a}).place, 8);
    EXPECT_EQ(release(holder), 1);
    EXPECT_EQ(owner(), a);
    EXPECT_EQ(redis_.keys(), Tokens{"job"});
}

TEST_P(Queue, release_serves_the_first_living_one_behind_however_many_dead) {
    for (const int count : {1, 64, 65, 101, 102, 1'000, 5'000}) {
        redis_.flushall();
        hold();
        put_dead(count);
        acquire({.token = a});
        acquire({.token = b});
        EXPECT_EQ(release(holder), 1);
        EXPECT_EQ(owner(), a) << count;
        expect_queue({b});
    }
}

TEST_P(Queue, release_serves_the_first_who_can_be_told_behind_however_many_who_cannot) {
    Listener ear{server_, b};
    for (const int count : {1, 64, 65, 101, 102, 1'000}) {
        redis_.flushall();
        put_unheard(count);
        hold_by_hand(GetParam());
        acquire({.token = b, .hears = true});
        const std::string terms_at_first = redis_.hgetall(keys_.waiters)["unheard0"];
        EXPECT_EQ(release(holder), 1);
        EXPECT_EQ(owner(), b) << count;
        EXPECT_TRUE(ear.next_grant());
        EXPECT_EQ(queue().size(), static_cast<std::size_t>(count)) << "they keep their places";
        EXPECT_EQ(queue().front(), "unheard0");
        EXPECT_NE(redis_.hgetall(keys_.waiters)["unheard0"], terms_at_first) << "for a while";
    }
}

TEST_P(Queue, release_serves_one_among_dead_and_unheard_ones) {
    hold();
    put_unheard(150);
    for (int i = 0; i < 150; ++i) {
        redis_.command(
            {"HSET", keys_.waiters, "unheard" + std::to_string(i),
             to_string(GetParam()) +
                 (i % 3 == 0 ? " 60000 1 1 0"
                             : " 60000 " + std::to_string(now() + 60'000'000) + " 1 0")});
    }
    acquire({.token = a});
    EXPECT_EQ(release(holder), 1);
    EXPECT_EQ(owner(), a);
    EXPECT_EQ(queue().size(), 100U);
}

TEST_P(Queue, release_says_that_it_has_to_be_sent_again_where_more_wait_than_one_run_looks_at) {
    hold();
    put_dead(10'130);
    acquire({.token = a});
    EXPECT_EQ(release(holder), 2);
    expect_free();
    EXPECT_EQ(queue().size(), 130U);
    EXPECT_EQ(release(holder), 0) << "it has it no more";
    EXPECT_EQ(owner(), a);
    EXPECT_EQ(redis_.keys(), Tokens{"job"});
}

TEST_P(Queue, release_of_what_was_lost_says_so_where_more_wait_than_one_run_looks_at) {
    hold();
    put_dead(10'130);
    acquire({.token = a});
    redis_.del(keys_.lock);
    EXPECT_EQ(release(holder), -1);
    EXPECT_EQ(release(holder), 0);
    EXPECT_EQ(owner(), a);
}

TEST_P(Queue, release_does_not_go_on_for_ever_where_nobody_can_be_told) {
    hold();
    put_unheard(10'130);
    EXPECT_EQ(release(holder), 1);
    expect_free();
    EXPECT_EQ(queue().size(), 10'130U);
}

TEST_P(Queue, free_lock_behind_too_many_dead_is_nobodys_yet) {
    put_dead(20'232);
    Answered refused = acquire({.token = a, .stay = 0});
    EXPECT_FALSE(refused.ours);
    EXPECT_EQ(refused.ttl, -2);
    EXPECT_EQ(refused.place, -1);
    EXPECT_FALSE(refused.grants) << "has to ask again";
    EXPECT_EQ(queue().size(), 10'231U);
    refused = acquire({.token = a});
    EXPECT_FALSE(refused.ours);
    EXPECT_EQ(refused.ttl, -2);
    EXPECT_EQ(refused.place, 230);
    EXPECT_FALSE(refused.grants);
    expect_free();
    EXPECT_TRUE(acquire({.token = a}).ours);
    EXPECT_EQ(redis_.keys(), Tokens{"job"});
}

TEST_P(Queue, acquire_of_a_free_lock_keeps_no_place_behind_too_many_who_cannot_be_told) {
    for (const bool has_waited : {false, true}) {
        for (const int stay : {30'000, 0, -1}) {
            redis_.flushall();
            put_unheard(10'130);
            if (has_waited)
                put(a, to_string(GetParam()) + " 60000 " + std::to_string(now() + 60'000'000) +
                           " 0 0");
            EXPECT_TRUE(acquire({.token = a, .lease = 20'000, .stay = stay}).ours);
            expect_owner(a, 20'000);
            EXPECT_EQ(queue().size(), 10'130U) << has_waited << ' ' << stay;
            EXPECT_FALSE(has_terms(a));
        }
    }
}

TEST_P(Queue, acquire_that_finds_the_key_absent_serves_those_who_waited) {
    Listener ear{server_, a};
    for (const int stay : {30'000, 0, -1}) {
        redis_.flushall();
        hold();
        acquire({.token = a, .lease = 20'000, .hears = true});
        acquire({.token = b});
        redis_.del(keys_.lock);  // its lease has ended
        const Answered refused = acquire({.token = c, .stay = stay});
        EXPECT_FALSE(refused.ours);
        EXPECT_EQ(refused.ttl, 20'000);
        EXPECT_EQ(refused.place, stay > 0 ? 1 : -1);
        EXPECT_TRUE(refused.grants);
        expect_owner(a, 20'000);
        expect_queue(stay > 0 ? Tokens{b, c} : Tokens{b});
        const auto grant = ear.next_grant();
        ASSERT_TRUE(grant);
        EXPECT_EQ(grant->token, a);
        EXPECT_EQ(grant->server, run_id);
        EXPECT_EQ(grant->time.count(), refused.time);
    }
}

TEST_P(Queue, acquire_that_finds_the_key_absent_takes_it_where_nobody_alive_waits) {
    for (const int stay : {30'000, 0, -1}) {
        redis_.flushall();
        put_dead(5);
        EXPECT_TRUE(acquire({.token = c, .lease = 20'000, .stay = stay}).ours);
        expect_owner(c, 20'000);
        EXPECT_EQ(redis_.keys(), Tokens{"job"});

        redis_.flushall();
        hold();
        acquire({.token = a, .hears = true});  // without a subscriber
        redis_.del(keys_.lock);
        EXPECT_TRUE(acquire({.token = c, .lease = 20'000, .stay = stay}).ours);
        expect_owner(c, 20'000);
        expect_queue({a});
    }
}

TEST_P(Queue, acquire_by_the_first_takes_what_is_free) {
    for (const int stay : {30'000, 0, -1}) {
        redis_.flushall();
        hold();
        acquire({.token = a, .lease = 90'000, .hears = true});
        acquire({.token = b});
        redis_.del(keys_.lock);
        const Answered taken = acquire({.token = a, .lease = 20'000, .stay = stay, .hears = true});
        EXPECT_TRUE(taken.ours) << "whether its client listens or not";
        EXPECT_EQ(taken.ttl, 20'000);
        expect_owner(a, 20'000);
        expect_queue({b});
    }
}

TEST_P(Queue, acquire_by_the_second_gives_way_to_the_first) {
    hold();
    acquire({.token = a});
    acquire({.token = b});
    redis_.del(keys_.lock);
    const Answered refused = acquire({.token = b, .stay = -1});
    EXPECT_FALSE(refused.ours);
    EXPECT_EQ(refused.place, -1) << "it has left";
    EXPECT_EQ(owner(), a);
    EXPECT_EQ(redis_.keys(), Tokens{"job"});
}

TEST_P(Queue, acquire_by_the_one_who_was_given_the_lock_says_ours) {
    hold();
    acquire({.token = a, .lease = 20'000});
    EXPECT_EQ(release(holder), 1);
    EXPECT_TRUE(acquire({.token = a, .lease = 20'000}).ours);
    expect_owner(a, 20'000);
    EXPECT_EQ(redis_.keys(), Tokens{"job"});
}

TEST_P(Queue, negative_stay_leaves_and_none_changes_nothing) {
    hold();
    acquire({.token = a});
    acquire({.token = b});
    const std::string before = state();
    EXPECT_EQ(acquire({.token = c, .stay = 0}).place, -1);
    EXPECT_EQ(acquire({.token = b, .lease = 5'000, .stay = 0, .hears = true}).place, 1);
    EXPECT_EQ(acquire({.token = c, .stay = -1}).place, -1);
    EXPECT_EQ(state(), before);
    EXPECT_EQ(acquire({.token = a, .stay = -1}).place, -1);
    expect_queue({b});
    EXPECT_EQ(acquire({.token = b, .stay = -1}).place, -1);
    EXPECT_EQ(redis_.keys(), Tokens{"job"});
    EXPECT_EQ(owner(), holder);
}

TEST_P(Queue, release_gives_nothing_to_its_own_token) {
    hold();
    put(holder, to_string(GetParam()) + " 60000 " + std::to_string(now() + 60'000'000) + " 0 0");
    acquire({.token = a});
    expect_queue({holder, a});
    EXPECT_EQ(release(holder), 1);
    EXPECT_EQ(owner(), a);
    EXPECT_EQ(redis_.keys(), Tokens{"job"});
}

TEST_P(Queue, terms_that_were_lost_are_told_anew_and_the_place_is_kept) {
    hold();
    acquire({.token = a, .stay = 60'000});
    acquire({.token = b});
    redis_.del(keys_.waiters);
    EXPECT_EQ(acquire({.token = a, .lease = 5'000, .stay = 10'000}).place, 0);
    EXPECT_EQ(acquire({.token = b}).place, 1);
    expect_queue({a, b});
    EXPECT_EQ(terms(a).lease, 5'000);
    for (const std::string& key : {keys_.queue, keys_.waiters}) EXPECT_GT(redis_.pttl(key), 0);
    EXPECT_EQ(release(holder), 1);
    expect_owner(a, 5'000);
}

TEST_P(Queue, release_by_one_who_waits_leaves_the_queue_only) {
    hold();
    acquire({.token = a});
    acquire({.token = b});
    EXPECT_EQ(release(a), 0);
    expect_queue({b});
    expect_owner(holder, 60'000);
    EXPECT_EQ(release(a), 0);
    expect_queue({b});
    EXPECT_EQ(release(c), 0) << "known to nobody";
    expect_queue({b});
    EXPECT_EQ(release(b), 0);
    EXPECT_EQ(redis_.keys(), Tokens{"job"});
}

TEST_P(Queue, release_that_finds_the_key_absent_serves_those_who_waited) {
    for (const std::string& token : {a, c}) {
        redis_.flushall();
        hold();
        acquire({.token = a});
        acquire({.token = b});
        redis_.del(keys_.lock);
        EXPECT_EQ(release(token), 0);
        EXPECT_EQ(owner(), token == a ? b : a);
        expect_queue(token == a ? Tokens{} : Tokens{b});
    }
}

TEST_P(Queue, without_waiters_nothing_is_left_behind) {
    hold();
    EXPECT_EQ(redis_.keys(), Tokens{"job"});
    EXPECT_EQ(release(holder), 1);
    EXPECT_TRUE(redis_.keys().empty());
    EXPECT_EQ(release(holder), 0);
    EXPECT_EQ(force(), 0);
    EXPECT_TRUE(redis_.keys().empty());
    hold();
    EXPECT_EQ(force(), 1);
    EXPECT_TRUE(redis_.keys().empty());
    EXPECT_EQ(waiters(), 0);
    EXPECT_TRUE(redis_.keys().empty());
}

TEST_P(Queue, companions_always_expire) {
    const auto ends_within = [this](long long low, long long high) {
        for (const std::string& key : {keys_.queue, keys_.waiters}) {
            EXPECT_GT(redis_.pttl(key), low) << key;
            EXPECT_LE(redis_.pttl(key), high) << key;
        }
    };
    hold();
    acquire({.token = a, .stay = 60'000, .hears = true});
    ends_within(110'000, 120'000);
    acquire({.token = b, .stay = 20'000});
    ends_within(110'000, 120'000);
    acquire({.token = c, .stay = 150'000});
    ends_within(290'000, 300'000);
    acquire({.token = a, .stay = 1'000, .hears = true});
    ends_within(290'000, 300'000);
    EXPECT_EQ(release(holder), 1) << "which passes one over and removes another";
    EXPECT_EQ(owner(), b);
    ends_within(290'000, 300'000);
    EXPECT_EQ(release(a), 0);
    ends_within(290'000, 300'000);
    acquire({.token = a, .stay = 400'000});
    ends_within(790'000, 800'000);
    EXPECT_EQ(force(), 1);
    EXPECT_EQ(owner(), c);
    ends_within(790'000, 800'000);
}

TEST_P(Queue, forgotten_queue_vanishes_by_itself) {
    hold();
    acquire({.token = a, .stay = 50});
    EXPECT_TRUE(eventually([this] { return redis_.keys() == Tokens{"job"}; }));
}

TEST_P(Queue, each_is_given_the_lock_in_its_own_shape) {
    for (const auto& [waiter, key_type] :
         {std::pair{a, KeyType::hash}, std::pair{b, KeyType::string},
          std::pair{c, KeyType::hash}}) {
        hold_by_hand(key_type);
        acquire({.token = waiter}, key_type);
    }
    hold_by_hand(GetParam());
    EXPECT_EQ(release(holder), 1);
    for (const std::string& next : {a, b, c}) {
        EXPECT_EQ(key_type(), next == b ? KeyType::string : KeyType::hash);
        expect_owner(next, 60'000);
        EXPECT_EQ(number(scripts_on(key_type()).release, {next, run_id}), 1);
    }
    EXPECT_TRUE(redis_.keys().empty());
}

TEST_P(Queue, acquire_of_an_absent_key_serves_one_of_the_other_shape_too) {
    const KeyType other = GetParam() == KeyType::string ? KeyType::hash : KeyType::string;
    hold_by_hand(other);
    acquire({.token = a, .lease = 20'000}, other);
    redis_.del(keys_.lock);
    const Answered refused = acquire({.token = b});
    EXPECT_FALSE(refused.ours);
    EXPECT_EQ(refused.ttl, 20'000);
    EXPECT_EQ(key_type(), other);
    expect_owner(a, 20'000);
}

TEST_P(Queue, lock_alone_does_without_one) {
    const auto alone = [this](const Script& script, const std::vector<std::string>& arguments) {
        RawReply reply = eval(redis_, script, {keys_.lock}, arguments);
        EXPECT_FALSE(reply.is_error()) << reply.text;
        return reply;
    };
    const auto ask = [&](const std::string& token) {
        return alone(scripts_.acquire, {token, "60000", "30000", "1", run_id});
    };
    EXPECT_EQ(ask(holder).elements.at(0).integer, 1);
    const RawReply refused = ask(a);
    ASSERT_EQ(refused.elements.size(), 2U);
    EXPECT_EQ(refused.elements[0].integer, 0);
    EXPECT_GT(refused.elements[1].integer, 50'000);
    EXPECT_EQ(alone(scripts_.inspect, {""}).elements.at(3).integer, 0);
    EXPECT_EQ(alone(scripts_.release, {a, run_id}).integer, 0);
    EXPECT_EQ(owner(), holder);
    EXPECT_EQ(alone(scripts_.release, {holder, run_id}).integer, 1);
    EXPECT_TRUE(redis_.keys().empty());
    EXPECT_EQ(ask(a).elements.at(0).integer, 1);
    EXPECT_EQ(alone(scripts_.force_unlock, {a, run_id}).integer, 1);
    EXPECT_TRUE(redis_.keys().empty());
}

TEST_P(Queue, foreign_owner_gives_the_lock_to_nobody) {
    const std::string id(32, 'f');
    const std::map<std::string, bool> owners{{holder, true},
                                             {std::string(32, 'F') + ":", true},
                                             {"foreign", false},
                                             {"1", false},
                                             {id, false},
                                             {id.substr(1) + ":x", false},
                                             {id + "f:x", false},
                                             {std::string(32, 'g') + ":x", false},
                                             {"x" + id + ":x", false},
                                             {"8743c9c0-0795-4907-87fd-6c719a6b4586:1", false}};
    for (const auto& [owner, is_ours] : owners) {
        redis_.flushall();
        hold_by_hand(GetParam(), owner);
        const Answered refused = acquire({.token = a});
        EXPECT_EQ(refused.grants, is_ours) << owner;
        EXPECT_EQ(refused.owner, owner);
        EXPECT_EQ(refused.place, 0);
        EXPECT_EQ(refused.ttl, -1);
    }
}

TEST_P(Queue, owner_that_is_told_is_no_longer_than_a_token_of_ours_can_be) {
    const std::string longest = std::string(32, 'f') + ":" + std::string(64, 'n') + ":" +
                                std::string(20, '1') + ":" + std::string(20, '2');
    for (const std::string& owner : {longest, std::string(100'000, 'x')}) {
        hold_by_hand(GetParam(), owner);
        EXPECT_EQ(acquire({.token = a}).owner, owner.substr(0, 160));
    }
}

TEST_P(Queue, waits_for_a_foreign_lock_and_is_served_when_it_is_gone) {
    hold_by_hand(GetParam(), "foreign");
    acquire({.token = a, .lease = 20'000});
    acquire({.token = b});
    redis_.del(keys_.lock);
    EXPECT_EQ(acquire({.token = b}).place, 0);
    expect_owner(a, 20'000);
}

TEST_P(Queue, release_gives_nothing_away_while_another_owns_the_hash_too) {
    if (GetParam() == KeyType::string) return;  // a string has one owner
    hold();
    redis_.command({"HSET", keys_.lock, "foreign:1", "2"});
    acquire({.token = a});
    EXPECT_EQ(release(holder), 1);
    EXPECT_EQ(owner(), "foreign:1");
    expect_queue({a});
}

TEST_P(Queue, key_of_another_type_changes_nothing) {
    hold();
    acquire({.token = a});
    acquire({.token = b});
    redis_.del(keys_.lock);
    redis_.command({"RPUSH", keys_.lock, "data"});
    const auto dump = [this] {
        std::vector<std::string> all;
        for (const std::string& key : redis_.keys())
            all.push_back(redis_.command({"DUMP", key}).text);
        return all;
    };
    const auto before = dump();
    ASSERT_EQ(before.size(), 3U);
    for (const std::string& token : {a, b, c, holder}) {
        for (const std::string stay : {"30000", "0", "-1"}) {
            EXPECT_TRUE(
                run(scripts_.acquire, {token, "60000", stay, "1", run_id}).text.find("WRONGTYPE") !=
                std::string::npos);
        }
        for (const Script* script :
             {&scripts_.release, &scripts_.extend, &scripts_.inspect, &scripts_.force_unlock}) {
            EXPECT_NE(run(*script, {token, "60000"}).text.find("WRONGTYPE"), std::string::npos);
        }
    }
    EXPECT_EQ(dump(), before);
}

TEST_P(Queue, inspect_counts_and_changes_nothing) {
    EXPECT_EQ(waiters(), 0);
    hold();
    EXPECT_EQ(waiters(), 0);
    acquire({.token = a});
    acquire({.token = b});
    const std::string before = state();
    EXPECT_EQ(waiters(), 2);
    EXPECT_EQ(state(), before);
    redis_.del(keys_.lock);
    const RawReply reply = run(scripts_.inspect, {""});
    EXPECT_EQ(reply.elements.at(0).text, "");
    EXPECT_EQ(reply.elements.at(2).integer, -2);
    EXPECT_EQ(reply.elements.at(3).integer, 2) << "they wait for nobody";
    expect_free();
}

TEST_P(Queue, force_serves_the_next) {
    Listener ear{server_, a};
    hold();
    acquire({.token = a, .lease = 20'000, .hears = true});
    acquire({.token = b});
    EXPECT_EQ(force(), 1);
    expect_owner(a, 20'000);
    expect_queue({b});
    const auto grant = ear.next_grant();
    ASSERT_TRUE(grant);
    EXPECT_EQ(grant->token, a);
    EXPECT_EQ(grant->server, run_id);
}

// A late try may have got the lock for a token that has a place already.
TEST_P(Queue, force_of_an_owner_with_a_place_serves_the_one_behind_it) {
    hold();
    ASSERT_EQ(acquire({.token = a}).place, 0);
    ASSERT_EQ(acquire({.token = b}).place, 1);
    hold_by_hand(GetParam(), a);
    EXPECT_EQ(force(), 1);
    expect_owner(b, 60'000);
    expect_queue({});
}

TEST_P(Queue, force_of_an_absent_lock_leaves_the_queue_alone) {
    hold();
    acquire({.token = a});
    redis_.del(keys_.lock);
    EXPECT_EQ(force(), 0);
    expect_free();
    expect_queue({a});
}

TEST_P(Queue, scripts_of_the_holder_do_not_disturb_it) {
    hold();
    acquire({.token = a});
    acquire({.token = b});
    const std::string before = state();
    EXPECT_TRUE(acquire({.token = holder}).ours);
    EXPECT_EQ(number(scripts_.extend, {holder, "90000"}), 1);
    EXPECT_EQ(number(scripts_.extend, {a, "90000"}), 0);
    if (GetParam() == KeyType::hash) {
        EXPECT_EQ(number(scripts_.nest, {a, "2", "60000"}), 0);
        EXPECT_EQ(number(scripts_.nest, {holder, "2", "60000"}), 1);
        EXPECT_EQ(number(scripts_.nest, {holder, "1", "60000"}), 1);
    }
    EXPECT_EQ(state(), before);
}

TEST_P(Queue, scripts_run_twice_leave_the_same_as_once) {
    const auto ask = [this](Asking asking) { return [this, asking] { acquire(asking); }; };
    const std::map<std::string, std::function<void()>> steps{
        {"acquire by the holder", ask({.token = holder})},
        {"acquire by the first", ask({.token = a, .hears = true})},
        {"acquire by the second", ask({.token = b})},
        {"acquire by a new one", ask({.token = c})},
        {"acquire by a new one that will not wait", ask({.token = c, .stay = 0})},
        {"acquire by the second that will not wait", ask({.token = b, .stay = 0})},
        {"acquire by the second that leaves", ask({.token = b, .stay = -1})},
        {"release by the holder", [this] { release(holder); }},
        {"release by the first", [this] { release(a); }},
        {"release by the second", [this] { release(b); }},
        {"release by nobody", [this] { release(c); }},
        {"extend",
         [this] {
             run(scripts_.extend, {holder, "90000"});
         }},
        {"inspect", [this] { waiters(); }},
    };
    Listener ear{server_, a};
    for (const bool absent : {false, true}) {
        for (const auto& [name, step] : steps) {
            redis_.flushall();
            hold();
            acquire({.token = a, .hears = true});
            acquire({.token = b});
            if (absent) redis_.del(keys_.lock);
            step();
            const std::string once = state();
            if (owner() == a) {
                // A grant is told once, and never to who has just asked.
                if (name != "acquire by the first") {
                    EXPECT_TRUE(ear.next_grant()) << name;
                }
            }
            step();
            EXPECT_EQ(state(), once) << name << (absent ? ", key absent" : "");
            EXPECT_TRUE(ear.silent()) << name << (absent ? ", key absent" : "");
        }
    }
}

TEST_P(Queue, release_run_again_answers_zero_and_leaves_the_next_ones_alone) {
    hold();
    acquire({.token = a});
    acquire({.token = b});
    EXPECT_EQ(release(holder), 1);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(release(holder), 0);
    EXPECT_EQ(owner(), a);
    expect_queue({b});
}

TEST_P(Queue, acquire_run_late_takes_a_place_until_it_runs_out_or_is_released_once_more) {
    hold();
    acquire({.token = a});
    EXPECT_EQ(release(a), 0);
    EXPECT_EQ(acquire({.token = a}).place, 0) << "it was still on its way";
    EXPECT_EQ(release(a), 0);
    EXPECT_EQ(redis_.keys(), Tokens{"job"});
    acquire({.token = a, .stay = 20});
    acquire({.token = b});
    const long long end = terms(a).seen_until;
    EXPECT_TRUE(eventually([&] { return now() > end; }));
    EXPECT_EQ(release(holder), 1);
    EXPECT_EQ(owner(), b);
}

TEST_P(Queue, run_late_by_the_dead_one_who_was_given_the_lock_frees_it_for_the_next) {
    hold();
    acquire({.token = a});
    acquire({.token = b});
    EXPECT_EQ(release(holder), 1);
    EXPECT_EQ(owner(), a);
    EXPECT_EQ(release(a), 1) << "it gave up meanwhile";
    EXPECT_EQ(owner(), b);
}

/// Users to whom one thing is forbidden each.
class QueueOfTheLimited : public Queue {
protected:
    void expect_served_without(const std::string& forbidden, bool is_told) {
        redis_.auth("default", "");
        redis_.flushall();
        redis_.command({"ACL", "SETUSER", "limited", "reset", "on", "nopass", "~*", "+@all"});
        EXPECT_FALSE(redis_.command({"ACL", "SETUSER", "limited", forbidden}).is_error());
        Listener ear{server_, a};
        redis_.auth("limited", "any");
        hold();
        acquire({.token = a, .lease = 20'000, .hears = true});
        EXPECT_EQ(release(holder), 1) << forbidden;
        expect_owner(a, 20'000);
        EXPECT_EQ(redis_.keys(), Tokens{"job"});
        if (is_told) {
            EXPECT_TRUE(ear.next_grant());
        }
        EXPECT_TRUE(ear.silent()) << forbidden;

        acquire({.token = b, .lease = 20'000, .hears = true});
        Listener other_ear{server_, b};
        redis_.del(keys_.lock);
        EXPECT_FALSE(acquire({.token = c, .stay = 0}).ours) << forbidden;
        expect_owner(b, 20'000);
        if (is_told) {
            EXPECT_TRUE(other_ear.next_grant());
        }
        EXPECT_TRUE(other_ear.silent()) << forbidden;
    }
};

INSTANTIATE_TEST_SUITE_P(On, QueueOfTheLimited, ::testing::Values(KeyType::string, KeyType::hash),
                         [](const auto& key_type) -> std::string {
                             return key_type.param == KeyType::string ? "string" : "hash";
                         });

TEST_P(QueueOfTheLimited, is_served_without_a_word_where_publish_is_forbidden) {
    expect_served_without("-publish", false);
    if (redis_server_version() >= redis_6_2) expect_served_without("resetchannels", false);
}

TEST_P(QueueOfTheLimited, is_served_where_subscribers_cannot_be_counted) {
    expect_served_without("-pubsub", true);
}

}  // namespace
}  // namespace redlatch::test
