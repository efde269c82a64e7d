/* Opens a library by the name given, as plug-ins do, and asks it for devices.
 *
 * opens LIBRARY
 *
 * Prints how many there are; ends with 3 if there is none.
 */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) {
        fprintf(stderr, "%s\n", argc == 2 ? dlerror() : "usage: opens LIBRARY");
        return 1;
    }
    void **(*list)(int *) = (void **(*)(int *))dlsym(library, "ibv_get_device_list");
    int count = 0;
    if (!list)
        return 2;
    list(&count);
    printf("%d devices\n", count);
    return count > 0 ? 0 : 3;
}
