/* Who may say what runs in this process: the caller of a set-user-id program may not, nor may
 * whoever can make files beside the folder of a program. The program is a copy of this test, which
 * reports when it has an argument. What needs root is skipped without. */
#define _GNU_SOURCE
#include "adder.h"

#include "base/environment.h"
#include "base/memory.h"
#include "method/plugin.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OWNER = 12345, CALLER = 23456 };

/* ---- the copy ---------------------------------------------------------------------------- */

static cb_tensor *doubled(cb_tensor *x) { return cb_mul(x, 2.0); }

/* Something to explain and to trace. */
static void call_compiled(void) {
    cb_scope_open();
    cb_function *fast = cb_compile(doubled, "backend=vm");
    cb_call(fast, cb_ones(4));
    cb_function_free(fast);
    cb_scope_close();
}

/* One line of what the process would use. */
static int report(const char *plugin_name) {
    call_compiled();
    char directory[CACHE_PATH] = "";
    const Plugin *plugin = plugin_find(plugin_name);
    CodeResult result = load_adder(1);
    Reason cache_reason = cache_directory(directory);
    printf("foreign=%d code=%s cache=%s cc=%s dir=%s plugin=%s loaded=%d detail=%s\n",
           environment_is_foreign(), result.code ? "loaded" : reason_info(result.reason)->id,
           cache_reason == REASON_NONE ? directory : reason_info(cache_reason)->id,
           cb_get_option("cc"), cb_get_option("plugin_dir"),
           plugin->reason == REASON_NONE ? "none" : reason_info(plugin->reason)->id,
           *plugin->path != '\0', plugin->detail);
    return 0;
}

static void copy_file(const char *from, const char *to, mode_t mode) {
    char command[2000];
    snprintf(command, sizeof command, "cp '%s' '%s'", from, to);
    assert_int_equal(system(command), 0);
    assert_int_equal(chmod(to, mode), 0);
}

static void copy_program(const char *to) {
    char own[1000];
    ssize_t bytes = readlink("/proc/self/exe", own, sizeof own - 1);
    assert_true(bytes > 0);
    own[bytes] = '\0';
    copy_file(own, to, 0755);
}

/* The copy, by the user, with the variables set; what it reports. */
static const char *run_copy(const char *program, const char *plugin, uid_t user,
                            const char *const *variables) {
    static char text[2000];
    char output[400];
    path_in(output, "output");
    pid_t child = fork();
    if (child == 0) {
        int file = open(output, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(file, 1);
        if (user && (setgroups(0, NULL) || setgid(user) || setuid(user))) _exit(1);
        const char *words[] = {program, "report", plugin, NULL};
        execve(program, (char *const *)(uintptr_t)words, (char *const *)(uintptr_t)variables);
        _exit(2);
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    FILE *file = fopen(output, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

static void assert_says(const char *text, const char *words) {
    if (!strstr(text, words)) print_error("no '%s' in %s", words, text);
    assert_non_null(strstr(text, words));
}

#if defined(__SANITIZE_ADDRESS__)
/* It looks for leaks by tracing, which a program of another user may not be. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return 1; }
/* The copy has an environment of its own, without the ASAN_OPTIONS of tests (CMakeLists.txt): there
 * vectors of 64 bytes fault in the frames that gcc 13 keeps. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "detect_stack_use_after_return=0"; }
#endif

/* ---- set-user-id ------------------------------------------------------------------------- */

static void test_foreign_callers_choose_nothing(void **state) {
    (void)state;
    char program[400], marker[400], script[900], cc[450], home[450], plugins[450], path[450];
    char explain[450], trace[450];
    if (geteuid() != 0) skip_because("a program of another user needs root");
    chmod(root, 0755);
    path_in(program, "program");
    path_in(marker, "open");
    mkdir(marker, 0777);
    chmod(marker, 0777);
    path_in(marker, "open/marker");
    snprintf(script, sizeof script, "echo ran >%s; exec cc \"$@\"", marker);
    use_script("evil", script);
    copy_program(program);
    snprintf(cc, sizeof cc, "CARBIDE_CC=%s/evil", root);
    snprintf(home, sizeof home, "HOME=%s/home", root);
    snprintf(plugins, sizeof plugins, "CARBIDE_PLUGIN_DIR=%s", CARBIDE_TEST_PLUGINS);
    snprintf(path, sizeof path, "PATH=%s", getenv("PATH"));
    snprintf(explain, sizeof explain, "CARBIDE_EXPLAIN=%s/open/report.html", root);
    snprintf(trace, sizeof trace, "CARBIDE_TRACE=%s/open/trace.json", root);
    const char *report_file = strchr(explain, '/'), *trace_file = strchr(trace, '/');
    const char *variables[] = {cc, home, plugins, path, explain, trace, "CARBIDE_CACHE=0", NULL};
    mkdir(home + strlen("HOME="), 0700);
    assert_int_equal(chown(home + strlen("HOME="), CALLER, CALLER), 0);

    /* The caller's own program takes it all. */
    const char *said = run_copy(program, "run_fails", CALLER, variables);
    assert_says(said, "foreign=0 code=loaded cache=");
    assert_says(said, "/home/.cache/carbide");
    assert_says(said, "plugin=none loaded=1");
    assert_int_equal(access(marker, F_OK), 0);
    unlink(marker);
    assert_int_equal(unlink(report_file), 0); /* both were written */
    assert_int_equal(unlink(trace_file), 0);

    assert_int_equal(chown(program, OWNER, OWNER), 0);
    const mode_t modes[] = {04755, 02755};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(chmod(program, modes[i]), 0);
        said = run_copy(program, "run_fails", CALLER, variables);
        if (strstr(said, "foreign=0")) skip_because("programs of other users run as the caller's");
        assert_says(said, "foreign=1 code=foreign_caller cache=foreign_caller cc=cc dir= "
                          "plugin=foreign_caller loaded=0");
        assert_int_equal(access(marker, F_OK), -1);
        assert_int_equal(access(report_file, F_OK), -1);
        assert_int_equal(access(trace_file, F_OK), -1);
    }
}

/* ---- plugins ----------------------------------------------------------------------------- */

static char folder_of_plugins[450], plugin[500];

static void assert_plugin(const char *words) {
    char program[450];
    snprintf(program, sizeof program, "%s/bin/program", root);
    const char *variables[] = {"CARBIDE_CACHE=0", "CARBIDE_CC=none", NULL};
    assert_says(run_copy(program, "run_fails", 0, variables), words);
}

static void install_plugin(void) {
    char program[450];
    snprintf(program, sizeof program, "%s/bin", root);
    assert_int_equal(mkdir(program, 0755), 0);
    snprintf(program, sizeof program, "%s/bin/program", root);
    copy_program(program);
    snprintf(folder_of_plugins, sizeof folder_of_plugins, "%s/lib", root);
    assert_int_equal(mkdir(folder_of_plugins, 0755), 0);
    snprintf(plugin, sizeof plugin, "%s/libcarbide_run_fails.so", folder_of_plugins);
    copy_file(CARBIDE_TEST_PLUGINS "/libcarbide_run_fails.so", plugin, 0755);
}

#define TRUSTED "plugin=none loaded=1"
#define REFUSED "plugin=provider_unusable loaded=0"

static void test_writers_of_plugins(void **state) {
    (void)state;
    char bin[450];
    install_plugin();
    snprintf(bin, sizeof bin, "%s/bin", root);
    assert_plugin(TRUSTED);
    const char *of[] = {plugin, folder_of_plugins};
    for (int i = 0; i < 2; i++) {
        const mode_t open_to[] = {0775, 0757};
        for (int k = 0; k < 2; k++) {
            chmod(of[i], open_to[k]);
            assert_plugin(REFUSED);
            assert_plugin("CARBIDE_PLUGIN_DIR to trust it");
            chmod(bin, open_to[k]); /* these could replace the program as well */
            assert_plugin(TRUSTED);
            chmod(bin, open_to[k] | 01000); /* a sticky folder is not theirs */
            assert_plugin(k ? REFUSED : TRUSTED);
            chmod(bin, 0755);
        }
        chmod(of[i], 0755);
    }
    assert_plugin(TRUSTED);
}

static void test_owners_of_plugins(void **state) {
    (void)state;
    char bin[450], elsewhere[450], moved[500];
    if (geteuid() != 0) skip_because("files of other users need root");
    install_plugin();
    snprintf(bin, sizeof bin, "%s/bin", root);
    const char *of[] = {plugin, folder_of_plugins};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(chown(of[i], OWNER, 0), 0);
        assert_plugin(REFUSED);
        assert_int_equal(chown(bin, OWNER, 0), 0); /* it is that user's program */
        assert_plugin(TRUSTED);
        assert_int_equal(chown(bin, 0, 0), 0);
        assert_int_equal(chown(of[i], 0, 0), 0);
    }
    /* A link is followed to where the file is. */
    path_in(elsewhere, "elsewhere");
    assert_int_equal(mkdir(elsewhere, 0777), 0);
    chmod(elsewhere, 0777);
    snprintf(moved, sizeof moved, "%s/libcarbide_run_fails.so", elsewhere);
    assert_int_equal(rename(plugin, moved), 0);
    assert_int_equal(symlink(moved, plugin), 0);
    assert_plugin(REFUSED);
    chmod(elsewhere, 0755);
    assert_plugin(TRUSTED);
}

/* ---- folders of the cache ---------------------------------------------------------------- */

/* root with the HOME of a user (sudo) leaves nothing in it. */
static void test_home_of_another_user(void **state) {
    (void)state;
    char home[400], deep[450], directory[CACHE_PATH];
    if (geteuid() != 0) skip_because("a folder of another user needs root");
    path_in(home, "home");
    assert_int_equal(mkdir(home, 0755), 0);
    assert_int_equal(chown(home, OWNER, OWNER), 0);
    cb_set_option("cache_dir", "");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", home, 1);
    assert_int_equal(cache_directory(directory), REASON_cache_unsafe);
    snprintf(deep, sizeof deep, "%s/not/there", home);
    setenv("XDG_CACHE_HOME", deep, 1);
    assert_int_equal(cache_directory(directory), REASON_cache_unsafe);
    assert_int_equal(rmdir(home), 0);                          /* still empty */
    assert_int_equal(cache_directory(directory), REASON_NONE); /* below root's own now */
    unsetenv("XDG_CACHE_HOME");
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "report")) return report(argv[2]);
    const struct CMUnitTest tests[] = {
        CASE(test_foreign_callers_choose_nothing),
        CASE(test_writers_of_plugins),
        CASE(test_owners_of_plugins),
        CASE(test_home_of_another_user),
    };
    return cmocka_run_group_tests_name("trust", tests, NULL, NULL);
}
