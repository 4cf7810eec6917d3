# SPDX-License-Identifier: BSD-2-Clause
#
# An image with the library, the libfabric provider and the tools:
#
#	docker build -t moonrail .
#	docker run --rm --network=host moonrail te_info
#
# RDMA devices also need --device=/dev/infiniband and --ulimit memlock=-1.
FROM debian:12 AS build
COPY . /src
WORKDIR /build
RUN /src/configure --install-deps --disable-tests \
 && make -j"$(nproc)" lib tools man \
 && make install DESTDIR=/out

FROM debian:12-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends \
	ibverbs-providers \
	libcjson1 \
	libcurl4 \
	libfabric1 \
	libhiredis0.14 \
	libhwloc15 \
	libibverbs1 \
	libmicrohttpd12 \
	libnettle8 \
	libnuma1 \
	liburing2 \
	libzookeeper-mt2 \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/ /
RUN ldconfig && te_info --version
CMD ["te_info", "--check"]
