#pragma once

#include <redlatch/redlatch.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>

// Locks with mistakes that others have made, for the checkers to find: what they would not find here,
// they would not find in the library either. Each is the library's own policy with one thing changed.

namespace redlatch::test::fault {

/// Frees the lock whoever has it.
struct ReleaseByDel : Simple {
    static const LockScripts& scripts() {
        static const LockScripts changed = [] {
            LockScripts scripts = Simple::scripts();
            scripts.release = Script{"return redis.call('DEL', KEYS[1])"};
            return scripts;
        }();
        return changed;
    }
};

/// Extends the lock whoever has it.
struct ExtendAnyones : Simple {
    static const LockScripts& scripts() {
        static const LockScripts changed = [] {
            LockScripts scripts = Simple::scripts();
            scripts.extend = Script{R"lua(
local lock, lease = KEYS[1], tonumber(ARGV[2])
if redis.call('EXISTS', lock) == 0 then
  return 0
end
if redis.call('PTTL', lock) < lease then
  redis.call('PEXPIRE', lock, lease)
end
return 1
)lua"};
            return scripts;
        }();
        return changed;
    }
};

/// Every acquisition of a client has the same token: the client's id.
struct ReusedToken : Simple {
    static const LockScripts& scripts() {
        static const LockScripts changed = [] {
            const auto by_client = [](const Script& script) {
                return Script{"local ARGV = {string.sub(ARGV[1], 1, 32), unpack(ARGV, 2)}\n" +
                              std::string{script.source()}};
            };
            LockScripts scripts = Simple::scripts();
            scripts.acquire = by_client(scripts.acquire);
            scripts.extend = by_client(scripts.extend);
            scripts.release = by_client(scripts.release);
            scripts.move = Script{""};
            return scripts;
        }();
        return changed;
    }
};

/// The hold count goes up and down by one, also when the command is sent again, and frees the lock at
/// zero.
struct RelativeCount : Reentrant {
    static const LockScripts& scripts() {
        static const LockScripts changed = [] {
            LockScripts scripts = Reentrant::scripts();
            scripts.nest = Script{R"lua(
local lock, token, count = KEYS[1], ARGV[1], tonumber(ARGV[2])
local before = tonumber(redis.call('HGET', lock, token))
if not before then
  return 0
end
if redis.call('HINCRBY', lock, token, count > before and 1 or -1) <= 0 then
  redis.call('HDEL', lock, token)
end
return 1
)lua"};
            return scripts;
        }();
        return changed;
    }
};

/// A release tells nobody, and whoever stands in the queue never asks again.
struct SilentRelease : Simple {
    static const LockScripts& scripts() {
        static const LockScripts changed = [] {
            LockScripts scripts = Simple::scripts();
            scripts.acquire = Script{R"lua(
if KEYS[2] and redis.call('ZSCORE', KEYS[2], ARGV[1]) then
  local time = redis.call('TIME')
  return {0, 1000, 0, time[1] * 1000000 + time[2], 1}
end
)lua" + std::string{scripts.acquire.source()}};
            scripts.release = Script{R"lua(
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
)lua"};
            return scripts;
        }();
        return changed;
    }
};

/// Its fencing tokens are those of a counter that knows nothing of the time: it begins anew when its
/// key is lost.
struct CounterAlone : Fenced<Simple> {
    static const LockScripts& scripts() {
        static const LockScripts changed = [] {
            const auto by_counter = [](const Script& script) {
                const std::string rule = "math.max(last + 1, clock())";
                std::string source{script.source()};
                std::size_t at = source.find(rule);
                if (at == std::string::npos) throw std::logic_error{"no such rule: " + rule};
                for (; at != std::string::npos; at = source.find(rule)) {
                    source.replace(at, rule.size(), "last + 1");
                }
                return Script{source};
            };
            LockScripts scripts = Simple::scripts();
            scripts.acquire = by_counter(scripts.acquire);
            scripts.release = by_counter(scripts.release);
            scripts.move = by_counter(scripts.move);
            return scripts;
        }();
        return changed;
    }
};

/// Its losses are told to nobody: see `Reliance`.
struct Deaf : Simple {};

/// Says that it is renewed, and is not.
struct Unwatched : Simple {};

/// Takes a claim whether it fits in or not.
template <class Policy>
struct NeverFull : Policy {
    static const LockScripts& scripts() {
        static const LockScripts changed = [] {
            const std::string rule = "fits(weight, limit)";
            LockScripts scripts = Policy::scripts();
            std::string source{scripts.acquire.source()};
            for (std::size_t at = 0; (at = source.find(rule)) != std::string::npos;) {
                source.replace(at, rule.size(), "true");
            }
            scripts.acquire = Script{source};
            return scripts;
        }();
        return changed;
    }
};

/// A set that leaves one of its locks out: see `Worker`.
struct PartOfSet : Simple {};

/// What is awaited completes, and once more: see `AsyncWorker`.
struct CompletesTwice : Simple {};

/// A lock is delivered when its lease is over: see `AsyncWorker`.
struct DeliversLate : Simple {};

/// Who is not waited for any more gets the lock nevertheless, and keeps it: see `AsyncWorker`.
struct KeepsUntaken : Watchdog<Simple> {};

/// Nothing wrong at the server, but the client counts its validity from the answer: see `Reliance`.
struct CountsFromReply : Simple {};

}  // namespace redlatch::test::fault
