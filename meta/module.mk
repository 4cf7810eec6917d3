# meta: descriptors, names, the control channel, stores, the segment cache
SRCS += \
	meta/meta_auth.c \
	meta/meta_auth_file.c \
	meta/meta_bind.c \
	meta/meta_cache.c \
	meta/meta_client.c \
	meta/meta_conn.c \
	meta/meta_desc.c \
	meta/meta_desc_json.c \
	meta/meta_desc_label.c \
	meta/meta_etcd.c \
	meta/meta_etcd_call.c \
	meta/meta_etcd_json.c \
	meta/meta_etcd_watch.c \
	meta/meta_http.c \
	meta/meta_http_client.c \
	meta/meta_http_plain.c \
	meta/meta_json.c \
	meta/meta_kv.c \
	meta/meta_kv_name.c \
	meta/meta_kv_segment.c \
	meta/meta_mooncake.c \
	meta/meta_name.c \
	meta/meta_p2p.c \
	meta/meta_peer.c \
	meta/meta_persistent.c \
	meta/meta_persistent_dir.c \
	meta/meta_rate_limit.c \
	meta/meta_record.c \
	meta/meta_redis.c \
	meta/meta_request.c \
	meta/meta_resolve.c \
	meta/meta_server.c \
	meta/meta_sigpipe.c \
	meta/meta_store.c \
	meta/meta_zookeeper.c \
	meta/meta_zookeeper_acl.c \
	meta/meta_zookeeper_call.c \
	meta/meta_zookeeper_owner.c \
	meta/meta_zookeeper_persistent.c \
	meta/meta_zookeeper_record.c \
	meta/meta_zookeeper_registration.c \
	meta/meta_zookeeper_servers.c \
	meta/meta_zookeeper_session.c \
	meta/meta_zookeeper_watch.c \
	# EOL

TEST_SRCS_meta = \
	fabtests/common/ft_etcd.c \
	fabtests/common/ft_http.c \
	fabtests/common/ft_port.c \
	fabtests/common/ft_proc.c \
	fabtests/common/ft_server.c \
	fabtests/common/ft_test.c \
	fabtests/common/ft_zk.c \
	meta/meta_abuse_test.c \
	meta/meta_auth_test.c \
	meta/meta_cache_test.c \
	meta/meta_desc_label_test.c \
	meta/meta_desc_test.c \
	meta/meta_etcd_test.c \
	meta/meta_http_client_test.c \
	meta/meta_http_test.c \
	meta/meta_json_test.c \
	meta/meta_kv_test.c \
	meta/meta_mooncake_test.c \
	meta/meta_name_test.c \
	meta/meta_persistent_test.c \
	meta/meta_rate_limit_test.c \
	meta/meta_scale_test.c \
	meta/meta_server_test.c \
	meta/meta_store_test.c \
	meta/meta_test_main.c \
	meta/meta_zookeeper_acl_test.c \
	meta/meta_zookeeper_loss_test.c \
	meta/meta_zookeeper_registration_test.c \
	meta/meta_zookeeper_rig_test.c \
	meta/meta_zookeeper_test.c \
	# EOL

UNIT_TESTS += meta

ifeq ($(WITH_ZOOKEEPER),no)
SRCS := $(filter-out meta/meta_zookeeper%,$(SRCS))
TEST_SRCS_meta := $(filter-out meta/meta_zookeeper%,$(TEST_SRCS_meta))
TEST_SRCS_meta += meta/meta_without_zookeeper_test.c
endif

ifeq ($(WITH_REDIS),no)
SRCS := $(filter-out meta/meta_redis%,$(SRCS))
endif

ifeq ($(WITH_HTTP),no)
SRCS := $(filter-out meta/meta_http.c meta/meta_http_plain.c,$(SRCS))
endif

ifeq ($(WITH_ETCD)$(WITH_HTTP),nono)
SRCS := $(filter-out meta/meta_http_client%,$(SRCS))
TEST_SRCS_meta := $(filter-out meta/meta_http_%,$(TEST_SRCS_meta))
endif

ifeq ($(WITH_ETCD),no)
SRCS := $(filter-out meta/meta_etcd%,$(SRCS))
TEST_SRCS_meta := $(filter-out meta/meta_etcd%,$(TEST_SRCS_meta))
endif
