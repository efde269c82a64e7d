/* A server that knows only TCP. It answers one client after another, each as it speaks: to a line that begins with "GET " it
 * says HTTP, everything else it sends back.
 *
 *     tcp_server ADDRESS PORT [BYTES]
 *
 * With BYTES the answer is as long, and zeros.
 */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TRY(call)                                                  \
	do {                                                           \
		if ((call) < 0) {                                          \
			fprintf(stderr, "%s: %s\n", #call, strerror(errno));   \
			exit(1);                                               \
		}                                                          \
	} while (0)

static void say(int fd, const char *bytes, size_t count)
{
	while (count > 0) {
		ssize_t sent = send(fd, bytes, count, 0);
		TRY(sent);
		bytes += sent;
		count -= sent;
	}
}

int main(int argc, char **argv)
{
	if (argc != 3 && argc != 4)
		return 2;
	size_t length = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
	char *zeros = argc == 4 ? calloc(1, length) : NULL;
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_PASSIVE }, *address;
	if (getaddrinfo(argv[1], argv[2], &hints, &address))
		return 2;
	int listener = socket(address->ai_family, SOCK_STREAM, 0);
	TRY(listener);
	TRY(bind(listener, address->ai_addr, address->ai_addrlen));
	TRY(listen(listener, 5));
	for (;;) {
		static const char head[] = "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n", words[] = "hello over rsockets\n";
		static char bytes[65536];
		int client = accept(listener, NULL, NULL);
		TRY(client);
		ssize_t count;
		while ((count = recv(client, bytes, sizeof bytes, 0)) > 0) {
			if (!strncmp(bytes, "GET ", 4)) {
				say(client, head, sizeof head - 1);
				if (zeros)
					say(client, zeros, length);
				else
					say(client, words, sizeof words - 1);
				break;
			}
			say(client, bytes, count);
		}
		TRY(count);
		shutdown(client, SHUT_RDWR);
		close(client);
	}
}
