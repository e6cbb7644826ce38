// The page's module has no files: whatever opens one or asks for it finds none.
const kNoSuchFile = -44;  // ENOENT of emscripten's library
const none = {};
for (const call of ['chmod', 'fchmodat', 'fstat64', 'fstatat64', 'getcwd', 'lstat64', 'mkdir', 'open', 'openat', 'readlink', 'rename', 'stat64', 'unlink', 'rmdir', 'getdents64']) {
  none['__syscall_' + call] = new Function('return ' + kNoSuchFile + ';');
}
mergeInto(LibraryManager["library"], none);
