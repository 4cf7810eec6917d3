# SPDX-License-Identifier: BSD-2-Clause
FABTESTS_COMMON_SRCS = \
	fabtests/common/ft_hist.c \
	fabtests/common/ft_num.c \
	fabtests/common/ft_options.c \
	fabtests/common/ft_pattern.c \
	fabtests/common/ft_port.c \
	fabtests/common/ft_proc.c \
	fabtests/common/ft_progress.c \
	fabtests/common/ft_test.c \
	# EOL

# A shared object of its own: build/test/libcuda.so.1
CUDA_STAND_IN_SRCS = \
	fabtests/common/cuda_stand_in.c \
	fabtests/common/cuda_stand_in_map.c \
	# EOL

# And build/test/libcufile.so.0
CUFILE_STAND_IN_SRCS = \
	fabtests/common/cufile_stand_in.c \
	# EOL

TOOLS += te_bench

SRCS_te_bench = \
	fabtests/benchmarks/te_bench.c \
	fabtests/benchmarks/te_bench_child.c \
	fabtests/benchmarks/te_bench_copy.c \
	fabtests/benchmarks/te_bench_create.c \
	fabtests/benchmarks/te_bench_demo.c \
	fabtests/benchmarks/te_bench_engine.c \
	fabtests/benchmarks/te_bench_idle.c \
	fabtests/benchmarks/te_bench_initiator.c \
	fabtests/benchmarks/te_bench_json.c \
	fabtests/benchmarks/te_bench_memory.c \
	fabtests/benchmarks/te_bench_options.c \
	fabtests/benchmarks/te_bench_prepared.c \
	fabtests/benchmarks/te_bench_raw.c \
	fabtests/benchmarks/te_bench_raw_loop.c \
	fabtests/benchmarks/te_bench_raw_port.c \
	fabtests/benchmarks/te_bench_register.c \
	fabtests/benchmarks/te_bench_report.c \
	fabtests/benchmarks/te_bench_run.c \
	fabtests/benchmarks/te_bench_segments.c \
	fabtests/benchmarks/te_bench_target.c \
	# EOL

LIBS_te_bench = -lfabric -lnuma -lcjson

FX_SRCS = \
	fabtests/functional/fx_atomic.c \
	fabtests/functional/fx_child.c \
	fabtests/functional/fx_engine.c \
	fabtests/functional/fx_job.c \
	fabtests/functional/fx_mem.c \
	fabtests/functional/fx_peer.c \
	# EOL

SRCS_ft_bad_input = $(FX_SRCS) \
	fabtests/functional/ft_bad_handles.c \
	fabtests/functional/ft_bad_input.c \
	fabtests/functional/ft_bad_ranges.c \
	fabtests/functional/ft_bad_read_only.c \
	fabtests/functional/ft_bad_setup.c \
	fabtests/functional/ft_bad_table.c \
	# EOL

SRCS_ft_bounce = $(FX_SRCS) \
	fabtests/functional/ft_bounce.c \
	# EOL

SRCS_ft_etcd = $(FX_SRCS) \
	fabtests/common/ft_etcd.c \
	fabtests/functional/ft_etcd.c \
	# EOL

SRCS_ft_faults = $(FX_SRCS) \
	fabtests/functional/ft_faults.c \
	fabtests/functional/ft_faults_cost.c \
	fabtests/functional/ft_faults_kill.c \
	fabtests/functional/ft_faults_stop.c \
	fabtests/functional/ft_faults_unreg.c \
	# EOL

SRCS_ft_fence = $(FX_SRCS) \
	fabtests/functional/ft_fence.c \
	fabtests/functional/fx_links.c \
	# EOL

SRCS_ft_fi_calls = \
	fabtests/functional/fi_rig.c \
	fabtests/functional/ft_fi_calls.c \
	fabtests/functional/ft_fi_calls_addr.c \
	fabtests/functional/ft_fi_calls_cntr.c \
	fabtests/functional/ft_fi_calls_cq.c \
	fabtests/functional/ft_fi_calls_ends.c \
	fabtests/functional/ft_fi_calls_hints.c \
	fabtests/functional/ft_fi_calls_mr.c \
	fabtests/functional/ft_fi_calls_msg.c \
	fabtests/functional/ft_fi_calls_peer.c \
	# EOL

LIBS_ft_fi_calls = -lfabric

SRCS_ft_fi_first = \
	fabtests/functional/fi_rig.c \
	fabtests/functional/ft_fi_first.c \
	# EOL

LIBS_ft_fi_first = -lfabric

SRCS_ft_fi_memory = \
	fabtests/functional/fi_rig.c \
	fabtests/functional/ft_fi_memory.c \
	# EOL

LIBS_ft_fi_memory = -lfabric

SRCS_ft_fi_objects = \
	fabtests/functional/fi_rig.c \
	fabtests/functional/ft_fi_objects.c \
	# EOL

LIBS_ft_fi_objects = -lfabric

SRCS_ft_fi_rdm = \
	fabtests/functional/fi_rig.c \
	fabtests/functional/ft_fi_rdm.c \
	# EOL

LIBS_ft_fi_rdm = -lfabric

SRCS_ft_fi_traffic = \
	fabtests/functional/fi_rig.c \
	fabtests/functional/ft_fi_traffic.c \
	# EOL

LIBS_ft_fi_traffic = -lfabric

SRCS_ft_files = $(FX_SRCS) \
	fabtests/common/ft_zk.c \
	fabtests/functional/ft_files.c \
	fabtests/functional/ft_files_bad.c \
	fabtests/functional/ft_files_rig.c \
	# EOL

SRCS_ft_gpu = $(FX_SRCS) \
	fabtests/common/cuda_stand_in_load.c \
	fabtests/functional/ft_gpu.c \
	# EOL

SRCS_ft_gpu_device = $(FX_SRCS) \
	fabtests/functional/ft_files_rig.c \
	fabtests/functional/ft_gpu_device.c \
	fabtests/functional/ft_gpu_device_files.c \
	fabtests/functional/ft_gpu_device_ipc.c \
	fabtests/functional/ft_gpu_device_kinds.c \
	fabtests/functional/fx_gpu.c \
	# EOL

SRCS_ft_gpu_direct = $(FX_SRCS) \
	fabtests/common/cuda_stand_in_load.c \
	fabtests/common/nic_stand_in.c \
	fabtests/functional/ft_gpu_direct.c \
	fabtests/functional/fx_gpu.c \
	# EOL

LIBS_ft_gpu_direct = -lfabric

SRCS_ft_gpu_files = $(FX_SRCS) \
	fabtests/common/cuda_stand_in_load.c \
	fabtests/functional/ft_files_rig.c \
	fabtests/functional/ft_gpu_files.c \
	# EOL

SRCS_ft_gpu_host = $(FX_SRCS) \
	fabtests/common/cuda_stand_in_load.c \
	fabtests/functional/ft_gpu_host.c \
	fabtests/functional/fx_gpu.c \
	fabtests/functional/fx_slot.c \
	# EOL

SRCS_ft_gpu_ipc = $(FX_SRCS) \
	fabtests/common/cuda_stand_in_load.c \
	fabtests/functional/ft_gpu_ipc.c \
	fabtests/functional/fx_gpu.c \
	# EOL

SRCS_ft_gpu_slot = $(FX_SRCS) \
	fabtests/common/cuda_stand_in_load.c \
	fabtests/functional/ft_gpu_slot.c \
	fabtests/functional/fx_gpu.c \
	fabtests/functional/fx_slot.c \
	# EOL

SRCS_ft_gpu_stage = $(FX_SRCS) \
	fabtests/common/cuda_stand_in_load.c \
	fabtests/functional/ft_files_rig.c \
	fabtests/functional/ft_gpu_stage.c \
	fabtests/functional/fx_gpu.c \
	# EOL

SRCS_ft_hints = $(FX_SRCS) \
	fabtests/functional/ft_hints.c \
	# EOL

SRCS_ft_hostile = $(FX_SRCS) \
	fabtests/functional/ft_hostile.c \
	fabtests/functional/ft_hostile_server.c \
	# EOL

SRCS_ft_labels = $(FX_SRCS) \
	fabtests/functional/ft_labels.c \
	# EOL

SRCS_ft_laws = $(FX_SRCS) \
	fabtests/functional/ft_laws.c \
	fabtests/functional/ft_laws_messages.c \
	fabtests/functional/ft_laws_notify.c \
	fabtests/functional/ft_laws_process.c \
	fabtests/functional/ft_laws_segments.c \
	# EOL

SRCS_ft_connections = $(FX_SRCS) \
	fabtests/functional/ft_connections.c \
	# EOL

SRCS_ft_contact = $(FX_SRCS) \
	fabtests/functional/ft_contact.c \
	fabtests/functional/fx_links.c \
	# EOL

SRCS_ft_devices = $(FX_SRCS) \
	fabtests/common/ft_zk.c \
	fabtests/functional/ft_devices.c \
	fabtests/functional/fx_links.c \
	# EOL

SRCS_ft_links = $(FX_SRCS) \
	fabtests/functional/ft_links.c \
	fabtests/functional/fx_links.c \
	# EOL

SRCS_ft_local = $(FX_SRCS) \
	fabtests/functional/ft_local.c \
	fabtests/functional/ft_local_mapped.c \
	# EOL

SRCS_ft_many = $(FX_SRCS) \
	fabtests/functional/ft_many.c \
	# EOL

SRCS_ft_notify = $(FX_SRCS) \
	fabtests/functional/ft_notify.c \
	# EOL

SRCS_ft_numa = $(FX_SRCS) \
	fabtests/common/cuda_stand_in_load.c \
	fabtests/functional/ft_numa.c \
	# EOL

SRCS_ft_nvmeof = $(FX_SRCS) \
	fabtests/functional/ft_files_rig.c \
	fabtests/functional/ft_nvmeof.c \
	# EOL

SRCS_ft_objects = $(FX_SRCS) \
	fabtests/functional/ft_objects.c \
	fabtests/functional/ft_objects_abi.c \
	fabtests/functional/ft_objects_alloc.c \
	fabtests/functional/ft_objects_blob.c \
	fabtests/functional/ft_objects_paths.c \
	# EOL

SRCS_ft_prepared = $(FX_SRCS) \
	fabtests/functional/ft_prepared.c \
	# EOL

SRCS_ft_redis = $(FX_SRCS) \
	fabtests/common/ft_etcd.c \
	fabtests/common/ft_http.c \
	fabtests/common/ft_server.c \
	fabtests/common/ft_zk.c \
	fabtests/functional/ft_redis.c \
	# EOL

SRCS_ft_register = $(FX_SRCS) \
	fabtests/common/ft_zk.c \
	fabtests/functional/ft_register.c \
	# EOL

SRCS_ft_security = $(FX_SRCS) \
	fabtests/functional/ft_security.c \
	fabtests/functional/ft_security_limits.c \
	fabtests/functional/ft_security_wire.c \
	# EOL

SRCS_ft_serve = \
	fabtests/common/ft_http.c \
	fabtests/functional/ft_serve.c \
	# EOL

SRCS_ft_shutdown = $(FX_SRCS) \
	fabtests/functional/ft_shutdown.c \
	# EOL

SRCS_ft_submit = $(FX_SRCS) \
	fabtests/functional/ft_submit.c \
	fabtests/functional/ft_submit_atomic.c \
	fabtests/functional/ft_submit_bad.c \
	fabtests/functional/ft_submit_kill.c \
	fabtests/functional/ft_submit_pieces.c \
	# EOL

SRCS_ft_transfer = $(FX_SRCS) \
	fabtests/functional/ft_transfer.c \
	fabtests/functional/ft_transfer_batch.c \
	fabtests/functional/ft_transfer_rig.c \
	# EOL

SRCS_ft_verbs = $(FX_SRCS) \
	fabtests/functional/ft_verbs.c \
	# EOL

SRCS_ft_wait = $(FX_SRCS) \
	fabtests/functional/ft_wait.c \
	fabtests/functional/ft_wait_bad.c \
	fabtests/functional/ft_wait_basic.c \
	fabtests/functional/ft_wait_blocking.c \
	fabtests/functional/ft_wait_cancel.c \
	fabtests/functional/ft_wait_deadline.c \
	fabtests/functional/ft_wait_event.c \
	fabtests/functional/ft_wait_reuse.c \
	fabtests/functional/ft_wait_rig.c \
	# EOL

SRCS_ft_wait_cost = $(FX_SRCS) \
	fabtests/functional/ft_wait_cost.c \
	fabtests/functional/ft_wait_rig.c \
	# EOL

SRCS_ft_store = $(FX_SRCS) \
	fabtests/common/ft_etcd.c \
	fabtests/common/ft_http.c \
	fabtests/common/ft_relay.c \
	fabtests/common/ft_server.c \
	fabtests/common/ft_zk.c \
	fabtests/functional/ft_store.c \
	# EOL

SRCS_ft_zookeeper = $(FX_SRCS) \
	fabtests/common/ft_zk.c \
	fabtests/functional/ft_zookeeper.c \
	fabtests/functional/ft_zookeeper_bench.c \
	fabtests/functional/ft_zookeeper_names.c \
	fabtests/functional/ft_zookeeper_opening.c \
	fabtests/functional/ft_zookeeper_outage.c \
	fabtests/functional/ft_zookeeper_publish.c \
	fabtests/functional/ft_zookeeper_rig.c \
	fabtests/functional/ft_zookeeper_stopped.c \
	fabtests/functional/ft_zookeeper_strangers.c \
	fabtests/functional/ft_zookeeper_unread.c \
	# EOL

LIBS_ft_zookeeper = -lzookeeper_mt
ifeq ($(WITH_ZOOKEEPER),no)
SRCS_ft_zookeeper = fabtests/functional/ft_without_zookeeper.c
LIBS_ft_zookeeper =
endif

FUNC_TESTS += \
	ft_bad_input \
	ft_bounce \
	ft_connections \
	ft_contact \
	ft_devices \
	ft_etcd \
	ft_faults \
	ft_fence \
	ft_fi_calls \
	ft_fi_first \
	ft_fi_memory \
	ft_fi_objects \
	ft_fi_rdm \
	ft_fi_traffic \
	ft_files \
	ft_gpu \
	ft_gpu_device \
	ft_gpu_direct \
	ft_gpu_files \
	ft_gpu_host \
	ft_gpu_ipc \
	ft_gpu_slot \
	ft_gpu_stage \
	ft_hints \
	ft_hostile \
	ft_labels \
	ft_laws \
	ft_links \
	ft_local \
	ft_many \
	ft_notify \
	ft_objects \
	ft_prepared \
	ft_redis \
	ft_register \
	ft_security \
	ft_serve \
	ft_shutdown \
	ft_store \
	ft_submit \
	ft_transfer \
	ft_wait \
	ft_wait_cost \
	ft_zookeeper \
	# EOL

# For as long as one likes: make check-stress, make stress.
SRCS_te_stress = $(FX_SRCS) \
	fabtests/functional/fx_links.c \
	fabtests/stress/stress_move.c \
	fabtests/stress/stress_proc.c \
	fabtests/stress/stress_worker.c \
	fabtests/stress/te_stress.c \
	# EOL

STRESS_TESTS += \
	te_stress \
	# EOL

STRESS_SCRIPTS += \
	fabtests/stress/stress_links.sh \
	# EOL

# make bench-prov
SRCS_te_fi_bench = \
	fabtests/benchmarks/te_fi_bench.c \
	fabtests/functional/fi_rig.c \
	# EOL

LIBS_te_fi_bench = -lfabric

PROV_BENCH += \
	te_fi_bench \
	# EOL

# make bench-security
SRCS_te_security_bench = $(FX_SRCS) \
	fabtests/benchmarks/te_security_bench.c \
	fabtests/benchmarks/te_security_clients.c \
	fabtests/functional/ft_security_wire.c \
	# EOL

LIBS_te_security_bench = -lm

SECURITY_BENCH += \
	te_security_bench \
	# EOL

# What needs a virtual machine: make check-vm.
VM_TESTS += \
	ft_numa \
	ft_nvmeof \
	ft_verbs \
	# EOL

TSAN_TESTS += \
	ft_bounce \
	ft_connections \
	ft_fi_memory \
	ft_fi_objects \
	ft_fi_rdm \
	ft_files \
	ft_gpu \
	ft_gpu_direct \
	ft_gpu_files \
	ft_gpu_host \
	ft_gpu_ipc \
	ft_gpu_slot \
	ft_gpu_stage \
	ft_hostile \
	ft_labels \
	ft_laws \
	ft_local \
	ft_objects \
	ft_prepared \
	ft_shutdown \
	ft_submit \
	ft_transfer \
	ft_wait \
	ft_wait_cost \
	# EOL

# Not beside others: they compare rates or times, look at what share of the
# bytes goes by which rail or at processor time, or load the machine on purpose.
ALONE_TESTS += \
	ft_faults \
	ft_fi_shares \
	ft_links \
	ft_routes \
	# EOL

# Started first, so that the last tests of a run are short: they take more than a
# minute.
LONG_TESTS += \
	bench_test \
	ft_go \
	ft_info \
	ft_many \
	ft_python \
	ft_submit \
	ft_zookeeper \
	meta_test \
	model_test \
	rail_test \
	# EOL

# Six servers, one after the other, each killed and suspended several times.
TIMEOUT_ft_store := 900

# Skipped if the library has sanitizers: they compare rates or times, which a
# sanitizer distorts, or test scripts and not the library.
PLAIN_TESTS += \
	abi_test \
	bench_test \
	configure_test \
	ft_etcd \
	ft_fi_shares \
	ft_links \
	ft_register \
	ft_routes \
	install_test \
	model_test \
	runner_test \
	# EOL

SCRIPT_TESTS += \
	fabtests/functional/ft_cxx.sh \
	fabtests/functional/ft_failover.sh \
	fabtests/functional/ft_fi_mpi.sh \
	fabtests/functional/ft_fi_pingpong.sh \
	fabtests/functional/ft_fi_rails.sh \
	fabtests/functional/ft_fi_shares.sh \
	fabtests/functional/ft_go.sh \
	fabtests/functional/ft_info.sh \
	fabtests/functional/ft_meta.sh \
	fabtests/functional/ft_python.sh \
	fabtests/functional/ft_rails.sh \
	fabtests/functional/ft_routes.sh \
	fabtests/functional/ft_rust.sh \
	fabtests/model/model_test.sh \
	fabtests/scripts/bench_test.sh \
	fabtests/scripts/examples_test.sh \
	# EOL
