// Changes files in the ways of C and of the kernel's own calls: `ways list` prints their names, `ways NAME FILE FOLDER` does one.
// The exit status says whether it was done. FOLDER holds a file `inner`.

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/fs.h>
#include <linux/io_uring.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define MUST(condition) do { if (!(condition)) { perror(#condition); return 1; } } while (0)

static char text[4096];

// FOLDER/NAME.
static char *in(const char *folder, const char *name) {
    snprintf(text, sizeof text, "%s/%s", folder, name);
    return text;
}

static int put(int held) {
    MUST(held >= 0);
    MUST(write(held, "changed", 7) == 7);
    return close(held);
}

static int status_of(pid_t child) {
    int status;
    MUST(child > 0 && waitpid(child, &status, 0) == child);
    return !WIFEXITED(status) || WEXITSTATUS(status);
}

#define WAY(name) static int name(const char *file, const char *folder)

// Opening.
WAY(use_creat) { (void)folder; return put(creat(file, 0600)); }
WAY(use_openat2) {
    (void)folder;
    struct open_how how = {.flags = O_WRONLY | O_TRUNC};
    return put(syscall(SYS_openat2, AT_FDCWD, file, &how, sizeof how));
}
WAY(use_openat_of_a_folder) { (void)file; return put(openat(open(folder, O_PATH), "inner", O_WRONLY | O_TRUNC)); }
WAY(use_freopen) { (void)folder; FILE *to = freopen(file, "a", stdout); MUST(to); fputs("changed", to); return fclose(to); }
WAY(use_mkstemp) { (void)file; char name[4096]; strcpy(name, in(folder, "XXXXXX")); return put(mkstemp(name)); }
WAY(use_mkdtemp) { (void)file; char name[4096]; strcpy(name, in(folder, "XXXXXX")); return !mkdtemp(name); }
WAY(use_an_unnamed_file) {
    (void)file;
    int held = open(folder, O_TMPFILE | O_RDWR, 0600);
    MUST(held >= 0);
    char from[64];
    snprintf(from, sizeof from, "/proc/self/fd/%d", held);
    return linkat(AT_FDCWD, from, AT_FDCWD, in(folder, "named"), AT_SYMLINK_FOLLOW);
}
WAY(open_a_reader_again) {
    (void)folder;
    char again[64];
    snprintf(again, sizeof again, "/proc/thread-self/fd/%d", open(file, O_RDONLY));
    return put(open(again, O_WRONLY | O_TRUNC));
}

// Writing.
WAY(use_fallocate) { (void)folder; return fallocate(open(file, O_RDWR), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 3); }
WAY(use_ftruncate) { (void)folder; return ftruncate(open(file, O_WRONLY), 1); }
WAY(use_pwritev2) {
    (void)folder;
    struct iovec part = {"changed", 7};
    return pwritev2(open(file, O_WRONLY), &part, 1, 0, RWF_SYNC) != 7;
}
WAY(use_copy_file_range) {
    (void)folder;
    loff_t from = 0, to = 0;
    return copy_file_range(open("/bin/sh", O_RDONLY), &from, open(file, O_WRONLY), &to, 100, 0) <= 0;
}
WAY(use_splice) {
    (void)folder;
    int pipes[2];
    MUST(!pipe(pipes) && write(pipes[1], "changed", 7) == 7);
    return splice(pipes[0], NULL, open(file, O_WRONLY), NULL, 7, 0) != 7;
}
WAY(map_after_closing) {
    (void)folder;
    int held = open(file, O_RDWR);
    char *at = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, held, 0);
    MUST(held >= 0 && at != MAP_FAILED);
    close(held);
    strcpy(at, "mapped");
    return msync(at, 8, MS_SYNC);
}
WAY(map_and_make_writable) {
    (void)folder;
    char *at = mmap(NULL, 8, PROT_READ, MAP_SHARED, open(file, O_RDWR), 0);
    MUST(at != MAP_FAILED && !mprotect(at, 8, PROT_READ | PROT_WRITE));
    memcpy(at, "mapped", 6);
    return 0;
}
WAY(write_by_the_kernels_queue) {
    (void)folder;
    aio_context_t queue = 0;
    MUST(!syscall(SYS_io_setup, 1, &queue));
    struct iocb one = {.aio_fildes = open(file, O_WRONLY), .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_buf = (unsigned long)"changed", .aio_nbytes = 7};
    struct iocb *all = &one;
    struct io_event event;
    MUST(syscall(SYS_io_submit, queue, 1, &all) == 1);
    MUST(syscall(SYS_io_getevents, queue, 1, 1, &event, NULL) == 1);
    return event.res != 7;
}

// One request of io_uring.
static int ring(struct io_uring_sqe request) {
    struct io_uring_params made = {0};
    int held = syscall(SYS_io_uring_setup, 1, &made);
    MUST(held >= 0);
    size_t size = made.sq_off.array + 64 + made.cq_off.cqes + 4 * sizeof(struct io_uring_cqe);
    char *rings = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, held, IORING_OFF_SQ_RING);
    struct io_uring_sqe *requests = mmap(NULL, sizeof request, PROT_READ | PROT_WRITE, MAP_SHARED, held, IORING_OFF_SQES);
    MUST(rings != MAP_FAILED && requests != MAP_FAILED);
    requests[0] = request;
    ((unsigned *)(rings + made.sq_off.array))[0] = 0;
    __atomic_store_n((unsigned *)(rings + made.sq_off.tail), 1, __ATOMIC_RELEASE);
    MUST(syscall(SYS_io_uring_enter, held, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
    struct io_uring_cqe *answer = (struct io_uring_cqe *)(rings + made.cq_off.cqes);
    errno = answer->res < 0 ? -answer->res : 0;
    return answer->res;
}
WAY(open_by_io_uring) {
    (void)folder;
    return put(ring((struct io_uring_sqe){.opcode = IORING_OP_OPENAT, .fd = AT_FDCWD, .addr = (unsigned long)file, .open_flags = O_WRONLY | O_TRUNC}));
}
WAY(unlink_by_io_uring) {
    (void)folder;
    return ring((struct io_uring_sqe){.opcode = IORING_OP_UNLINKAT, .fd = AT_FDCWD, .addr = (unsigned long)file}) < 0;
}
WAY(rename_by_io_uring) {
    (void)folder;
    char to[4096];
    snprintf(to, sizeof to, "%s-renamed", file);
    return ring((struct io_uring_sqe){.opcode = IORING_OP_RENAMEAT, .fd = AT_FDCWD, .addr = (unsigned long)file, .len = AT_FDCWD, .addr2 = (unsigned long)to}) < 0;
}

// Names.
WAY(rename_across_folders) { return rename(in(folder, "inner"), file); }
WAY(exchange_names) { return syscall(SYS_renameat2, AT_FDCWD, file, AT_FDCWD, in(folder, "inner"), RENAME_EXCHANGE); }
WAY(link_and_write) { MUST(!link(file, in(folder, "linked"))); return put(open(text, O_WRONLY | O_TRUNC)); }
WAY(link_an_open_file) {
    char from[64];
    snprintf(from, sizeof from, "/proc/self/fd/%d", open(file, O_RDONLY));
    MUST(!linkat(AT_FDCWD, from, AT_FDCWD, in(folder, "linked"), AT_SYMLINK_FOLLOW));
    return put(open(text, O_WRONLY | O_TRUNC));
}
WAY(unlink_in_a_folder) { (void)file; return unlinkat(open(folder, O_RDONLY), "inner", 0); }
WAY(remove_a_folder) { (void)file; MUST(!unlink(in(folder, "inner"))); return rmdir(folder); }
WAY(make_a_pipe) { (void)file; return mknod(in(folder, "pipe"), S_IFIFO | 0600, 0); }
WAY(bind_a_socket) {
    (void)file;
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "socket"};
    MUST(!chdir(folder));
    return bind(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&name, sizeof name);
}
WAY(write_through_two_links) {
    char one[4096];
    strcpy(one, in(folder, "one"));
    MUST(!symlink(file, one) && !symlink("one", in(folder, "two")));
    return put(open(text, O_WRONLY | O_TRUNC));
}
static volatile int racing = 1;
static void *race(void *names) {
    char **all = names;
    while (racing) {
        unlink(all[0]);
        symlink(all[1], all[0]);
        unlink(all[0]);
        symlink("/dev/null", all[0]);
    }
    return NULL;
}
WAY(race_a_link) {
    char link[4096];
    strcpy(link, in(folder, "flipping"));
    char *names[] = {link, (char *)file};
    pthread_t other;
    MUST(!pthread_create(&other, NULL, race, names));
    for (int count = 0; count < 2000; count++) {
        int held = open(link, O_WRONLY | O_TRUNC);
        if (held >= 0) { (void)!write(held, "raced", 5); close(held); }
    }
    racing = 0;
    return pthread_join(other, NULL);
}
WAY(make_a_deep_path) {
    (void)file;
    char name[201];
    memset(name, 'x', 200);
    name[200] = 0;
    MUST(!chdir(folder));
    for (int depth = 0; depth < 60; depth++) MUST(!mkdir(name, 0700) && !chdir(name));
    return put(creat("deep", 0600));
}
WAY(make_odd_names) {
    (void)file;
    MUST(!put(creat(in(folder, "a space and\na line"), 0600)) && !put(creat(in(folder, "\xff\xfe"), 0600)));
    MUST(!put(creat(in(folder, "a,colon:and\\a slash"), 0600)) && !put(creat(in(folder, "\x1b[31m"), 0600)));
    return mkdir(in(folder, "-rf"), 0700);
}
WAY(make_folders_nobody_may_change) {
    (void)file;
    MUST(!mkdir(in(folder, "closed"), 0700) && !put(creat(in(folder, "closed/inside"), 0400)));
    return chmod(in(folder, "closed"), 0);
}

// What is known of a file.
WAY(change_a_mode) { (void)folder; return fchmodat(AT_FDCWD, file, 0700, 0); }
WAY(change_an_open_files_mode) { (void)folder; return fchmod(open(file, O_RDONLY), 0700); }
WAY(change_an_owner) { (void)folder; return lchown(file, getuid(), getgid()); }
WAY(change_times) { (void)folder; struct timespec at[2] = {{1, 1}, {1, 1}}; return utimensat(AT_FDCWD, file, at, 0); }
WAY(change_an_open_files_times) { (void)folder; struct timespec at[2] = {{1, 1}, {1, 1}}; return futimens(open(file, O_RDONLY), at); }
WAY(set_an_attribute) { (void)folder; return setxattr(file, "user.harm", "1", 1, 0); }
WAY(set_flags) {
    (void)folder;
    int held = open(file, O_RDONLY), flags = 0;
    MUST(!ioctl(held, FS_IOC_GETFLAGS, &flags));
    flags |= FS_NODUMP_FL;
    return ioctl(held, FS_IOC_SETFLAGS, &flags);
}

// Processes.
WAY(spawn_a_remover) {
    (void)folder;
    pid_t child;
    char *words[] = {"rm", (char *)file, NULL}, *none[] = {NULL};
    MUST(!posix_spawn(&child, "/bin/rm", NULL, NULL, words, none));
    return status_of(child);
}
WAY(vfork_a_remover) {
    (void)folder;
    pid_t child = vfork();
    if (!child) { execle("/bin/rm", "rm", file, NULL, (char *[]){NULL}); _exit(1); }
    return status_of(child);
}
WAY(execute_a_file_without_a_name) {
    (void)folder;
    int script = memfd_create("script", 0), from = open("/bin/rm", O_RDONLY);
    while (sendfile(script, from, NULL, 1 << 20) > 0) {}
    pid_t child = fork();
    if (!child) { fexecve(script, (char *[]){"rm", (char *)file, NULL}, (char *[]){NULL}); _exit(1); }
    return status_of(child);
}
// A daemon that forked twice, in a session of its own, without an environment or open files.
static int daemon_after(const char *file, int milliseconds) {
    if (!fork()) {
        setsid();
        if (!fork()) {
            clearenv();
            for (int held = 0; held < 64; held++) close(held);
            usleep(milliseconds * 1000);
            _exit(put(open(file, O_WRONLY | O_TRUNC)));
        }
        _exit(0);
    }
    usleep(300000);
    return 0;
}
WAY(leave_a_daemon) { (void)folder; return daemon_after(file, 10); }
// It wakes when the program has ended.
WAY(leave_a_daemon_that_waits) { (void)folder; return daemon_after(file, 2000); }
WAY(trace_a_child) {
    (void)folder;
    pid_t child = fork();
    if (!child) { ptrace(PTRACE_TRACEME, 0, 0, 0); raise(SIGSTOP); _exit(unlink("/nowhere") != 0); }
    int status;
    waitpid(child, &status, 0);
    // The child's next call but for its own is unlink; its path is replaced by FILE in its memory.
    for (int step = 0; step < 200; step++) {
        struct user_regs_struct is;
        MUST(!ptrace(PTRACE_SYSCALL, child, 0, 0) && waitpid(child, &status, 0) == child && WIFSTOPPED(status));
        MUST(!ptrace(PTRACE_GETREGS, child, 0, &is));
        if (is.orig_rax != SYS_unlink) continue;
        unsigned long place = is.rsp - 8192;
        for (size_t at = 0; at <= strlen(file); at += 8) {
            long word = 0;
            memcpy(&word, file + at, strnlen(file + at, 8));
            ptrace(PTRACE_POKEDATA, child, place + at, word);
        }
        is.rdi = place;
        MUST(!ptrace(PTRACE_SETREGS, child, 0, &is));
        break;
    }
    ptrace(PTRACE_DETACH, child, 0, 0);
    return status_of(child);
}
WAY(dump_a_core) {
    (void)file;
    pid_t child = fork();
    if (!child) {
        struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
        setrlimit(RLIMIT_CORE, &all);
        MUST(!chdir(folder));
        abort();
    }
    int status;
    return waitpid(child, &status, 0) != child || !WCOREDUMP(status);
}

// Ways out of a view and around a fence. Where one works, FILE is changed outside.
static int map_this_user(void) {
    char line[64];
    uid_t user = getuid();
    gid_t group = getgid();
    MUST(!unshare(CLONE_NEWUSER | CLONE_NEWNS));
    int held = open("/proc/self/setgroups", O_WRONLY);
    (void)!write(held, "deny", 4);
    close(held);
    snprintf(line, sizeof line, "0 %d 1", user);
    held = open("/proc/self/uid_map", O_WRONLY);
    MUST(write(held, line, strlen(line)) > 0);
    snprintf(line, sizeof line, "0 %d 1", group);
    held = open("/proc/self/gid_map", O_WRONLY);
    MUST(write(held, line, strlen(line)) > 0);
    return 0;
}
WAY(write_in_a_namespace_of_its_own) { (void)folder; MUST(!map_this_user()); return put(open(file, O_WRONLY | O_TRUNC)); }
static void take_away_mounts(const char *file) {
    char at[4096];
    strcpy(at, file);
    for (int times = 0; times < 3; times++)
        for (char *end = at + strlen(at); end; end = strrchr(at, '/')) {
            *end = 0;
            umount2(*at ? at : "/", MNT_DETACH);
            mount(NULL, *at ? at : "/", NULL, MS_REMOUNT | MS_BIND, NULL);
        }
}
WAY(unmount_in_a_namespace_of_its_own) { (void)folder; MUST(!map_this_user()); take_away_mounts(file); return put(open(file, O_WRONLY | O_TRUNC)); }
// Who may unmount may also have mounts of its own first, so that what follows finds its files.
WAY(unmount) { (void)folder; unshare(CLONE_NEWNS); take_away_mounts(file); return put(open(file, O_WRONLY | O_TRUNC)); }
// By the root, the folder or the mount namespace of any other process.
static int by_processes(const char *file, int by_namespace) {
    DIR *all = opendir("/proc");
    struct dirent *entry;
    struct stat root;
    int done = 0;
    stat("/", &root);
    while (all && (entry = readdir(all))) {
        char path[4096];
        struct stat other;
        int pid = atoi(entry->d_name);
        if (pid <= 0 || pid == getpid()) continue;
        snprintf(path, sizeof path, "/proc/%d/root", pid);
        if (stat(path, &other) || (other.st_ino == root.st_ino && other.st_dev == root.st_dev)) continue;
        if (by_namespace) {
            pid_t child = fork();
            if (!child) {
                snprintf(path, sizeof path, "/proc/%d/ns/mnt", pid);
                _exit(setns(open(path, O_RDONLY), CLONE_NEWNS) || put(open(file, O_WRONLY | O_TRUNC)));
            }
            done += !status_of(child);
        } else {
            snprintf(path, sizeof path, "/proc/%d/root%s", pid, file);
            int held = open(path, O_WRONLY | O_TRUNC);
            done += held >= 0 && !put(held);
        }
    }
    return !done;
}
WAY(by_the_root_of_other_processes) { (void)folder; return by_processes(file, 0); }
WAY(by_the_namespace_of_other_processes) { (void)folder; return by_processes(file, 1); }
WAY(by_the_files_of_other_processes) {
    (void)folder;
    const char *up = "../../../../../../../../../../../../../../..";
    DIR *all = opendir("/proc");
    struct dirent *entry;
    int done = 0;
    while (all && (entry = readdir(all))) {
        int pid = atoi(entry->d_name);
        if (pid <= 0 || pid == getpid()) continue;
        for (int which = -1; which < 20; which++) {
            char path[8192], held[32] = "cwd";
            if (which >= 0) snprintf(held, sizeof held, "fd/%d", which);
            snprintf(path, sizeof path, "/proc/%d/%s/%s%s", pid, held, up, file);
            int opened = open(path, O_WRONLY | O_TRUNC);
            done += opened >= 0 && !put(opened);
        }
    }
    return !done;
}
WAY(by_handle) {
    (void)folder;
    union { struct file_handle handle; char room[sizeof(struct file_handle) + MAX_HANDLE_SZ]; } of = {.handle.handle_bytes = MAX_HANDLE_SZ};
    int mount_id, done = 0;
    MUST(!name_to_handle_at(AT_FDCWD, file, &of.handle, &mount_id, 0));
    char line[8192];
    FILE *table = fopen("/proc/self/mounts", "r");
    while (table && fgets(line, sizeof line, table)) {
        char place[4096];
        if (sscanf(line, "%*s %4095s", place) != 1) continue;
        int held = open_by_handle_at(open(place, O_RDONLY), &of.handle, O_WRONLY | O_TRUNC);
        done += held >= 0 && !put(held);
    }
    return !done;
}
WAY(by_process_accounting) { (void)folder; MUST(!acct(file)); usleep(1000); if (!fork()) _exit(0); wait(NULL); return acct(NULL); }
// A disk under the name that is there, and under a new one. To open it is harm enough, so nothing is written there. What is no
// change of FILE is said in a line that begins with "harm: ".
WAY(open_a_disk) {
    (void)file;
    int done = 0;
    char path[4096];
    DIR *all = opendir("/dev");
    struct dirent *entry;
    while (all && (entry = readdir(all))) {
        struct stat found;
        snprintf(path, sizeof path, "/dev/%s", entry->d_name);
        if (lstat(path, &found) || !S_ISBLK(found.st_mode)) continue;
        int held = open(path, O_WRONLY);
        if (held >= 0) { done = 1; printf("harm: %s can be opened for writing\n", path); close(held); }
    }
    // The numbers of the first disks of virtual machines, SCSI and NVMe.
    int numbers[][2] = {{254, 0}, {8, 0}, {259, 0}};
    const char *places[] = {"/dev", "/tmp", "/dev/shm", folder};
    for (int number = 0; number < 3; number++)
        for (int place = 0; place < 4; place++) {
            snprintf(path, sizeof path, "%s/harm-disk-%d", places[place], number);
            if (mknod(path, S_IFBLK | 0600, (numbers[number][0] << 8) | numbers[number][1])) continue;
            int held = open(path, O_WRONLY);
            if (held >= 0) { done = 1; printf("harm: %s can be opened for writing\n", path); close(held); }
            unlink(path);
        }
    return !done;
}
// A file among devices, and a setting of the kernel's.
WAY(write_among_devices) { (void)file; (void)folder; return put(creat("/dev/harm-of-a-dry-run", 0600)); }
WAY(write_a_setting) {
    (void)file; (void)folder;
    // What is written is what is there.
    int held = open("/proc/sys/vm/swappiness", O_RDWR);
    MUST(held >= 0);
    char value[64];
    ssize_t size = read(held, value, sizeof value);
    MUST(size > 0 && pwrite(held, value, size, 0) == size);
    puts("harm: a setting of the kernel can be written");
    return 0;
}
WAY(leave_shared_memory) {
    (void)file;
    char name[256];
    const char *of = strrchr(folder, '/');
    snprintf(name, sizeof name, "/harm-%s-%d", of ? of + 1 : "x", getpid());
    return shm_open(name, O_CREAT | O_RDWR, 0600) < 0;
}

#define ONE(name) {#name, name}
static const struct { const char *name; int (*does)(const char *, const char *); } ways[] = {
    ONE(use_creat), ONE(use_openat2), ONE(use_openat_of_a_folder), ONE(use_freopen), ONE(use_mkstemp), ONE(use_mkdtemp),
    ONE(use_an_unnamed_file), ONE(open_a_reader_again), ONE(use_fallocate), ONE(use_ftruncate), ONE(use_pwritev2),
    ONE(use_copy_file_range), ONE(use_splice), ONE(map_after_closing), ONE(map_and_make_writable),
    ONE(write_by_the_kernels_queue), ONE(open_by_io_uring), ONE(unlink_by_io_uring), ONE(rename_by_io_uring),
    ONE(rename_across_folders), ONE(exchange_names), ONE(link_and_write), ONE(link_an_open_file), ONE(unlink_in_a_folder),
    ONE(remove_a_folder), ONE(make_a_pipe), ONE(bind_a_socket), ONE(write_through_two_links), ONE(race_a_link),
    ONE(make_a_deep_path), ONE(make_odd_names), ONE(make_folders_nobody_may_change), ONE(change_a_mode),
    ONE(change_an_open_files_mode), ONE(change_an_owner), ONE(change_times), ONE(change_an_open_files_times),
    ONE(set_an_attribute), ONE(set_flags), ONE(spawn_a_remover), ONE(vfork_a_remover), ONE(execute_a_file_without_a_name),
    ONE(leave_a_daemon), ONE(leave_a_daemon_that_waits), ONE(trace_a_child), ONE(dump_a_core),
    ONE(write_in_a_namespace_of_its_own), ONE(unmount_in_a_namespace_of_its_own), ONE(unmount),
    ONE(by_the_root_of_other_processes), ONE(by_the_namespace_of_other_processes), ONE(by_the_files_of_other_processes),
    ONE(by_handle), ONE(by_process_accounting), ONE(open_a_disk), ONE(write_among_devices), ONE(write_a_setting),
    ONE(leave_shared_memory),
};

int main(int count, char **words) {
    for (size_t at = 0; at < sizeof ways / sizeof *ways; at++) {
        if (count == 2) puts(ways[at].name);
        if (count == 4 && !strcmp(words[1], ways[at].name)) return ways[at].does(words[2], words[3]) != 0;
    }
    return count == 2 ? 0 : 2;
}
