# Every public header, bottom layer first: each includes only headers that stand above it here (the test
# static.layers). What is missing is not installed and not checked (static.header_list).
set(REDLATCH_HEADERS
    # vocabulary
    include/redlatch/version.hpp
    include/redlatch/compilation.hpp
    include/redlatch/clock.hpp
    include/redlatch/types.hpp
    include/redlatch/error.hpp
    include/redlatch/result.hpp
    include/redlatch/uri.hpp
    include/redlatch/executor.hpp
    include/redlatch/options.hpp
    include/redlatch/observer.hpp
    # what a kind of lock is: its keys, its key type
    include/redlatch/core/slot.hpp
    include/redlatch/policy/lock_keys.hpp
    include/redlatch/policy/lock_policy.hpp
    # core: machines that decide, without a clock, a mutex, a thread or I/O
    include/redlatch/core/random.hpp
    include/redlatch/core/fault.hpp
    include/redlatch/core/command.hpp
    include/redlatch/core/server_address.hpp
    include/redlatch/core/redirection.hpp
    include/redlatch/core/slot_map.hpp
    include/redlatch/core/slot_map_refresh.hpp
    include/redlatch/core/cluster_redirection.hpp
    include/redlatch/core/sentinel_lookup.hpp
    include/redlatch/core/backoff.hpp
    include/redlatch/core/validity.hpp
    include/redlatch/core/recheck.hpp
    include/redlatch/core/server_clock.hpp
    include/redlatch/core/grant.hpp
    include/redlatch/core/describe_owner.hpp
    include/redlatch/core/lock_owner.hpp
    include/redlatch/core/clean_up.hpp
    include/redlatch/core/master_sets.hpp
    include/redlatch/core/token_state.hpp
    include/redlatch/core/hold.hpp
    include/redlatch/core/attempts.hpp
    include/redlatch/core/handoff.hpp
    include/redlatch/core/intrusive_list.hpp
    include/redlatch/core/lock_table.hpp
    include/redlatch/core/release.hpp
    include/redlatch/core/acquisition.hpp
    include/redlatch/core/vote_count.hpp
    include/redlatch/core/schedule.hpp
    include/redlatch/core/renewal.hpp
    include/redlatch/core/nesting.hpp
    include/redlatch/core/extension.hpp
    include/redlatch/core/transfer.hpp
    include/redlatch/core/quorum_call.hpp
    # net: talking to one server
    include/redlatch/net/process_id.hpp
    include/redlatch/net/endpoint.hpp
    include/redlatch/net/uri_parser.hpp
    include/redlatch/net/limit.hpp
    include/redlatch/net/server_error.hpp
    include/redlatch/net/thread.hpp
    include/redlatch/net/service_thread.hpp
    include/redlatch/net/sha1.hpp
    include/redlatch/net/reply.hpp
    include/redlatch/net/reply_bounds.hpp
    include/redlatch/net/script.hpp
    include/redlatch/net/call.hpp
    include/redlatch/net/socket.hpp
    include/redlatch/net/wake_descriptor.hpp
    include/redlatch/net/background_call.hpp
    include/redlatch/net/resolve.hpp
    include/redlatch/net/pending_replies.hpp
    include/redlatch/net/stream.hpp
    include/redlatch/net/tls_layer.hpp
    include/redlatch/net/connection.hpp
    include/redlatch/net/pipeline.hpp
    include/redlatch/net/dialer.hpp
    include/redlatch/net/own_connection.hpp
    include/redlatch/net/exchange.hpp
    include/redlatch/net/pool.hpp
    include/redlatch/net/node.hpp
    # topology: which server for this key
    include/redlatch/topology/topology.hpp
    include/redlatch/topology/background_connect.hpp
    include/redlatch/topology/single_master.hpp
    include/redlatch/topology/sentinel.hpp
    include/redlatch/topology/cluster.hpp
    include/redlatch/topology/master.hpp
    include/redlatch/topology/quorum_reply.hpp
    include/redlatch/topology/quorum_poll.hpp
    include/redlatch/topology/quorum.hpp
    # policies: which scripts
    include/redlatch/policy/scripts.hpp
    include/redlatch/policy/lua.hpp
    include/redlatch/policy/simple.hpp
    include/redlatch/policy/reentrant.hpp
    include/redlatch/policy/redisson_reentrant.hpp
    include/redlatch/policy/watchdog.hpp
    include/redlatch/policy/fenced.hpp
    # services: one running thing each
    include/redlatch/service/parker.hpp
    include/redlatch/service/hold_calls.hpp
    include/redlatch/service/contention.hpp
    include/redlatch/service/reply_drainer.hpp
    include/redlatch/service/lock_table_monitor.hpp
    include/redlatch/service/listener.hpp
    include/redlatch/service/subscription.hpp
    include/redlatch/service/subscriptions.hpp
    include/redlatch/service/sentinel_watch.hpp
    include/redlatch/service/callback_threads.hpp
    include/redlatch/service/notifier.hpp
    include/redlatch/service/completion_threads.hpp
    include/redlatch/service/eviction_check.hpp
    include/redlatch/service/renewal_thread.hpp
<<<<<<< HEAD
=======
    include/redlatch/service/order_route.hpp
    include/redlatch/service/quorum_route.hpp
    include/redlatch/service/engine.hpp
>>>>>>> b0f7435 (Engine: orders in a Cluster, to Sentinel's master, and to several masters)
    include/redlatch/service/client_setup.hpp
    include/redlatch/service/session.hpp
    include/redlatch/service/shared_client.hpp
    include/redlatch/client.hpp
    # steps: what a lock does with a client
    include/redlatch/steps/lock_spec.hpp
    include/redlatch/steps/check_lock.hpp
    include/redlatch/steps/hold_ref.hpp
    include/redlatch/steps/release_steps.hpp
    include/redlatch/steps/releasing.hpp
    include/redlatch/steps/thread_serial.hpp
    include/redlatch/steps/acquisition_steps.hpp
    include/redlatch/steps/acquire.hpp
    include/redlatch/steps/extend.hpp
    include/redlatch/steps/transferring.hpp
    include/redlatch/steps/lost.hpp
    include/redlatch/steps/inspect.hpp
    # async: the same without a thread that waits
    include/redlatch/async/async_call.hpp
    include/redlatch/async/operation.hpp
    include/redlatch/async/ready_call.hpp
    include/redlatch/async/release_operation.hpp
    include/redlatch/async/extend_operation.hpp
    include/redlatch/async/acquire_operation.hpp
    include/redlatch/async/inspect_operation.hpp
    # front ends
    include/redlatch/async_result.hpp
    include/redlatch/held.hpp
    include/redlatch/lock_impl.hpp
    include/redlatch/lock.hpp
    include/redlatch/lock_guard.hpp
    include/redlatch/completion_queue.hpp
    include/redlatch/metrics.hpp
    include/redlatch/redlatch.hpp
    include/redlatch/testing.hpp
    include/redlatch/source.hpp
)

# The Lua that policy/lua.hpp includes: installed with the headers, and none of them.
set(REDLATCH_LUA
    include/redlatch/lua/acquire.lua
    include/redlatch/lua/claim_acquire.lua
    include/redlatch/lua/claim_downgrade.lua
    include/redlatch/lua/claim_extend.lua
    include/redlatch/lua/claim_inspect.lua
    include/redlatch/lua/claim_move.lua
    include/redlatch/lua/claim_of.lua
    include/redlatch/lua/claim_queue.lua
    include/redlatch/lua/claim_release.lua
    include/redlatch/lua/claim_set_permits.lua
    include/redlatch/lua/claims.lua
    include/redlatch/lua/extend.lua
    include/redlatch/lua/fencing.lua
    include/redlatch/lua/force_unlock.lua
    include/redlatch/lua/inspect.lua
    include/redlatch/lua/move.lua
    include/redlatch/lua/nest.lua
    include/redlatch/lua/notify_redisson.lua
    include/redlatch/lua/only_on_master.lua
    include/redlatch/lua/queue.lua
    include/redlatch/lua/release.lua
    include/redlatch/lua/tombstone.lua
)

# The one that needs OpenSSL: installed like the others, read only where that is there.
set(REDLATCH_TLS_HEADERS
    include/redlatch/tls.hpp
)
