#pragma once

/// @mainpage API reference
/// `<redlatch/redlatch.hpp>` has all that most programs need; the <a href="../docs/guide/">guide</a> shows how
/// to use it. It declares in `redlatch`:
/// - redlatch::Client and redlatch::ClientOptions: the servers;
/// - redlatch::Lock, redlatch::LockSet, redlatch::Semaphore: handles on what the servers keep, and
///   redlatch::LockOptions;
/// - redlatch::Held, redlatch::HeldSet, redlatch::LockGuard, redlatch::SharedGuard: what is held;
/// - redlatch::Simple, redlatch::Reentrant, redlatch::RedissonReentrant, redlatch::Shared: the kinds of lock, and
///   redlatch::Watchdog and redlatch::Fenced, which add to them;
/// - redlatch::Result, redlatch::Error and redlatch::Errc: what went wrong;
/// - redlatch::AsyncResult, redlatch::Executor, redlatch::CompletionQueue: without a thread that waits;
/// - redlatch::Observer: what happens to locks.
///
/// These are apart: `<redlatch/metrics.hpp>` with redlatch::Metrics, `<redlatch/log_observer.hpp>` with
/// redlatch::LogObserver, `<redlatch/testing.hpp>` with redlatch::TestServer, `<redlatch/tls.hpp>` with
/// redlatch::tls(), and `<redlatch/asio.hpp>` for Asio's completion tokens.

/// @namespace redlatch
/// All of the library. Types are in an inline namespace with the number of the version, which
/// programs do not write.

#include <redlatch/client.hpp>
#include <redlatch/completion_queue.hpp>
#include <redlatch/lock.hpp>
#include <redlatch/lock_guard.hpp>
#include <redlatch/lock_set.hpp>
#include <redlatch/names.hpp>
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
