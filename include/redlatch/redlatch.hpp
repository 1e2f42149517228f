#pragma once

// Distributed locks on Redis. Everything that most programs need;
// `<redlatch/metrics.hpp>`, `<redlatch/testing.hpp>`, `<redlatch/tls.hpp>` and `<redlatch/asio.hpp>` are apart.

#include <redlatch/client.hpp>
#include <redlatch/completion_queue.hpp>
#include <redlatch/lock.hpp>
#include <redlatch/lock_guard.hpp>
#include <redlatch/lock_set.hpp>
#include <redlatch/observer.hpp>
#include <redlatch/policy/fenced.hpp>
#include <redlatch/policy/redisson_reentrant.hpp>
#include <redlatch/policy/reentrant.hpp>
#include <redlatch/policy/scripts.hpp>
#include <redlatch/policy/shared.hpp>
#include <redlatch/policy/simple.hpp>
#include <redlatch/policy/watchdog.hpp>
#include <redlatch/semaphore.hpp>
#include <redlatch/version.hpp>
