/* What programs look for past libibverbs: sysfs attributes and the character device. Other paths stay as they are. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <net/if.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "check.h"

/* Exported, but in a private header. */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

static int list_has(const char *path, const char *name)
{
	DIR *dir = opendir(path);
	int found = 0;
	CHECK(dir);
	for (struct dirent *entry; (entry = readdir(dir));)
		found |= !strcmp(entry->d_name, name);
	CHECK(!closedir(dir));
	return found;
}

static void read_line(const char *path, char *line, size_t size)
{
	FILE *file = fopen(path, "r");
	CHECK(file && fgets(line, size, file));
	CHECK(!fclose(file));
	line[strcspn(line, "\n")] = 0;
}

static void note(void *cleaned)
{
	*(int *)cleaned = 1;
}

static void *wait_at(void *ends)
{
	char byte;
	pthread_cleanup_push(note, (int *)ends + 2);
	recv(*(int *)ends, &byte, 1, 0);
	pthread_cleanup_pop(0);
	return NULL;
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list && list[0]);
	struct ibv_device *device = list[0];
	char path[5000], line[128], other[4096];
	const char *volatile nothing = NULL;
	struct stat st;

	/* The character device, as UCX looks at it. */
	snprintf(path, sizeof(path), "/dev/infiniband/%s", device->dev_name);
	CHECK(!stat(path, &st) && S_ISCHR(st.st_mode) && !access(path, R_OK | W_OK));
	int fd = open(path, O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0 && !close(fd));
	CHECK(list_has("/dev/infiniband", device->dev_name));
	CHECK(stat("/dev/infiniband/uverbs77", &st) == -1 && errno == ENOENT);

	/* Attributes, by every way of opening. */
	CHECK(list_has("/sys/class/infiniband", device->name));
	snprintf(path, sizeof(path), "%s/ports/1/gid_attrs/types/0", device->ibdev_path);
	read_line(path, line, sizeof(line));
	CHECK(!strcmp(line, "RoCE v2"));
	fd = open(path, O_RDONLY);
	CHECK(fd >= 0 && read(fd, line, sizeof(line)) == 8 && !close(fd));
	fd = openat(AT_FDCWD, path, O_RDONLY);
	CHECK(fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && !close(fd));
	CHECK(!lstat(path, &st) && !fstatat(AT_FDCWD, path, &st, 0) && !faccessat(AT_FDCWD, path, R_OK, AT_EACCESS));
	int dir = open(device->ibdev_path, O_RDONLY | O_DIRECTORY);
	CHECK(dir >= 0 && !faccessat(dir, "ports/1/state", R_OK, 0) && !close(dir));
	snprintf(path, sizeof(path), "%s/ports/1/gid_attrs/ndevs/0", device->ibdev_path);
	read_line(path, line, sizeof(line));
	snprintf(path, sizeof(path), "/sys/class/net/%s", line);
	CHECK(!access(path, F_OK));
	CHECK(ibv_read_sysfs_file(device->ibdev_path, "node_type", line, sizeof(line)) == 5 && !strcmp(line, "1: CA"));
	CHECK(ibv_read_sysfs_file(device->ibdev_path, "nonsense", line, sizeof(line)) == -1);

	/* Canonical names are what a program would see, not where the files are. */
	snprintf(path, sizeof(path), "/sys/class/infiniband/.//%s/", device->name);
	CHECK(realpath(path, other) && !strcmp(other, device->ibdev_path));
	char *name = canonicalize_file_name(path);
	CHECK(name && !strcmp(name, device->ibdev_path));
	free(name);
	snprintf(path, sizeof(path), "%s/nonsense", device->ibdev_path);
	CHECK(!realpath(path, other) && errno == ENOENT);
	CHECK(readlink(device->ibdev_path, other, sizeof(other)) == -1 && errno == EINVAL);

	/* The network interface behind the device, by a listing, by glob(3) and by its canonical name; and from a folder. */
	snprintf(path, sizeof(path), "%s/parent", device->ibdev_path);
	read_line(path, line, sizeof(line));
	CHECK(if_nametoindex(line) != 0);
	snprintf(path, sizeof(path), "%s/device/net", device->ibdev_path);
	CHECK(list_has(path, line));
	glob_t found = {0};
	CHECK(!glob("/sys/class/infiniband/*/device/net/*", 0, NULL, &found));
	CHECK(found.gl_pathc == 1);
	snprintf(path, sizeof(path), "%s/device/net/%s", device->ibdev_path, line);
	CHECK(!strcmp(found.gl_pathv[0], path) && !stat(path, &st) && S_ISDIR(st.st_mode));
	globfree(&found);
	CHECK(glob("/sys/class/infiniband/*/device/nonsense*", 0, NULL, &found) == GLOB_NOMATCH);
	CHECK(!glob("/dev/nul[l]", 0, NULL, &found) && found.gl_pathc == 1);
	globfree(&found);
	/* The system's folder of it, or ours if the system's is another network namespace's: not where our files are. */
	CHECK(realpath(path, other) && !strncmp(other, "/sys/", 5));
	snprintf(path, sizeof(path), "%s/device/net/%s/ifindex", device->ibdev_path, line);
	unsigned interface = if_nametoindex(line);
	read_line(path, line, sizeof(line));
	CHECK((unsigned)atoi(line) == interface);
	CHECK(getcwd(other, sizeof(other)));
	CHECK(!chdir(device->ibdev_path) && !access("ports/1/state", R_OK) && !chdir(other));

	/* Everything else goes to the system. */
	CHECK(access(nothing, F_OK) == -1 && errno == EFAULT);
	CHECK(open("/nonexistent", O_RDONLY) == -1 && errno == ENOENT);
	CHECK(!stat("/dev/null", &st) && realpath("/proc/self/../self/exe", other) && !strstr(other, "proc"));
	snprintf(path, sizeof(path), "%s.scratch", other);
	fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0640);
	CHECK(fd >= 0 && !fchmod(fd, 0640) && write(fd, "x", 1) == 1 && !close(fd));
	/* recv(2) is a cancellation point, as it is without us: the thread ends there, and its handlers run. */
	int ends[3] = {0};
	pthread_t thread;
	void *result;
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	CHECK(!pthread_create(&thread, NULL, wait_at, ends) && !pthread_cancel(thread));
	CHECK(!pthread_join(thread, &result) && result == PTHREAD_CANCELED && ends[2] == 1);
	CHECK(!close(ends[0]) && !close(ends[1]));
	CHECK(!stat(path, &st) && (st.st_mode & 0777) == 0640 && st.st_size == 1 && !unlink(path));
	ibv_free_device_list(list);
	puts("files: ok");
	return 0;
}
