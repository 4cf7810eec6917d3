/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabtests/common/ft_relay.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fabtests/common/ft_test.h"

/* One direction of a connection. The thread that copies it frees this
 * struct. */
struct relay_way {
	int from, to;
	unsigned int delay_ms;
};

static int relay_socket(int port, bool listens)
{
	struct sockaddr_in a = { .sin_family = AF_INET,
				 .sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1, rc;

	if (fd < 0)
		return -1;
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	rc = listens ? bind(fd, (struct sockaddr *)&a, sizeof(a))
		     : connect(fd, (struct sockaddr *)&a, sizeof(a));
	if (rc || (listens && listen(fd, 64))) {
		close(fd);
		return -1;
	}
	return fd;
}

static bool relay_write(int fd, const char *data, ssize_t len)
{
	ssize_t n;

	for (; len > 0; data += n, len -= n) {
		n = send(fd, data, (size_t)len, MSG_NOSIGNAL);
		if (n <= 0)
			return false;
	}
	return true;
}

/* Forwards the bytes of one direction, and sleeps for the delay before each
 * write. (The sleep is what the relay is for; it waits for no condition.) */
static void *relay_run(void *arg)
{
	struct relay_way *w = arg;
	struct timespec delay = { w->delay_ms / 1000,
				  (long)(w->delay_ms % 1000) * 1000000 };
	char data[65536];
	ssize_t n;

	while ((n = recv(w->from, data, sizeof(data), 0)) > 0) {
		nanosleep(&delay, NULL);
		if (!relay_write(w->to, data, n))
			break;
	}
	shutdown(w->from, SHUT_RDWR);
	shutdown(w->to, SHUT_RDWR);
	free(w);
	return NULL;
}

static void relay_way(int from, int to, unsigned int delay_ms)
{
	struct relay_way *w = malloc(sizeof(*w));
	pthread_t thread;

	if (!w)
		_exit(1);
	*w = (struct relay_way){ from, to, delay_ms };
	if (pthread_create(&thread, NULL, relay_run, w))
		_exit(1);
	pthread_detach(thread);
}

/* Accepts connections until the process is killed. Does not close the sockets
 * of a connection that has ended, because the threads of both directions use
 * them. */
static void relay_main(int listener, int to_port, unsigned int delay_ms)
{
	int in, out;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		in = accept(listener, NULL, NULL);
		if (in < 0)
			continue;
		out = relay_socket(to_port, false);
		if (out < 0) {
			close(in);
			continue;
		}
		relay_way(in, out, delay_ms);
		relay_way(out, in, delay_ms);
	}
}

bool ft_relay_start(struct ft_relay *relay, int to_port, unsigned int delay_ms)
{
	int listener = relay_socket(0, true);
	struct sockaddr_in a;
	socklen_t len = sizeof(a);

	relay->pid = 0;
	if (listener < 0 ||
	    getsockname(listener, (struct sockaddr *)&a, &len)) {
		ft_diag("relay: %s", strerror(errno));
		return false;
	}
	relay->port = ntohs(a.sin_port);
	relay->pid = fork();
	if (!relay->pid)
		relay_main(listener, to_port, delay_ms);
	close(listener);
	return relay->pid > 0;
}

void ft_relay_stop(struct ft_relay *relay)
{
	if (relay->pid <= 0)
		return;
	kill(relay->pid, SIGKILL);
	waitpid(relay->pid, NULL, 0);
	relay->pid = 0;
}
